#include "sgd/training_operator.hpp"

#include "sgd/internal/epoch_plan.hpp"
#include "tests/support/operator_ranks.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

// One rank. What several do together: internal/operator_impl_test.cpp.

using namespace troupe;
using namespace troupe::sgd;
using sgd::internal::mix_seed;
using test::OperatorRank;
using test::points;
using test::same_bits;

namespace {

constexpr std::uint64_t kSeed = 17;

/// With everything that makes training differ from run to run.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16),
                                        torch::nn::ReLU(), torch::nn::Dropout(0.3),
                                        torch::nn::Linear(16, 3)));
  }
  torch::Tensor forward(torch::Tensor x) { return torch::log_softmax(layers->forward(x), 1); }
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Net);

AnyOptimizer optimizer_of(const std::string& kind, const Net& net) {
  if (kind == "adam") return torch::optim::Adam(net->parameters(), 0.01);
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

class NetOperator : public TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    net = Net();
    register_components({.model = net,
                         .optimizer = optimizer_of(config.get_or("optimizer", "sgd"), net),
                         .criterion = torch::nn::NLLLoss(),
                         .clip_grad_norm = config.get_or("clip", 0.0)});
    register_data(points(50, {.batch_size = 8}), points(11, {.batch_size = 4, .shuffle = false}));
  }
  Net net{nullptr};
};

/// Registers whatever a test wants.
class AnyOperator : public TrainingOperator {
 public:
  void setup(const tune::Config&) override {
    if (on_setup) on_setup(*this);
  }
  tune::Metrics train_batch(const Batch& batch, const BatchInfo& info) override {
    infos.push_back(info);
    return on_batch ? on_batch(batch, info) : TrainingOperator::train_batch(batch, info);
  }
  static inline thread_local std::function<void(TrainingOperator&)> on_setup = {};
  std::function<tune::Metrics(const Batch&, const BatchInfo&)> on_batch = {};
  std::vector<BatchInfo> infos = {};
};

/// An operator on this thread, alone.
template <class Op = AnyOperator>
struct Alone {
  explicit Alone(sgd::internal::RankEnvironment env)
      : group(1, 1, sgd::internal::comm_threads()),
        collectives(group.exchange(0), test::kRankLimit) {
    env.seed = kSeed;
    rank.emplace(collectives, std::move(env));
  }
  OperatorRank<Op>* operator->() { return &*rank; }

  sgd::internal::LocalGroup group;
  sgd::internal::Collectives collectives;
  std::optional<OperatorRank<Op>> rank;
};

/// AnyOperator, with this as its `setup`.
Alone<> alone(std::function<void(TrainingOperator&)> setup) {
  AnyOperator::on_setup = std::move(setup);
  return Alone<>({});
}

std::string error_of(auto&& call) {
  const auto ran = fence(Errc::user_code, [&] { call(); });
  return ran ? std::string() : text_of(ran.error());
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

double number(const tune::Metrics& metrics, std::string_view name) {
  const auto value = metrics.number(name);
  REQUIRE_MESSAGE(value, name);
  return *value;
}

/// Five zeros, then five ones, one a batch.
void zeros_and_ones(TrainingOperator& op) {
  op.register_data({AnyDataset({torch::arange(10).div(5, "floor").to(torch::kFloat).unsqueeze(1)},
                               torch::zeros({10})),
                    {.batch_size = 1, .shuffle = false}});
}

/// A net, an optimizer and a criterion for `zeros_and_ones`.
Components one_linear() {
  const torch::nn::Linear net(1, 1);
  return {.model = net,
          .optimizer = torch::optim::SGD(net->parameters(), 0.1),
          .criterion = torch::nn::MSELoss()};
}

tune::Metrics value_of(const Batch& batch, const BatchInfo&) {
  return {{"x", batch.features[0].item<double>()}, {"num_samples", 1}};
}

}  // namespace

