#include "sgd/internal/operator_state.hpp"

#include "tests/support/operator_ranks.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/torch.h>

// A run that goes on from a saved state gives the same bits as an undisturbed one.

using namespace troupe;
using namespace troupe::sgd;
using sgd::internal::RankEnvironment;
using test::on_ranks;
using test::OperatorRank;
using test::points;
using test::TempFolder;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16),
                                        torch::nn::Dropout(0.3), torch::nn::Linear(16, 3)));
    spare = register_module("spare", torch::nn::Linear(3, 3));
  }
  /// `spare` takes part now and then: an optimizer moves what has a zero gradient.
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = layers->forward(x);
    return x[0][0].item<double>() > 0 ? y + spare->forward(y) : y;
  }
  torch::nn::Sequential layers{nullptr};
  torch::nn::Linear spare{nullptr};
};
TORCH_MODULE(Net);

class NetOperator final : public TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    net = Net();
    const bool adam = config.get<bool>("adam");
    AnyOptimizer optimizer = torch::optim::Adam(
        net->parameters(), torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(true));
    if (!adam)
      optimizer = torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    register_components(
        {.model = net,
         .optimizer = optimizer,
         .criterion = torch::nn::CrossEntropyLoss(),
         .scheduler = adam ? OneCycleLR({.max_lr = 0.05, .total_steps = 100})
                           : StepLR({.step_size = 1, .gamma = 0.5}),
         .scheduler_step = adam ? SchedulerStep::batch : SchedulerStep::epoch,
         .accumulate = config.get<std::int64_t>("accumulate"),
         .ddp = {.find_unused_parameters = true,
                 .broadcast_buffers = config.get<bool>("broadcast_buffers")},
         .amp = {.init_scale = 0x1p100, .growth_interval = 3, .scale_loss = !adam}});
    register_data(points(54, {.batch_size = 4}), points(11, {.batch_size = 4}));
  }
  tune::Metrics train_batch(const Batch& batch, const BatchInfo& info) override {
    auto metrics = TrainingOperator::train_batch(batch, info);
    ++seen;
    metrics.set("seen", seen);
    metrics.set("word", std::to_string(seen));
    return metrics;
  }
  void state_dict(CheckpointWriter& out) override { out.integer("seen", seen); }
  void load_state_dict(const CheckpointReader& in) override { seen = in.integer("seen"); }

  Net net{nullptr};
  std::int64_t seen = 0;
};

/// What a rank does: three calls of train, the second of which begins within an epoch.
struct Told {
  std::vector<tune::Metrics> metrics = {};
  std::vector<std::string> state = {};
};

constexpr std::int64_t kCalls[] = {9, 16, 0};

std::string rank_folder(const TempFolder& folder, std::string_view name, int rank) {
  return (folder / (std::string(name) + std::to_string(rank))).string();
}

/// save_after: this many times between two steps, in the call `save_in`, the state goes to "saved".
std::vector<Told> undisturbed(int ranks, const tune::Config& config, const TempFolder& folder,
                              int save_in, int save_after) {
  std::vector<Told> told(static_cast<std::size_t>(ranks));
  std::vector<std::function<void()>> step_done(static_cast<std::size_t>(ranks));
  RankEnvironment env{.config = config, .seed = 11};
  static thread_local std::function<void()> on_step;
  env.step_done = [] {
    if (on_step) on_step();
  };
  on_ranks<NetOperator>(ranks, env, [&](OperatorRank<NetOperator>& rank) {
    Told& own = told[static_cast<std::size_t>(rank.rank())];
    int call = 0, steps = 0;
    on_step = [&] {
      if (call == save_in && ++steps == save_after)
        save_rank(rank, rank_folder(folder, "saved", rank.rank()));
    };
    for (const std::int64_t num_steps : kCalls) {
      if (call == save_in && save_after == 0)
        save_rank(rank, rank_folder(folder, "saved", rank.rank()));
      own.metrics.push_back(rank.train(num_steps));
      own.metrics.push_back(rank.validate(call == 0 ? 1 : 0));
      ++call;
    }
    on_step = {};
    save_rank(rank, rank_folder(folder, "end", rank.rank()));
    own.state = test::sums(rank_folder(folder, "end", rank.rank()));
  });
  return told;
}

std::vector<Told> continued(int ranks, const tune::Config& config, const TempFolder& folder,
                            int from_call) {
  std::vector<Told> told(static_cast<std::size_t>(ranks));
  on_ranks<NetOperator>(ranks, {.config = config, .seed = 11},
                        [&](OperatorRank<NetOperator>& rank) {
                          Told& own = told[static_cast<std::size_t>(rank.rank())];
                          load_rank(rank, rank_folder(folder, "saved", rank.rank()));
                          for (int call = from_call; call < 3; ++call) {
                            own.metrics.push_back(rank.train(kCalls[call]));
                            own.metrics.push_back(rank.validate(call == 0 ? 1 : 0));
                          }
                          save_rank(rank, rank_folder(folder, "again", rank.rank()));
                          own.state = test::sums(rank_folder(folder, "again", rank.rank()));
                        });
  return told;
}

