#include "sgd/internal/operator_impl.hpp"

#include "tests/support/operator_ranks.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torch/torch.h>

// Operators of several ranks, as threads.

using namespace troupe;
using namespace troupe::sgd;
using sgd::internal::RankEnvironment;
using test::flat;
using test::on_ranks;
using test::OperatorRank;
using test::points;
using test::same_bits;

namespace {

struct PlainImpl : torch::nn::Module {
  explicit PlainImpl(bool norm = false) {
    layers = register_module("layers", torch::nn::Sequential(torch::nn::Linear(4, 16)));
    if (norm) layers->push_back(torch::nn::BatchNorm1d(16));
    layers->push_back(torch::nn::Tanh());
    layers->push_back(torch::nn::Linear(16, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Plain);

/// As its config says.
class PlainOperator : public TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    net = Plain(config.get_or("norm", false));
    const auto lr = config.get_or("lr", 0.05);
    const std::string kind = config.get_or("optimizer", "sgd");
    AnyOptimizer optimizer = torch::optim::SGD(
        net->parameters(), torch::optim::SGDOptions(lr).momentum(kind == "momentum" ? 0.9 : 0.0));
    if (kind == "adam") optimizer = torch::optim::Adam(net->parameters(), lr / 10);
    register_components(
        {.model = net,
         .optimizer = optimizer,
         .criterion = torch::nn::CrossEntropyLoss(),
         .accumulate = config.get_or("accumulate", std::int64_t{1}),
         .ddp = {.average = config.get_or("by_rank", false) ? Average::by_rank : Average::by_sample,
                 .broadcast_buffers = config.get_or("broadcast_buffers", true)}});
    register_data(points(config.get_or("samples", std::int64_t{100}),
                         {.batch_size = config.get<std::int64_t>("batch_size")}),
                  points(23, {.batch_size = 4}));
  }
  Plain net{nullptr};
};

/// What a group of ranks is at the end: parameters and buffers, and the merged metrics.
struct Trained {
  torch::Tensor state = {};
  tune::Metrics metrics = {};
};

template <class Op = PlainOperator>
Trained train(int world_size, tune::Config config, std::int64_t num_steps = 0) {
  std::mutex mutex;
  std::map<int, Trained> ranks;
  on_ranks<Op>(world_size, {.config = std::move(config), .seed = 5}, [&](OperatorRank<Op>& rank) {
    const tune::Metrics metrics = rank.train(num_steps);
    const std::lock_guard lock(mutex);
    ranks[rank.rank()] = {flat(*rank.op.net), metrics};
  });
  std::vector<tune::Metrics> metrics;
  for (const auto& [rank, trained] : ranks) {
    CAPTURE(rank);
    CHECK(same_bits(trained.state, ranks[0].state));
    metrics.push_back(trained.metrics);
  }
  return {ranks[0].state, sgd::internal::merge(metrics)};
}

double number(const tune::Metrics& metrics, std::string_view name) {
  const auto value = metrics.number(name);
  REQUIRE_MESSAGE(value, name);
  return *value;
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("N ranks with batch B train as one rank with batch N·B, also at the uneven end") {
  for (const std::string kind : {"sgd", "momentum", "adam"})
    for (const int accumulate : {1, 3})
      for (const int ranks : {2, 3}) {
        CAPTURE(kind);
        CAPTURE(accumulate);
        CAPTURE(ranks);
        // 100 samples in steps of 12: the last has 4, which is 1, 1 and 2 for three ranks.
        const tune::Config config{{"optimizer", kind}, {"accumulate", accumulate}};
        tune::Config one = config, several = config;
        one.set("batch_size", 12);
        several.set("batch_size", 12 / ranks);
        const Trained alone = train(1, one, 50);
        const Trained together = train(ranks, several, 50);
        CHECK(torch::allclose(alone.state, together.state, 1e-4, 1e-5));
        CHECK(number(together.metrics, "num_samples") == number(alone.metrics, "num_samples"));
        CHECK(number(together.metrics, "batch_count") == 50);
        CHECK(number(together.metrics, "train_loss") ==
              doctest::Approx(number(alone.metrics, "train_loss")).epsilon(1e-4));
      }
}

TEST_CASE("a run of several ranks gives the same bits each time") {
  const tune::Config config{
      {"batch_size", 4}, {"optimizer", "momentum"}, {"norm", true}, {"samples", 102}};
  CHECK(same_bits(train(3, config, 20).state, train(3, config, 20).state));
}

TEST_CASE("more ranks than samples: every sample counts once, and all ranks take the step") {
  for (const bool by_rank : {false, true}) {
    CAPTURE(by_rank);
    const Trained four = train(4, {{"batch_size", 8}, {"samples", 2}, {"by_rank", by_rank}}, 5);
    CHECK(number(four.metrics, "num_samples") == 10);
    if (by_rank) continue;  // zeros of the other two are half of DDP's mean
    const Trained one = train(1, {{"batch_size", 32}, {"samples", 2}}, 5);
    CHECK(torch::allclose(one.state, four.state, 1e-5, 1e-6));
    CHECK(number(one.metrics, "train_loss") == doctest::Approx(number(four.metrics, "train_loss")));
  }
}

TEST_CASE("a batch that stands in for none leaves batch norm's statistics alone") {
  // Rank 0 has no sample in the second step, and its statistics are everybody's.
  class Standing final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override {
      net = Plain(true);
      register_components({.model = net,
                           .optimizer = torch::optim::SGD(net->parameters(), 0.1),
                           .criterion = torch::nn::CrossEntropyLoss()});
      register_data(points(rank() == 0 ? 4 : 8, {.batch_size = 4, .shard = false}));
    }
    tune::Metrics train_batch(const Batch& batch, const BatchInfo& info) override {
      before = net->named_buffers()["layers.1.running_mean"].clone();
      sizes.push_back(batch.target.size(0));
      return TrainingOperator::train_batch(batch, info);
    }
    Plain net{nullptr};
    torch::Tensor before = {};
    std::vector<std::int64_t> sizes = {};
  };
  on_ranks<Standing>(2, {}, [](OperatorRank<Standing>& rank) {
    const auto metrics = rank.train();
    CHECK(number(metrics, "num_samples") == (rank.rank() == 0 ? 4 : 8));
    CHECK(rank.op.sizes == std::vector<std::int64_t>{4, rank.rank() == 0 ? 2 : 4});
    CHECK(same_bits(rank.op.before, rank.op.net->named_buffers()["layers.1.running_mean"]));
  });
}

TEST_CASE("after each step all ranks have the same batch norm statistics, and validate alike") {
  const tune::Config config{{"batch_size", 4}, {"norm", true}};
  std::mutex mutex;
  std::vector<tune::Metrics> losses;
  on_ranks<PlainOperator>(3, {.config = config, .seed = 5}, [&](OperatorRank<PlainOperator>& rank) {
    rank.train(3);
    const auto all = rank.op.all_gather(flat(*rank.op.net));
    CHECK(same_bits(all[0], all[1]));
    CHECK(same_bits(all[0], all[2]));
    // Each alone, over the same data.
    rank.op.net->eval();
    const torch::NoGradGuard no_grad;
    const auto batch = points(23, {}).dataset.batch(torch::arange(23));
    const auto loss =
        torch::nn::functional::cross_entropy(rank.op.net->forward(batch.features[0]), batch.target);
    const std::lock_guard lock(mutex);
    losses.push_back({{"val_loss", loss.item<double>()}});
  });
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0] == losses[2]);
}