TEST_CASE("one rank trains as the bare loop does, bit for bit") {
  for (const std::string kind : {"sgd", "adam"})
    for (const double clip : {0.0, 0.5}) {
      CAPTURE(kind);
      CAPTURE(clip);
      Alone<NetOperator> ours({.config = {{"optimizer", kind}, {"clip", clip}}});
      std::vector<double> our_losses, losses;
      for (int epoch = 0; epoch < 2; ++epoch)
        our_losses.push_back(number(ours->train(), "last_train_loss"));

      sgd::internal::RankGenerator generator(mix_seed(kSeed, 0, 0), torch::kCPU);
      const auto in_use = generator.use();
      Net net;
      const AnyOptimizer optimizer = optimizer_of(kind, net);
      torch::nn::NLLLoss criterion;
      const DataLoader data = points(50, {.batch_size = 8});
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        generator.seed(mix_seed(kSeed, 0, epoch + 1));
        const sgd::internal::EpochPlan plan(50, data.options, {.seed = kSeed},
                                            static_cast<std::int64_t>(epoch));
        torch::Tensor loss;
        for (std::int64_t step = 0; step < plan.steps(); ++step) {
          const Batch batch = data.dataset.batch(plan.indices(step));
          optimizer->zero_grad();
          loss = criterion(net->forward(batch.features[0]), batch.target);
          loss.backward();
          if (clip > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), clip);
          optimizer->step();
        }
        losses.push_back(loss.item<double>());
      }
      CHECK(our_losses == losses);
      CHECK(same_bits(test::flat(*ours->op.net), test::flat(*net)));
    }
}

TEST_CASE(
    "train gives RaySGD's metrics: num_samples, epoch, batch_count, train_loss, last_train_loss") {
  Alone<NetOperator> rank({});
  rank->train();
  const tune::Metrics metrics = rank->train();
  CHECK(number(metrics, "num_samples") == 50);
  CHECK(number(metrics, "epoch") == 2);
  CHECK(number(metrics, "batch_count") == 7);
  CHECK(metrics.size() == 5);
  CHECK(std::isfinite(number(metrics, "train_loss")));
  CHECK(number(metrics, "train_loss") != number(metrics, "last_train_loss"));
  CHECK(rank->op.global_step() == 14);
  CHECK(rank->op.epoch() == 2);
}

TEST_CASE("validate gives val_loss and val_accuracy as if all samples were one batch") {
  Alone<NetOperator> rank({});
  rank->train();
  const tune::Metrics metrics = rank->validate();
  const DataLoader data = points(11, {});
  rank->op.net->eval();
  const auto all = data.dataset.batch(torch::arange(11));
  const auto output = rank->op.net->forward(all.features[0]);
  CHECK(number(metrics, "num_samples") == 11);
  CHECK(number(metrics, "batch_count") == 3);
  CHECK(metrics.find("epoch") == nullptr);
  CHECK(number(metrics, "val_loss") ==
        doctest::Approx(torch::nll_loss(output, all.target).item<double>()));
  CHECK(number(metrics, "val_accuracy") ==
        doctest::Approx(output.argmax(1).eq(all.target).to(torch::kDouble).mean().item<double>()));
  CHECK(metrics.find("last_val_loss") != nullptr);
  CHECK(metrics.find("last_val_accuracy") != nullptr);
}

TEST_CASE("a target that is no class number has no val_accuracy") {
  auto rank = alone([](TrainingOperator& op) {
    op.register_components(one_linear());
    const DataLoader data{AnyDataset({torch::ones({6, 1})}, torch::ones({6, 1})), {}};
    op.register_data(data, data);
  });
  const tune::Metrics metrics = rank->validate();
  CHECK(metrics.find("val_accuracy") == nullptr);
  CHECK(number(metrics, "num_samples") == 6);
}

