// tidy: test-mirror: gradient_buckets beside another program
// Ours beside PyTorch's DistributedDataParallel over Gloo: losses of each rank and step, and what
// rank 0 has at the end. tests/sgd/ddp_test.py trains the other side, and knows the same models,
// parameters and batches; without it a recorded run serves.

#include "tests/support/gradients.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>

#include <nlohmann/json.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kSteps = 12;
constexpr double kTolerance = 1e-5;  // absolute, of values around 1; three averages in float32

/// Multiples of 1/1024 from -1 on, below 1.
torch::Tensor numbers(std::uint32_t start, torch::IntArrayRef shape) {
  const auto flat = torch::empty(shape).flatten();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U + start * 40503U;
    x = (x ^ (x >> 16)) * 0x45d9f3bU;
    flat.data_ptr<float>()[i] = static_cast<float>((x ^ (x >> 16)) % 2048) / 1024 - 1;
  }
  return flat.view(shape);
}

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool with_extra) {
    const auto out = last(torch::tanh(norm(first(x))));
    return with_extra ? out + extra(x) : out;
  }
  Linear first = register_module("first", Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  Linear last = register_module("last", Linear(8, 2));
  Linear extra = register_module("extra", Linear(6, 2));
};

struct Scenario {
  std::string name = {};
  std::vector<std::int64_t> sizes = {4, 4};
  bool adam = false;
  int passes = 1;
  bool unused = false;
};

struct Trained {
  std::vector<double> losses = {};
  torch::Tensor state = {};
};

Trained train(const Scenario& scenario, Collectives& collectives) {
  const auto rank = static_cast<std::uint32_t>(collectives.rank());
  Net net;
  for (std::uint32_t i = 0; i < net.parameters().size(); ++i) {
    const torch::NoGradGuard no_grad;
    net.parameters()[i].copy_(numbers(i + 1, net.parameters()[i].sizes()) / 2);
  }
  GradientBuckets buckets("net", net, collectives,
                          {.average = Average::by_rank, .find_unused_parameters = scenario.unused});
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (scenario.adam)
    optimizer = std::make_unique<torch::optim::Adam>(net.parameters(), 0.01);
  else
    optimizer = std::make_unique<torch::optim::SGD>(net.parameters(),
                                                    torch::optim::SGDOptions(0.05).momentum(0.9));
  const std::int64_t size = scenario.sizes[rank];
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (int i = 0; i < scenario.passes; ++i) {
      const auto start =
          1000 + 4 * static_cast<std::uint32_t>(step * scenario.passes + i) + 2 * rank;
      const bool with_extra = !scenario.unused || (rank == 1 && step % 2 == 0);
      buckets.set_sync(i + 1 == scenario.passes);
      const auto output = net.forward(numbers(start, {size, 6}), with_extra);
      const auto loss = torch::mse_loss(output, numbers(start + 1, {size, 2}));
      (loss / scenario.passes).backward();
      trained.losses.push_back(loss.item<double>());
    }
    optimizer->step();
    buckets.broadcast_buffers();
  }
  Tensors state = values(net);
  state.push_back(net.norm->running_mean);
  state.push_back(net.norm->running_var);
  for (auto& tensor : state) tensor = tensor.flatten();
  trained.state = torch::cat(state);
  return trained;
}

nlohmann::json reference() {
  const char* fresh = std::getenv("TROUPE_DDP_REFERENCE");
  std::ifstream file(fresh != nullptr ? fresh : TROUPE_GOLDEN_DIR "/ddp-reference.json");
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("ddp: losses and parameters are those of PyTorch's DistributedDataParallel") {
  const auto expected = reference();
  const std::vector<Scenario> scenarios{{.name = "equal batches"},
                                        {.name = "Adam", .adam = true},
                                        {.name = "unequal batches", .sizes = {5, 3}},
                                        {.name = "accumulation", .passes = 2},
                                        {.name = "unused parameters", .unused = true}};
  REQUIRE(expected[0].size() == scenarios.size());
  for (const auto& scenario : scenarios) {
    CAPTURE(scenario.name);
    const auto ranks =
        on_ranks(2, [&](Collectives& collectives) { return train(scenario, collectives); });
    CHECK(ranks[0].state.equal(ranks[1].state));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto losses = expected[rank][scenario.name]["losses"].get<std::vector<double>>();
      CHECK(distance(ranks[rank].losses, losses) < kTolerance);
    }
    const auto state = expected[0][scenario.name]["state"].get<std::vector<double>>();
    const auto* own = ranks[0].state.data_ptr<float>();
    const double apart = distance({own, own + ranks[0].state.numel()}, state);
    CHECK(apart < kTolerance);
    MESSAGE(scenario.name, ": parameters differ by ", apart);
  }
}