TEST_CASE("without broadcast_buffers each rank keeps its own statistics") {
  on_ranks<PlainOperator>(
      2, {.config = {{"batch_size", 4}, {"norm", true}, {"broadcast_buffers", false}}, .seed = 5},
      [](OperatorRank<PlainOperator>& rank) {
        rank.train(3);
        const auto means =
            rank.op.all_gather(rank.op.net->named_buffers()["layers.1.running_mean"]);
        CHECK(!same_bits(means[0], means[1]));
      });
}

TEST_CASE("validation counts every sample once, on any number of ranks") {
  /// Right for all samples but the one with value 0.
  class Five final : public TrainingOperator {
   public:
    void setup(const tune::Config& config) override {
      const std::int64_t n = config.get<std::int64_t>("n");
      const DataLoader data{
          AnyDataset({torch::arange(n).to(torch::kFloat).unsqueeze(1)}, torch::arange(n)),
          {.batch_size = 1}};
      register_data(data, data);
    }
    tune::Metrics validate_batch(const Batch& batch, const BatchInfo&) override {
      auto right = batch.target.ne(0).sum();
      all_reduce(torch::zeros({1}));  // every rank comes as often
      const auto count = batch.target.size(0);
      return {{"val_accuracy", right.item<double>() / double(count)}, {"num_samples", count}};
    }
  };
  for (const int n : {5, 2})
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(n);
      CAPTURE(ranks);
      std::mutex mutex;
      std::vector<tune::Metrics> all;
      on_ranks<Five>(ranks, {.config = {{"n", n}}}, [&](OperatorRank<Five>& rank) {
        const auto metrics = rank.validate();
        const std::lock_guard lock(mutex);
        all.push_back(metrics);
      });
      const tune::Metrics merged = sgd::internal::merge(all);
      CHECK(number(merged, "num_samples") == n);
      CHECK(number(merged, "val_accuracy") == doctest::Approx(1 - 1.0 / n));
    }
}