TEST_CASE("num_steps goes on where the last call stopped, and into the next epoch") {
  auto rank = alone(zeros_and_ones);
  rank->op.on_batch = value_of;
  const auto check = [&](std::int64_t num_steps, double x, double epoch, double batches) {
    const tune::Metrics metrics = rank->train(num_steps);
    CHECK(number(metrics, "x") == doctest::Approx(x));
    CHECK(number(metrics, "epoch") == epoch);
    CHECK(number(metrics, "batch_count") == batches);
  };
  check(0, 0.5, 1, 10);
  check(5, 0, 2, 5);
  check(3, 1, 2, 3);
  check(5, 0.4, 3, 5);
  check(0, 5.0 / 7, 3, 7);
  check(0, 0.5, 4, 10);
  check(25, 10.0 / 25, 7, 25);
}

TEST_CASE("num_steps that end an epoch leave the next call a whole one") {
  auto rank = alone(zeros_and_ones);
  rank->op.on_batch = value_of;
  CHECK(number(rank->train(10), "epoch") == 1);
  CHECK(number(rank->train(), "batch_count") == 10);
  CHECK(rank->op.epoch() == 2);
}

TEST_CASE("validate keeps a place of its own") {
  auto rank = alone([](TrainingOperator& op) {
    op.register_components(one_linear());
    const DataLoader data{AnyDataset({torch::arange(4.0).unsqueeze(1)}, torch::zeros({4, 1})),
                          {.batch_size = 1, .shuffle = false}};
    op.register_data(data, data);
  });
  rank->train(3);
  CHECK(number(rank->validate(1), "batch_count") == 1);
  CHECK(number(rank->validate(), "batch_count") == 3);
  CHECK(number(rank->validate(), "batch_count") == 4);
  CHECK(number(rank->train(), "batch_count") == 1);
}

TEST_CASE("a batch is told its index in the call, the global step and the call's info") {
  auto rank = alone(zeros_and_ones);
  rank->op.on_batch = value_of;
  rank->train(2);
  rank->driver->train({.num_steps = 2, .info = {{"phase", "late"}}});
  REQUIRE(rank->op.infos.size() == 4);
  CHECK(rank->op.infos[1].batch_index == 1);
  CHECK(rank->op.infos[2].batch_index == 0);
  CHECK(rank->op.infos[3].global_step == 3);
  CHECK(!rank->op.infos[1].info.has("phase"));
  CHECK(rank->op.infos[3].info.get<std::string>("phase") == "late");
}

TEST_CASE("an epoch without samples is one: no loss, and num_samples 0") {
  auto rank = alone([](TrainingOperator& op) {
    op.register_components(one_linear());
    op.register_data({AnyDataset({torch::zeros({0, 1})}, torch::zeros({0, 1})), {}});
  });
  for (const std::int64_t num_steps : {0, 3}) {
    const tune::Metrics metrics = rank->train(num_steps);
    CHECK(number(metrics, "num_samples") == 0);
    CHECK(number(metrics, "batch_count") == 0);
    CHECK(metrics.find("train_loss") == nullptr);
  }
  CHECK(rank->op.epoch() == 2);
}

TEST_CASE("a NaN loss is in the epoch's mean, and training goes on") {
  auto rank = alone(zeros_and_ones);
  rank->op.on_batch = [](const Batch&, const BatchInfo& info) -> tune::Metrics {
    return {{"train_loss", info.batch_index == 2 ? std::nan("") : 1.0}};
  };
  const tune::Metrics metrics = rank->train();
  CHECK(std::isnan(number(metrics, "train_loss")));
  CHECK(number(metrics, "last_train_loss") == 1);
  CHECK(number(metrics, "num_samples") == 10);  // one a batch, where none is told
}

