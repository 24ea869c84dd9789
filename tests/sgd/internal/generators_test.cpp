#include "sgd/internal/generators.hpp"

#include "libactor/result.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <torch/torch.h>

using namespace troupe;
using sgd::internal::mix_seed;
using sgd::internal::RankGenerator;

namespace {

using Draw = std::function<torch::Tensor()>;

torch::Tensor all_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : module.parameters()) flat.push_back(parameter.detach().flatten());
  return torch::cat(flat);
}

/// A step of training with dropout: noise in forward, its masks in backward.
torch::Tensor gradient_with_dropout() {
  torch::nn::Sequential net(torch::nn::Linear(20, 50), torch::nn::Dropout(0.5),
                            torch::nn::Linear(50, 5));
  net->forward(torch::randn({8, 20})).pow(2).mean().backward();
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad().flatten());
  return torch::cat(gradients);
}

/// Draws its noise in backward.
struct NoisyBackward : torch::autograd::Function<NoisyBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] + torch::randn_like(gradients[0])};
  }
};

const std::map<std::string, Draw>& draws() {
  static const std::map<std::string, Draw> all{
      {"rand", [] { return torch::rand({100}); }},
      {"rand_like", [] { return torch::rand_like(torch::empty({100})); }},
      {"randint", [] { return torch::randint(1000, {100}); }},
      {"normal", [] { return torch::normal(0.0, 1.0, {100}); }},
      {"randperm", [] { return torch::randperm(100); }},
      {"randperm into a tensor",
       [] {
         auto out = torch::empty({100}, torch::kLong);
         torch::randperm_out(out, 100);
         return out;
       }},
      {"multinomial", [] { return torch::multinomial(torch::ones({100}), 50); }},
      {"bernoulli in place", [] { return torch::empty({100}).bernoulli_(0.5); }},
      {"dropout", [] { return torch::dropout(torch::ones({200}), 0.5, true); }},
      {"feature dropout",
       [] {
         return torch::nn::Dropout2d(0.5)->forward(torch::ones({8, 8, 2, 2}));
       }},
      {"rrelu", [] { return torch::nn::RReLU()->forward(-torch::ones({100})); }},
      {"initialisation of modules", [] { return all_parameters(*torch::nn::Conv2d(3, 8, 3)); }},
      {"initialisation of embeddings",
       [] { return all_parameters(*torch::nn::Embedding(10, 10)); }},
      {"dropout of an LSTM",
       [] {
         torch::nn::LSTM lstm(torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.5));
         return std::get<0>(lstm->forward(torch::randn({5, 3, 8})));
       }},
      {"sampler",
       [] {
         torch::data::samplers::RandomSampler sampler(50);
         std::vector<std::int64_t> order;
         const auto drawn = sampler.next(50);
         for (const auto i : *drawn) order.push_back(static_cast<std::int64_t>(i));
         return torch::tensor(order);
       }},
      {"backward through dropout", gradient_with_dropout},
      {"noise drawn in backward",
       [] {
         auto x = torch::ones({100}, torch::requires_grad());
         NoisyBackward::apply(x).sum().backward();
         return x.grad();
       }},
  };
  return all;
}

/// Five draws with a generator of this seed.
std::vector<torch::Tensor> with_seed(std::uint64_t seed, const Draw& draw) {
  RankGenerator generator(seed, torch::kCPU);
  const auto use = generator.use();
  std::vector<torch::Tensor> drawn;
  for (int i = 0; i < 5; ++i) drawn.push_back(draw());
  return drawn;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("generators: a rank's numbers are the same beside others as alone, 20 times of 20") {
  for (const auto& [what, draw] : draws()) {
    CAPTURE(what);
    std::vector<std::vector<torch::Tensor>> alone;
    for (std::uint64_t rank = 0; rank < 4; ++rank) alone.push_back(with_seed(rank, draw));
    CHECK_FALSE(equal(alone[0], alone[1]));
    int same = 0;
    for (int run = 0; run < 20; ++run) {
      const std::size_t count = 2 + static_cast<std::size_t>(run) % 3;
      std::vector<std::vector<torch::Tensor>> together(count);
      std::vector<std::thread> threads;
      for (std::size_t rank = 0; rank < count; ++rank)
        threads.emplace_back([&, rank] { together[rank] = with_seed(rank, draw); });
      for (auto& thread : threads) thread.join();
      bool all = true;
      for (std::size_t rank = 0; rank < count; ++rank)
        all = all && equal(together[rank], alone[rank]);
      same += all ? 1 : 0;
    }
    CHECK(same == 20);
  }
}

TEST_CASE("generators: the same numbers as LibTorch's default generator with that seed") {
  const auto ours = with_seed(42, [] { return torch::randn({33}); });
  torch::manual_seed(42);
  for (const auto& drawn : ours) CHECK(torch::randn({33}).equal(drawn));
}

TEST_CASE("generators: a restored state repeats the numbers") {
  RankGenerator generator(7, torch::kCPU);
  const auto use = generator.use();
  torch::randn({3});  // an odd count: half of a pair is kept for the next call
  torch::randn({1});
  const torch::Tensor state = generator.state();
  const auto first = torch::cat({torch::randn({5}), torch::rand({5})});
  generator.set_state(state);
  CHECK(torch::cat({torch::randn({5}), torch::rand({5})}).equal(first));

  RankGenerator other(8, torch::kCPU);
  other.set_state(state);
  const auto use_other = other.use();
  CHECK(torch::cat({torch::randn({5}), torch::rand({5})}).equal(first));
}

TEST_CASE("generators: a state of another size is refused") {
  RankGenerator generator(7, torch::kCPU);
  CHECK_THROWS_WITH_AS(generator.set_state(torch::zeros({16}, torch::kUInt8)),
                       doctest::Contains("must be 5056 bytes"), Exception);
}

TEST_CASE("generators: the default generator is untouched, within and without") {
  torch::manual_seed(3);
  const auto expected = torch::rand({10});
  torch::manual_seed(3);
  with_seed(9, [] { return torch::rand({10}); });
  CHECK(torch::rand({10}).equal(expected));
}

TEST_CASE("generators: one that the user passes is used") {
  auto mine = at::detail::createCPUGenerator(5);
  const auto expected = torch::rand({10}, mine);
  RankGenerator generator(6, torch::kCPU);
  const torch::Tensor before = generator.state();
  const auto use = generator.use();
  mine.set_current_seed(5);
  CHECK(torch::rand({10}, mine).equal(expected));
  CHECK(generator.state().equal(before));
}

TEST_CASE("generators: after an inner one the outer one goes on") {
  const auto expected = with_seed(1, [] { return torch::rand({4}); });
  RankGenerator outer(1, torch::kCPU);
  RankGenerator inner(2, torch::kCPU);
  const auto use = outer.use();
  CHECK(torch::rand({4}).equal(expected[0]));
  {
    const auto use_inner = inner.use();
    CHECK_FALSE(torch::rand({4}).equal(expected[1]));
  }
  CHECK(torch::rand({4}).equal(expected[1]));
}

TEST_CASE("generators: seeds of other runs, ranks and epochs differ") {
  std::map<std::uint64_t, int> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::uint64_t rank = 0; rank < 10; ++rank)
      for (std::uint64_t epoch = 0; epoch < 10; ++epoch)
        ++seen[mix_seed(seed, rank, epoch) & 0xffffffff];  // what LibTorch's generator takes
  CHECK(seen.size() == 1000);
}