namespace {

/// One weight w = 2, the loss mean((w x)²), data of each rank's own.
class OwnData : public TrainingOperator {
 public:
  struct WeightImpl : torch::nn::Module {
    WeightImpl() { w = register_parameter("w", torch::full({1}, 2.0)); }
    torch::Tensor forward(const torch::Tensor& x) { return w * x; }
    torch::Tensor w;
  };
  TORCH_MODULE(Weight);

  void setup(const tune::Config& config) override {
    net = Weight();
    register_components(
        {.model = net,
         .optimizer = torch::optim::SGD(net->parameters(), config.get_or("lr", 0.0)),
         .criterion = [](const torch::Tensor& y,
                         const torch::Tensor&) { return y.square().mean(); },
         .ddp = {.average =
                     config.get_or("by_rank", false) ? Average::by_rank : Average::by_sample}});
    const auto x = torch::tensor(config.get<std::vector<double>>("rank" + std::to_string(rank())),
                                 torch::kFloat);
    register_data({AnyDataset({x}, x),
                   {.batch_size = config.get_or("batch_size", std::int64_t{1}),
                    .shuffle = false,
                    .shard = false}});
  }
  tune::Metrics train_batch(const Batch& batch, const BatchInfo&) override {
    const auto loss = criterion()(net->forward(batch.features[0]), batch.target);
    loss.backward();
    gradients.push_back(net->w.grad().item<double>());
    optimizer().step();
    optimizer().zero_grad();
    return {{"train_loss", loss.item<double>()}, {"num_samples", batch.target.size(0)}};
  }
  Weight net{nullptr};
  std::vector<double> gradients = {};
};

/// The gradients of all steps of an epoch, which are the same on all ranks.
std::vector<double> gradients(int ranks, tune::Config config) {
  std::mutex mutex;
  std::vector<std::vector<double>> all;
  on_ranks<OwnData>(ranks, {.config = std::move(config)}, [&](OperatorRank<OwnData>& rank) {
    rank.train();
    const std::lock_guard lock(mutex);
    all.push_back(rank.op.gradients);
  });
  for (const auto& own : all) CHECK(own == all[0]);
  return all[0];
}

}  // namespace

TEST_CASE("a train_batch that calls backward and step itself gets averaged gradients") {
  const tune::Config data{{"rank0", std::vector<double>{1, 2, 3}},
                          {"rank1", std::vector<double>{10}},
                          {"batch_size", 3}};
  tune::Config by_rank = data;
  by_rank.set("by_rank", true);
  // 2 w mean(x²): 4 · 114 / 4 of all samples; 4 · (14/3 + 100) / 2 by rank.
  CHECK(gradients(2, data)[0] == doctest::Approx(114));
  CHECK(gradients(2, by_rank)[0] == doctest::Approx(209.333));
}

TEST_CASE("ranks with fewer batches take part until the last rank's end, and count for nothing") {
  const tune::Config data{{"rank0", std::vector<double>{1, 1, 1}},
                          {"rank1", std::vector<double>{2, 2, 2, 2, 2}}};
  tune::Config by_rank = data;
  by_rank.set("by_rank", true);
  // 4 x² of one sample each: 4 and 16, whose mean is 10; then 16 alone.
  CHECK(gradients(2, data) == std::vector<double>{10, 10, 10, 16, 16});
  CHECK(gradients(2, by_rank) == std::vector<double>{10, 10, 10, 8, 8});
}

TEST_CASE("uneven ranks: each sample is counted once, and the models are the same bits") {
  std::mutex mutex;
  std::vector<tune::Metrics> all;
  std::vector<torch::Tensor> models;
  const tune::Config config{{"rank0", std::vector<double>{1, 1, 1}},
                            {"rank1", std::vector<double>{2, 2, 2, 2, 2}},
                            {"rank2", std::vector<double>{3}},
                            {"lr", 0.01}};
  on_ranks<OwnData>(3, {.config = config}, [&](OperatorRank<OwnData>& rank) {
    rank.train();
    const auto metrics = rank.train();
    const std::lock_guard lock(mutex);
    all.push_back(metrics);
    models.push_back(flat(*rank.op.net));
  });
  CHECK(number(sgd::internal::merge(all), "num_samples") == 9);
  CHECK(number(sgd::internal::merge(all), "epoch") == 2);
  CHECK(same_bits(models[0], models[1]));
  CHECK(same_bits(models[0], models[2]));
}