TEST_CASE("what the default loops miss is named, with the way out") {
  const auto data = [](TrainingOperator& op) {
    const DataLoader ones{AnyDataset({torch::ones({2, 1})}, torch::ones({2, 1})), {}};
    op.register_data(ones, ones);
  };
  const auto train = [](std::function<void(TrainingOperator&)> setup) {
    return error_of([&] { alone(std::move(setup))->train(); });
  };
  CHECK(contains(train(data), "the default train_batch needs one model, and none is registered"));
  CHECK(contains(train([&](TrainingOperator& op) {
                   Components parts = one_linear();
                   parts.optimizer = {};
                   op.register_components(parts);
                   data(op);
                 }),
                 "needs one optimizer, and none is registered"));
  CHECK(contains(train([&](TrainingOperator& op) {
                   Components parts = one_linear();
                   parts.criterion = {};
                   op.register_components(parts);
                   data(op);
                 }),
                 "needs one criterion"));
  CHECK(contains(train([](TrainingOperator& op) { op.register_components(one_linear()); }),
                 "there are no training data: call register_data"));
  CHECK(contains(
      train([&](TrainingOperator& op) {
        Components parts = one_linear();
        parts.models = {{"a", std::exchange(parts.model, {})}, {"b", torch::nn::Linear(1, 1)}};
        op.register_components(parts);
        data(op);
      }),
      "the default train_epoch needs one model, and 2 are registered"));
  CHECK(contains(error_of([&] { alone(zeros_and_ones)->validate(); }),
                 "there are no validation data"));
}

TEST_CASE("parts that are not there, or given twice, are named") {
  CHECK(contains(error_of([] {
                   alone([](TrainingOperator& op) {
                     op.register_components(one_linear());
                     op.register_components(one_linear());
                   });
                 }),
                 "register_components was called before"));
  CHECK(contains(
      error_of([] { alone([](TrainingOperator& op) { zeros_and_ones(op), zeros_and_ones(op); }); }),
      "register_data was called before"));
  CHECK(contains(
      error_of([] { alone([](TrainingOperator& op) { op.register_data(DataLoader{}); }); }),
      "the training loader has no data set"));
  CHECK(contains(error_of([] { AnyOperator().config(); }), "before setup"));
  auto rank = alone([](TrainingOperator& op) { op.register_components(one_linear()); });
  CHECK(contains(error_of([&] { rank->op.model(1); }),
                 "there is no model 1: 1 are registered in setup"));
  CHECK(contains(error_of([&] { rank->op.scheduler(); }), "none is registered"));
  CHECK(contains(error_of([&] { rank->driver->update_scheduler(1); }), "no LR scheduler"));
}

TEST_CASE("what setup returns and the operator gives are the user's own objects") {
  torch::nn::Linear net{nullptr};
  auto rank = alone([&](TrainingOperator& op) {
    net = torch::nn::Linear(1, 1);
    const Components parts =
        op.register_components({.model = net,
                                .optimizer = torch::optim::SGD(net->parameters(), 0.5),
                                .criterion = torch::nn::MSELoss()});
    CHECK(parts.model.ptr() == net.ptr());
    CHECK(&*parts.optimizer == &op.optimizer());
  });
  CHECK(rank->op.model().ptr() == net.ptr());
  CHECK(rank->op.rank() == 0);
  CHECK(rank->op.world_size() == 1);
  CHECK(!rank->op.use_gpu());
  CHECK(!rank->op.use_fp16());
}

TEST_CASE("the batch size is the loader's, else the config's, else 64") {
  const auto batches = [](LoaderOptions options, tune::Config config) {
    AnyOperator::on_setup = [&](TrainingOperator& op) { op.register_data(points(128, options)); };
    Alone<> rank({.config = std::move(config)});
    rank->op.on_batch = [](const Batch&, const BatchInfo&) { return tune::Metrics{}; };
    return number(rank->train(), "batch_count");
  };
  CHECK(batches({.batch_size = 16}, {{"batch_size", 4}}) == 8);
  CHECK(batches({}, {{"batch_size", 4}}) == 32);
  CHECK(batches({}, {}) == 2);
}

