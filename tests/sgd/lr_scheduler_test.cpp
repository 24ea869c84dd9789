#include "sgd/lr_scheduler.hpp"

#include "sgd/state.hpp"
#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include <torch/torch.h>

// The lists are what torch.optim.lr_scheduler of PyTorch 1.13.1 gives: the rates at the beginning,
// and after each step.

using namespace troupe;
using troupe::test::TempFolder;

namespace {

using Values = std::vector<double>;

/// An optimizer with a group for each rate.
template <class Optimizer>
Optimizer make_optimizer(const Values& rates) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : rates) {
    groups.emplace_back(std::vector{torch::zeros(1, torch::requires_grad())});
    auto options = Optimizer({torch::zeros(1, torch::requires_grad())}, 0.1).defaults().clone();
    options->set_lr(rate);
    groups.back().set_options(std::move(options));
  }
  return Optimizer(groups, 0.1);
}

/// The rates of a group, at the beginning and after each step. metrics: one a step, or empty.
std::vector<Values> run(sgd::LRScheduler& scheduler, std::size_t steps, const Values& metrics) {
  const auto count = scheduler.rates().size();
  std::vector<Values> seen(count);
  const auto look = [&] {
    for (std::size_t g = 0; g < count; ++g) seen[g].push_back(scheduler.rates()[g]);
  };
  look();
  for (std::size_t i = 0; i < steps; ++i) {
    if (metrics.empty())
      scheduler.step();
    else
      scheduler.step(metrics[i]);
    look();
  }
  return seen;
}

void check_close(const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-13));
  }
}