TEST_CASE("data that don't fit together are refused on all ranks with the same sentence") {
  class Sizes final : public TrainingOperator {
   public:
    void setup(const tune::Config& config) override {
      register_data(points(rank() == 1 ? config.get<std::int64_t>("odd") : 40,
                           {.batch_size = 4, .shard = config.get<bool>("shard")}));
    }
  };
  const auto errors = [](std::int64_t odd, bool shard) {
    return test::errors_of_ranks<Sizes>(3, {.config = {{"odd", odd}, {"shard", shard}}},
                                        [](OperatorRank<Sizes>&) {});
  };
  for (const auto& error : errors(39, true))
    CHECK(contains(error,
                   "training data: rank 0 has 40 samples in 4 steps, rank 1 has 39 samples in 4 "
                   "steps"));
  for (const auto& error : errors(0, false))
    CHECK(contains(error, "training data: rank 1 has none"));
  for (const auto& error : errors(39, false)) CHECK(error == "");
}

namespace {

struct GeneratorNetImpl : torch::nn::Module {
  GeneratorNetImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8),
                                        torch::nn::ReLU(), torch::nn::Linear(8, 4)));
  }
  torch::Tensor forward(const torch::Tensor& noise) { return layers->forward(noise); }
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(GeneratorNet);

struct JudgeImpl : torch::nn::Module {
  JudgeImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                                        torch::nn::LeakyReLU(), torch::nn::Linear(8, 1)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Judge);

/// Two models, two optimizers, two forwards of the judge for one backward.
class GanOperator final : public TrainingOperator {
 public:
  void setup(const tune::Config&) override {
    maker = GeneratorNet();
    judge = Judge();
    register_components({.models = {{"generator", maker}, {"judge", judge}},
                         .optimizers = {torch::optim::Adam(maker->parameters(), 0.01),
                                        torch::optim::Adam(judge->parameters(), 0.01)},
                         .criterion = torch::nn::BCEWithLogitsLoss()});
    register_data(points(44, {.batch_size = 6}));
  }

  tune::Metrics train_epoch() override {
    auto batches = train_batches();
    for (const auto& batch : batches) {
      const auto& real = batch.features[0];
      const auto ones = torch::ones({real.size(0), 1}), zeros = torch::zeros({real.size(0), 1});
      const auto fake = maker->forward(torch::randn({real.size(0), 3}));
      optimizer(1).zero_grad();
      const auto loss_judge = criterion()(judge->forward(real), ones) +
                              criterion()(judge->forward(fake.detach()), zeros);
      backward(loss_judge);
      step(optimizer(1));
      const auto loss_maker = criterion()(judge->forward(fake), ones);
      backward(loss_maker);
      step(optimizer(0));
      add_metrics({{"loss_judge", loss_judge.item<double>()},
                   {"loss_generator", loss_maker.item<double>()},
                   {"num_samples", real.size(0)}});
    }
    return {{"done", true}};
  }
  GeneratorNet maker{nullptr};
  Judge judge{nullptr};
};

}  // namespace

TEST_CASE("an operator with two models, two optimizers and batch norm inside trains over ranks") {
  for (const int ranks : {1, 2, 3}) {
    std::mutex mutex;
    std::vector<tune::Metrics> all;
    on_ranks<GanOperator>(ranks, {.seed = 3}, [&](OperatorRank<GanOperator>& rank) {
      rank.train();
      const auto metrics = rank.train();
      for (torch::nn::Module* net : std::initializer_list<torch::nn::Module*>{
               rank.op.maker.ptr().get(), rank.op.judge.ptr().get()}) {
        const auto state = rank.op.all_gather(flat(*net));
        for (int other = 1; other < ranks; ++other) CHECK(same_bits(state[0], state[other]));
      }
      const std::lock_guard lock(mutex);
      all.push_back(metrics);
    });
    const auto merged = sgd::internal::merge(all);
    CHECK(number(merged, "num_samples") == 44);
    CHECK(std::isfinite(number(merged, "loss_judge")));
    CHECK(merged.find("last_loss_generator") != nullptr);
    CHECK(merged.find("done")->as_bool());
  }
}