TEST_CASE("LR schedulers take their step by batch, by epoch or by hand") {
  const auto rates = [](SchedulerStep when, std::int64_t accumulate) {
    auto rank = alone([&](TrainingOperator& op) {
      Components parts = one_linear();
      parts.scheduler = ExponentialLR({.gamma = 0.5});
      parts.scheduler_step = when;
      parts.accumulate = accumulate;
      op.register_components(parts);
      op.register_data(
          {AnyDataset({torch::ones({10, 1})}, torch::ones({10, 1})), {.batch_size = 1}});
    });
    std::vector<double> after;
    for (const std::int64_t num_steps : {4, 0, 1}) {
      rank->train(num_steps);
      after.push_back(static_cast<double>(rank->op.scheduler().step_count()));
    }
    rank->driver->update_scheduler(0);
    after.push_back(static_cast<double>(rank->op.scheduler().step_count()));
    return after;
  };
  using Counts = std::vector<double>;
  CHECK(rates(SchedulerStep::batch, 1) == Counts{4, 10, 11, 12});
  CHECK(rates(SchedulerStep::batch, 4) == Counts{1, 3, 4, 5});
  CHECK(rates(SchedulerStep::epoch, 1) == Counts{0, 1, 1, 2});
  CHECK(rates(SchedulerStep::manual, 1) == Counts{0, 0, 0, 1});
}

TEST_CASE("accumulate 4 over 10 batches is three steps, each as of one large batch") {
  // Batches of 3 samples, the last of 1: 12, 12, 4.
  const auto train = [](std::int64_t batch_size, std::int64_t accumulate) {
    auto rank = alone([&](TrainingOperator& op) {
      torch::manual_seed(3);
      torch::nn::Linear net(4, 3);
      for (auto& parameter : net->parameters()) torch::nn::init::constant_(parameter, 0.1);
      op.register_components({.model = net,
                              .optimizer = torch::optim::Adam(net->parameters(), 0.1),
                              .criterion = torch::nn::CrossEntropyLoss(),
                              .accumulate = accumulate});
      op.register_data(points(28, {.batch_size = batch_size}));
    });
    const tune::Metrics metrics = rank->train();
    auto& optimizer = rank->op.optimizer();
    const auto& state = static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(
        c10::guts::to_string(optimizer.param_groups()[0].params()[0].unsafeGetTensorImpl())));
    return std::tuple(test::flat(rank->op.model().module()), state.step(),
                      number(metrics, "batch_count"), number(metrics, "train_loss"));
  };
  const auto [small, small_steps, small_batches, small_loss] = train(3, 4);
  const auto [large, large_steps, large_batches, large_loss] = train(12, 1);
  CHECK(small_batches == 10);
  CHECK(small_steps == 3);
  CHECK(large_steps == 3);
  CHECK(torch::allclose(small, large, 1e-5, 1e-6));
  CHECK(small_loss == doctest::Approx(large_loss));
}

TEST_CASE("a call that ends within a group of accumulated batches takes the step") {
  auto rank = alone([&](TrainingOperator& op) {
    Components parts = one_linear();
    parts.accumulate = 4;
    op.register_components(parts);
    op.register_data({AnyDataset({torch::ones({8, 1})}, torch::zeros({8, 1})), {.batch_size = 1}});
  });
  const auto before = test::flat(rank->op.model().module());
  rank->train(1);
  CHECK(!same_bits(before, test::flat(rank->op.model().module())));
}

TEST_CASE("an overflow under loss scaling skips the step and lowers the scale, until it fits") {
  auto rank = alone([](TrainingOperator& op) {
    Components parts = one_linear();
    parts.amp = {.init_scale = 0x1p126, .backoff_factor = 0x1p-30, .scale_loss = true};
    op.register_components(parts);
    op.register_data(
        {AnyDataset({torch::full({3, 1}, 64.0)}, torch::zeros({3, 1})), {.batch_size = 1}});
  });
  const auto before = test::flat(rank->op.model().module());
  rank->train(1);
  CHECK(same_bits(before, test::flat(rank->op.model().module())));
  rank->train(1);
  CHECK(!same_bits(before, test::flat(rank->op.model().module())));
}