/// expected: of each group.
void check(const sgd::AnyLRScheduler& scheduler, const std::vector<Values>& expected,
           const Values& metrics = {}) {
  CAPTURE(scheduler->kind());
  Values rates;
  for (std::size_t g = 0; g < expected.size(); ++g) rates.push_back(g == 0 ? 0.5 : 0.02);
  auto optimizer = make_optimizer<torch::optim::SGD>(rates);
  scheduler->bind(optimizer);
  const auto seen = run(*scheduler, expected[0].size() - 1, metrics);
  for (std::size_t g = 0; g < expected.size(); ++g) check_close(seen[g], expected[g]);
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("lr_scheduler: StepLR, MultiStepLR and ExponentialLR give Python's values") {
  check(
      sgd::StepLR({.step_size = 2, .gamma = 0.1}),
      {{0.5, 0.5, 0.05, 0.05, 0.005000000000000001, 0.005000000000000001, 0.0005000000000000001}});
  check(sgd::MultiStepLR({.milestones = {6, 2, 3, 3}, .gamma = 0.5}),
        {{0.5, 0.5, 0.25, 0.0625, 0.0625, 0.0625, 0.03125, 0.03125}});
  check(sgd::ExponentialLR({.gamma = 0.9}),
        {{0.5, 0.45, 0.405, 0.36450000000000005, 0.32805000000000006, 0.2952450000000001}});
}

TEST_CASE("lr_scheduler: CosineAnnealingLR gives Python's values, past t_max too") {
  check(sgd::CosineAnnealingLR({.t_max = 4, .eta_min = 0.1}),
        {{0.5, 0.4414213562373095, 0.30000000000000004, 0.15857864376269054, 0.1,
          0.15857864376269049, 0.30000000000000004, 0.4414213562373096, 0.5000000000000001,
          0.4414213562373096, 0.30000000000000016},
         {0.02, 0.0317157287525381, 0.060000000000000005, 0.08828427124746191, 0.1,
          0.08828427124746191, 0.060000000000000005, 0.031715728752538086, 0.019999999999999976,
          0.03171572875253807, 0.05999999999999998}});
}

TEST_CASE("lr_scheduler: LambdaLR and LinearLR give Python's values") {
  check(sgd::LambdaLR({.factor = [](std::int64_t step) { return 1.0 / double(1 + step); }}),
        {{0.5, 0.25, 0.16666666666666666, 0.125, 0.1}});
  check(sgd::LinearLR({}),
        {{0.16666666666666666, 0.23333333333333334, 0.30000000000000004, 0.36666666666666675,
          0.43333333333333346, 0.5000000000000001, 0.5000000000000001, 0.5000000000000001}});
  check(sgd::LinearLR({.start_factor = 0.25, .end_factor = 0.75, .total_iters = 4}),
        {{0.125, 0.1875, 0.25, 0.3125, 0.375, 0.375, 0.375},
         {0.005, 0.0075, 0.009999999999999998, 0.012499999999999997, 0.014999999999999996,
          0.014999999999999996, 0.014999999999999996}});
}

TEST_CASE("lr_scheduler: OneCycleLR gives Python's rates and momenta") {
  const auto check_momenta = [](const sgd::AnyLRScheduler& scheduler, auto optimizer, auto momentum,
                                const Values& rates, const Values& momenta) {
    scheduler->bind(optimizer);
    Values seen{momentum(optimizer)};
    Values seen_rates{scheduler->rates()[0]};
    for (std::size_t step = 1; step < momenta.size(); ++step) {
      scheduler->step();
      seen.push_back(momentum(optimizer));
      seen_rates.push_back(scheduler->rates()[0]);
    }
    check_close(seen_rates, rates);
    check_close(seen, momenta);
  };
  using namespace torch::optim;
  check_momenta(
      sgd::OneCycleLR({.max_lr = 1, .total_steps = 10}), make_optimizer<SGD>({0.5}),
      [](auto& sgd) {
        return static_cast<SGDOptions&>(sgd.param_groups()[0].options()).momentum();
      },
      {0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
       0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06},
      {0.95, 0.8999999999999999, 0.85, 0.854951556604879, 0.8688255099070633, 0.8888739533021842,
       0.9111260466978157, 0.9311744900929366, 0.945048443395121, 0.95});
  const sgd::OneCycleLROptions three_phases{.max_lr = 1,
                                            .total_steps = 12,
                                            .pct_start = 0.25,
                                            .anneal = sgd::Anneal::linear,
                                            .div_factor = 10,
                                            .final_div_factor = 100,
                                            .three_phase = true,
                                            .base_momentum = 0.8,
                                            .max_momentum = 0.9};
  const auto beta = []<class Options>(Optimizer& adam) {
    return std::get<0>(static_cast<Options&>(adam.param_groups()[0].options()).betas());
  };
  const Values rates{0.1,
                     0.55,
                     1.0,
                     0.55,
                     0.09999999999999998,
                     0.08585714285714287,
                     0.07171428571428572,
                     0.05757142857142858,
                     0.043428571428571434,
                     0.02928571428571429,
                     0.015142857142857152,
                     0.0010000000000000009};
  const Values betas{
      0.9, 0.8500000000000001, 0.8, 0.8500000000000001, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
  check_momenta(
      sgd::OneCycleLR(three_phases), make_optimizer<Adam>({0.5}),
      [&](auto& adam) { return beta.template operator()<AdamOptions>(adam); }, rates, betas);
  check_momenta(
      sgd::OneCycleLR(three_phases), make_optimizer<AdamW>({0.5}),
      [&](auto& adam) { return beta.template operator()<AdamWOptions>(adam); }, rates, betas);
  check(sgd::OneCycleLR({.max_lr = 1,
                         .total_steps = 12,
                         .pct_start = 0.4,
                         .three_phase = true,
                         .cycle_momentum = false}),
        {{0.040000000000000036, 0.19490484561964427, 0.5596380858267194, 0.8987874445102688,
          0.9934534256333069, 0.7825351158987652, 0.4021669661724169, 0.09785259942088556,
          0.038649579643628314, 0.025474712475461535, 0.00795051254168764, 4e-06}});
}

TEST_CASE("lr_scheduler: OneCycleLR stays at its last rate, then tells that the cycle is over") {
  auto optimizer = make_optimizer<torch::optim::SGD>({0.5});
  const auto scheduler = sgd::OneCycleLR({.max_lr = 1, .total_steps = 3});
  scheduler->bind(optimizer);
  for (int step = 0; step < 3; ++step) scheduler->step();
  CHECK(scheduler->rates()[0] == doctest::Approx(4e-6));
  CHECK_THROWS_WITH_AS(scheduler->step(),
                       "bad request: OneCycleLR: step 4 of 3; set total_steps to all steps of the "
                       "training",
                       Exception);
}

TEST_CASE("lr_scheduler: ReduceLROnPlateau gives Python's values, NaN and cooldown included") {
  check(sgd::ReduceLROnPlateau({.factor = 0.5, .patience = 1, .cooldown = 1}),
        {{0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625, 0.0625,
          0.03125, 0.03125}},
        {1.0, 0.9, 0.9, 0.95, 0.89999, 0.5, 0.6, 0.6, 0.6, 0.6, kNaN, 0.4, 0.4, 0.4, 0.4});
  check(sgd::ReduceLROnPlateau({.mode = sgd::PlateauMode::max,
                                .factor = 0.3,
                                .patience = 0,
                                .threshold = 0.06,
                                .threshold_mode = sgd::Threshold::absolute,
                                .min_lr = 0.05}),
        {{0.5, 0.5, 0.5, 0.15, 0.15, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05},
         Values(13, 0.02)},
        {0.1, 0.2, 0.25, 0.3, 0.31, 0.31, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
  check(sgd::ReduceLROnPlateau(
            {.mode = sgd::PlateauMode::max, .factor = 0.5, .patience = 0, .threshold = 0.1}),
        {{0.5, 0.5, 0.5, 0.25, 0.25, 0.25}}, {-1.0, -1.05, -1.2, -1.0, -0.5});
  check(sgd::ReduceLROnPlateau({.factor = 0.5, .patience = 0, .eps = 0.1}),
        {{0.5, 0.5, 0.25, 0.125, 0.125, 0.125, 0.125}}, Values(6, 1.0));
}

TEST_CASE("lr_scheduler: the rates of every kind of optimizer are set") {
  const auto check_kind = [](auto optimizer) {
    const auto scheduler = sgd::StepLR({.step_size = 1, .gamma = 0.5});
    scheduler->bind(optimizer);
    scheduler->step();
    CHECK(scheduler->rates() == Values{0.25, 1});
  };
  check_kind(make_optimizer<torch::optim::SGD>({0.5, 2}));
  check_kind(make_optimizer<torch::optim::Adam>({0.5, 2}));
  check_kind(make_optimizer<torch::optim::AdamW>({0.5, 2}));
  check_kind(make_optimizer<torch::optim::RMSprop>({0.5, 2}));
  check_kind(make_optimizer<torch::optim::Adagrad>({0.5, 2}));
}

TEST_CASE("lr_scheduler: saved and loaded in the middle, it goes on with the same bits") {
  const Values metrics{1.0, 0.9, 0.9, 0.95, 0.95, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6};
  const std::vector<std::function<sgd::AnyLRScheduler()>> kinds{
      [] { return sgd::StepLR({.step_size = 2}); },
      [] {
        return sgd::MultiStepLR({.milestones = {3, 7}});
      },
      [] { return sgd::ExponentialLR({}); },
      [] { return sgd::CosineAnnealingLR({.t_max = 7}); },
      [] { return sgd::LambdaLR({.factor = [](auto step) { return 1.0 / double(step + 1); }}); },
      [] { return sgd::LinearLR({.total_iters = 9}); },
      [] { return sgd::OneCycleLR({.total_steps = 20}); },
      [] { return sgd::ReduceLROnPlateau({.patience = 1, .cooldown = 2}); },
  };
  for (const auto& make : kinds)
    for (std::size_t middle = 0; middle <= metrics.size(); ++middle) {
      auto optimizer = make_optimizer<torch::optim::SGD>({0.5, 0.3});
      auto scheduler = make();
      CAPTURE(scheduler->kind());
      CAPTURE(middle);
      scheduler->bind(optimizer);
      const auto whole = run(*scheduler, metrics.size(), metrics);

      auto first_optimizer = make_optimizer<torch::optim::SGD>({0.5, 0.3});
      auto first = make();
      first->bind(first_optimizer);
      run(*first, middle, metrics);
      const TempFolder folder;
      auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
      first->save(*out, "lr");
      sgd::save(*out, "sgd", first_optimizer);
      unwrap(out->commit());

      const auto in = unwrap(CheckpointReader::open(folder / "c"));
      auto second_optimizer = make_optimizer<torch::optim::SGD>({7, 8});
      auto second = make();
      second->bind(second_optimizer);
      sgd::load(in, "sgd", second_optimizer);
      second->load(in, "lr");
      CHECK(second->step_count() == static_cast<std::int64_t>(middle));
      const auto rest = run(*second, metrics.size() - middle,
                            Values(metrics.begin() + std::ptrdiff_t(middle), metrics.end()));
      for (std::size_t g = 0; g < 2; ++g)
        CHECK(rest[g] == Values(whole[g].begin() + std::ptrdiff_t(middle), whole[g].end()));
    }
}

TEST_CASE("lr_scheduler: the state of another kind or of other groups is refused unchanged") {
  const TempFolder folder;
  auto optimizer = make_optimizer<torch::optim::SGD>({0.5});
  auto saved = sgd::StepLR({});
  saved->bind(optimizer);
  saved->step();
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  saved->save(*out, "lr");
  unwrap(out->commit());
  const auto in = unwrap(CheckpointReader::open(folder / "c"));

  auto other = sgd::ExponentialLR({});
  other->bind(optimizer);
  CHECK_THROWS_WITH_AS(other->load(in, "lr"),
                       "bad request: checkpoint: 'lr' is the state of StepLR, not of ExponentialLR",
                       Exception);
  auto two_groups = make_optimizer<torch::optim::SGD>({0.5, 0.5});
  auto wider = sgd::StepLR({});
  wider->bind(two_groups);
  CHECK_THROWS_WITH_AS(
      wider->load(in, "lr"),
      "bad request: checkpoint: 'lr' is for 1 parameter groups, the optimizer has 2", Exception);
  CHECK(wider->step_count() == 0);
  CHECK_THROWS_AS(sgd::ReduceLROnPlateau({})->load(in, "lr"), Exception);
}

TEST_CASE("lr_scheduler: options that make no sense are refused with option and value") {
  CHECK_THROWS_WITH_AS(sgd::StepLR({.step_size = 0}),
                       "bad request: StepLR: step_size is 0; it must be 1 or more", Exception);
  CHECK_THROWS_WITH_AS(sgd::StepLR({.gamma = kNaN}),
                       "bad request: StepLR: gamma is nan; it must be above 0", Exception);
  CHECK_THROWS_AS(sgd::MultiStepLR({.milestones = {3, -1}}), Exception);
  CHECK_THROWS_AS(sgd::ExponentialLR({.gamma = 0}), Exception);
  CHECK_THROWS_AS(sgd::CosineAnnealingLR({.t_max = 0}), Exception);
  CHECK_THROWS_AS(sgd::LambdaLR({}), Exception);
  CHECK_THROWS_AS(sgd::LinearLR({.start_factor = 1.5}), Exception);
  CHECK_THROWS_AS(sgd::OneCycleLR({.total_steps = 0}), Exception);
  CHECK_THROWS_AS(sgd::OneCycleLR({.pct_start = 0.7, .three_phase = true}), Exception);
  CHECK_THROWS_AS(sgd::OneCycleLR({.div_factor = 0}), Exception);
  CHECK_THROWS_WITH_AS(sgd::ReduceLROnPlateau({.factor = 1}),
                       "bad request: ReduceLROnPlateau: factor is 1; it must be at least 0 and "
                       "below 1",
                       Exception);
}

TEST_CASE("lr_scheduler: misuse is told: no optimizer, two of them, no metric, no momentum") {
  const auto scheduler = sgd::StepLR({});
  CHECK_THROWS_WITH_AS(scheduler->step(), "bad request: StepLR: it has no optimizer yet",
                       Exception);
  auto optimizer = make_optimizer<torch::optim::Adagrad>({0.5});
  const auto bound = sgd::StepLR({});
  bound->bind(optimizer);
  CHECK_THROWS_WITH_AS(bound->bind(optimizer), "bad request: StepLR: it has an optimizer already",
                       Exception);
  const auto plateau = sgd::ReduceLROnPlateau({});
  plateau->bind(optimizer);
  CHECK_THROWS_AS(plateau->step(), Exception);
  CHECK_THROWS_WITH_AS(sgd::OneCycleLR({})->bind(optimizer),
                       "bad request: OneCycleLR: the optimizer has neither momentum nor betas; set "
                       "cycle_momentum to false",
                       Exception);
  const auto rates_only = sgd::OneCycleLR({.cycle_momentum = false});
  CHECK_NOTHROW(rates_only->bind(optimizer));
}