TEST_CASE("no_sync piles gradients up, and the next backward averages the pile") {
  class Piles final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override {
      net = OwnData::Weight();
      register_components({.model = net, .optimizer = torch::optim::SGD(net->parameters(), 0)});
    }
    tune::Metrics train_epoch() override {
      const auto x = torch::full({1}, rank() + 1.0);
      {
        const auto alone = no_sync();
        backward(net->forward(x).sum());
        CHECK(net->w.grad().item<double>() == rank() + 1);
      }
      backward(net->forward(x).sum());
      return {{"gradient", net->w.grad().item<double>()}};
    }
    OwnData::Weight net{nullptr};
  };
  on_ranks<Piles>(2, {}, [](OperatorRank<Piles>& rank) {
    CHECK(number(rank.train(), "gradient") == 3);  // mean of 2 and 4
  });
}

TEST_CASE("the user's collectives reach all ranks, and one rank alone") {
  class Nothing final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override {}
  };
  for (const int ranks : {1, 3})
    on_ranks<Nothing>(ranks, {}, [&](OperatorRank<Nothing>& rank) {
      const double own = rank.rank() + 1;
      auto sum = torch::full({2}, own), mean = sum.clone(), least = sum.clone(), most = sum.clone(),
           first = sum.clone();
      rank.op.all_reduce(sum);
      rank.op.all_reduce(mean, ReduceOp::average);
      rank.op.all_reduce(least, ReduceOp::min);
      rank.op.all_reduce(most, ReduceOp::max);
      rank.op.broadcast(first, ranks - 1);
      rank.op.barrier();
      CHECK(sum[0].item<double>() == ranks * (ranks + 1) / 2);
      CHECK(mean[0].item<double>() == (ranks + 1) / 2.0);
      CHECK(least[1].item<double>() == 1);
      CHECK(most[1].item<double>() == ranks);
      CHECK(first[0].item<double>() == ranks);
      const auto all = rank.op.all_gather(torch::full({2}, own));
      CHECK(all.sizes() == torch::IntArrayRef({ranks, 2}));
      CHECK(all[ranks - 1][0].item<double>() == ranks);
      CHECK_THROWS_AS(rank.op.broadcast(first, ranks), Exception);
    });
}

TEST_CASE("what one rank throws ends the step on the others at once") {
  class Throws final : public PlainOperator {
   public:
    tune::Metrics train_batch(const Batch& batch, const BatchInfo& info) override {
      if (rank() == 1 && info.batch_index == 2) throw std::runtime_error("bad batch");
      return PlainOperator::train_batch(batch, info);
    }
  };
  const auto errors = test::errors_of_ranks<Throws>(
      3, {.config = {{"batch_size", 4}}}, [](OperatorRank<Throws>& rank) { rank.train(); });
  for (const auto& error : errors) CHECK(contains(error, "bad batch"));
}

TEST_CASE("an overflow on one rank skips the step on all, with the same scale afterwards") {
  class Overflow final : public OwnData {
   public:
    void setup(const tune::Config&) override {
      net = Weight();
      register_components(
          {.model = net,
           .optimizer = torch::optim::SGD(net->parameters(), 0.1),
           .criterion = [](const torch::Tensor& y, const torch::Tensor&) { return y.sum(); },
           .amp = {.init_scale = 1024, .scale_loss = true}});
      const auto x = torch::tensor({1.0F, rank() == 1 ? 0x1p127F : 1.0F, 1.0F});
      register_data({AnyDataset({x}, x), {.batch_size = 1, .shuffle = false, .shard = false}});
    }
    tune::Metrics train_batch(const Batch& batch, const BatchInfo& info) override {
      const auto metrics = TrainingOperator::train_batch(batch, info);
      weights.push_back(net->w.item<double>());
      return metrics;
    }
    std::vector<double> weights = {};
  };
  on_ranks<Overflow>(2, {}, [](OperatorRank<Overflow>& rank) {
    rank.train();
    REQUIRE(rank.op.weights.size() == 3);
    CHECK(rank.op.weights[0] == doctest::Approx(1.9));
    CHECK(rank.op.weights[1] == rank.op.weights[0]);
    CHECK(rank.op.weights[2] == doctest::Approx(1.8));
  });
}

TEST_CASE("the profile has the exchange, and the part of it that was hidden") {
  on_ranks<PlainOperator>(2, {.config = {{"batch_size", 8}}},
                          [](OperatorRank<PlainOperator>& rank) {
                            const auto metrics = rank.driver->train({.profile = true});
                            CHECK(number(metrics, "profile/mean_exchange_s") > 0);
                            CHECK(number(metrics, "profile/exchange_hidden_fraction") >= 0);
                            CHECK(number(metrics, "profile/exchange_hidden_fraction") <= 1);
                            CHECK(number(metrics, "profile/mean_grad_s") > 0);
                          });
}