TEST_CASE("bfloat16 autocast on the CPU trains float32 parameters with a float32 loss") {
  AnyOperator::on_setup = [](TrainingOperator& op) {
    const torch::nn::Linear net(4, 3);
    op.register_components({.model = net,
                            .optimizer = torch::optim::SGD(net->parameters(), 0.5),
                            .criterion = torch::nn::CrossEntropyLoss()});
    op.register_data(points(64, {}), points(16, {}));
  };
  Alone<> rank({.use_fp16 = true});
  CHECK(rank->op.use_fp16());
  const double first = number(rank->train(), "train_loss");
  for (int i = 0; i < 20; ++i) rank->train();
  const tune::Metrics last = rank->train();
  CHECK(number(last, "train_loss") < first);
  CHECK(rank->op.model().module().parameters()[0].dtype() == torch::kFloat);
  CHECK(std::isfinite(number(rank->validate(), "val_loss")));
}

TEST_CASE("an exception in a batch leaves the operator usable, at the same batch") {
  auto rank = alone(zeros_and_ones);
  int seen = 0;
  rank->op.on_batch = [&](const Batch& batch, const BatchInfo& info) {
    if (++seen == 7) throw std::runtime_error("enough");
    return value_of(batch, info);
  };
  CHECK(contains(error_of([&] { rank->train(); }), "enough"));
  const tune::Metrics metrics = rank->train();
  CHECK(number(metrics, "batch_count") == 4);
  CHECK(number(metrics, "x") == 1);
}

TEST_CASE("a loop that is left early ends its batch") {
  class Early final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override { zeros_and_ones(*this); }
    tune::Metrics train_epoch() override {
      double sum = 0;
      auto batches = train_batches();
      for (const auto& batch : batches) {
        sum += batch.features[0].item<double>();
        if (batches.info().batch_index == 5) break;
      }
      return {{"sum", sum}};
    }
  };
  Alone<Early> rank({});
  const tune::Metrics metrics = rank->train();
  CHECK(number(metrics, "sum") == 1);
  CHECK(number(metrics, "batch_count") == 6);
  CHECK(number(metrics, "num_samples") == 6);
  CHECK(!rank->driver->can_stop_between_steps());
}

TEST_CASE("an operator with data of its own counts epochs, and needs to register nothing") {
  class Own final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override {}
    tune::Metrics train_epoch() override { return {{"loss", 1.0}}; }
    tune::Metrics validate() override { return {{"val", 2.0}}; }
  };
  Alone<Own> rank({});
  rank->train();
  const tune::Metrics metrics = rank->train();
  CHECK(number(metrics, "epoch") == 2);
  CHECK(number(metrics, "loss") == 1);
  CHECK(number(rank->validate(), "val") == 2);
}

TEST_CASE("the profile tells where the time went, when it is asked for") {
  Alone<NetOperator> rank({});
  CHECK(rank->train().find("profile/mean_fwd_s") == nullptr);
  const tune::Metrics train = rank->driver->train({.profile = true});
  for (const char* name : {"fwd", "grad", "apply", "data", "train_epoch"})
    CHECK(number(train, "profile/mean_" + std::string(name) + "_s") > 0);
  CHECK(train.find("profile/mean_exchange_s") == nullptr);  // one rank
  const tune::Metrics validation = rank->driver->validate({.profile = true});
  CHECK(number(validation, "profile/mean_eval_fwd_s") > 0);
  CHECK(number(validation, "profile/mean_validation_s") > 0);
}

TEST_CASE(
    "models are in train mode in train, in eval mode in validate, where no gradient is kept") {
  class Modes final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override { register_components(one_linear()); }
    tune::Metrics train_epoch() override {
      return {{"training", model().module().is_training() && torch::GradMode::is_enabled()}};
    }
    tune::Metrics validate() override {
      return {{"training", model().module().is_training() || torch::GradMode::is_enabled()}};
    }
  };
  Alone<Modes> rank({});
  CHECK(number(rank->train(), "training") == 1);
  CHECK(number(rank->validate(), "training") == 0);
}