void check_continued(int ranks, const tune::Config& config, int save_in, int save_after) {
  CAPTURE(ranks);
  CAPTURE(config.to_json());
  CAPTURE(save_in);
  CAPTURE(save_after);
  const TempFolder folder;
  const auto whole = undisturbed(ranks, config, folder, save_in, save_after);
  const auto later = continued(ranks, config, folder, save_in);
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    CAPTURE(rank);
    REQUIRE(whole[rank].state.size() == later[rank].state.size());
    for (std::size_t i = 0; i < whole[rank].state.size(); ++i) {
      CHECK(whole[rank].state[i] == later[rank].state[i]);
    }
    const std::vector<tune::Metrics> rest(whole[rank].metrics.begin() + 2 * save_in,
                                          whole[rank].metrics.end());
    REQUIRE(rest.size() == later[rank].metrics.size());
    for (std::size_t i = 0; i < rest.size(); ++i)
      CHECK(rest[i].to_json() == later[rank].metrics[i].to_json());
  }
}

}  // namespace

TEST_CASE("a state saved between any two steps goes on with the same bits") {
  for (const bool adam : {true, false})
    for (const int accumulate : {1, 3})
      for (const int save_after : {1, 2, 3})
        check_continued(1,
                        {{"adam", adam}, {"accumulate", accumulate}, {"broadcast_buffers", true}},
                        save_after % 2, save_after);
  check_continued(1, {{"adam", true}, {"accumulate", 1}, {"broadcast_buffers", true}}, 1, 5);
}

TEST_CASE("a state saved between two calls goes on with the same bits") {
  for (const int call : {0, 1, 2})
    check_continued(1, {{"adam", call != 1}, {"accumulate", 2}, {"broadcast_buffers", true}}, call,
                    0);
}

TEST_CASE("the states of several ranks go on with the same bits") {
  for (const bool adam : {true, false})
    for (const bool broadcast : {true, false}) {
      const tune::Config config{
          {"adam", adam}, {"accumulate", 2}, {"broadcast_buffers", broadcast}};
      check_continued(2, config, 1, 2);
      check_continued(3, config, 2, 0);
    }
}

TEST_CASE("a rank without a state of its own begins with the shared one") {
  const TempFolder folder;
  const tune::Config config{{"adam", true}, {"accumulate", 1}, {"broadcast_buffers", true}};
  on_ranks<NetOperator>(2, {.config = config, .seed = 11}, [&](OperatorRank<NetOperator>& rank) {
    rank.train(3);
    save_rank(rank, rank_folder(folder, "saved", rank.rank()));
  });
  on_ranks<NetOperator>(
      3, {.config = config, .seed = 11, .global_batch = 8}, [&](OperatorRank<NetOperator>& rank) {
        CHECK(rank.driver->global_batch() == 8);
        rank.driver->load_shared(unwrap(CheckpointReader::open(rank_folder(folder, "saved", 0))));
        const auto metrics = rank.train();
        CHECK(*metrics.number("batch_count") == 4);  // of 7
        const auto all = rank.op.all_gather(test::flat(*rank.op.net));
        CHECK(test::same_bits(all[0], all[2]));
      });
}

TEST_CASE("with another global batch an epoch goes on at the last whole step before its place") {
  const TempFolder folder;
  const tune::Config config{{"adam", true}, {"accumulate", 1}, {"broadcast_buffers", true}};
  const auto save = [&](std::int64_t steps) {
    std::filesystem::remove_all(rank_folder(folder, "saved", 0));
    on_ranks<NetOperator>(1, {.config = config}, [&](OperatorRank<NetOperator>& rank) {
      rank.train(steps);
      save_rank(rank, rank_folder(folder, "saved", 0));
    });
  };
  const auto batches_left = [&](std::int64_t global_batch) {
    double count = 0;
    on_ranks<NetOperator>(1, {.config = config, .global_batch = global_batch},
                          [&](OperatorRank<NetOperator>& rank) {
                            load_rank(rank, rank_folder(folder, "saved", 0));
                            count = *rank.train().number("batch_count");
                          });
    return count;
  };
  save(5);                       // 20 of 54 samples
  CHECK(batches_left(10) == 4);  // 2 of 6 are done
  CHECK(batches_left(7) == 6);   // 2 of 8
  save(14);                      // all
  CHECK(batches_left(10) == 6);  // the next epoch's
}

TEST_CASE("a state of other parts is refused with the blob's name") {
  class Other final : public TrainingOperator {
   public:
    void setup(const tune::Config&) override {
      const torch::nn::Linear net(2, 2);
      register_components({.model = net, .optimizer = torch::optim::SGD(net->parameters(), 1)});
    }
  };
  const TempFolder folder;
  const tune::Config config{{"adam", true}, {"accumulate", 1}, {"broadcast_buffers", true}};
  on_ranks<NetOperator>(1, {.config = config}, [&](OperatorRank<NetOperator>& rank) {
    save_rank(rank, rank_folder(folder, "saved", 0));
  });
  const auto errors = test::errors_of_ranks<Other>(
      1, {}, [&](OperatorRank<Other>& rank) { load_rank(rank, rank_folder(folder, "saved", 0)); });
  CHECK(errors[0].find("module/model") != std::string::npos);
}
