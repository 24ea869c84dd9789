#include "sgd/components.hpp"

#include "libactor/result.hpp"
#include "sgd/internal/registration.hpp"

#include <doctest/doctest.h>

#include <string>

#include <torch/torch.h>

using namespace troupe;
using namespace troupe::sgd;

namespace {

struct TwoInputsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& a, torch::Tensor b) { return a - b; }
};
TORCH_MODULE(TwoInputs);

struct NoTensorImpl : torch::nn::Module {
  int forward(int x) { return x; }
};
TORCH_MODULE(NoTensor);

std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Exception& e) {
    return text_of(e.error());
  }
  return {};
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

/// What is refused about components that are otherwise right.
std::string refused(auto&& change) {
  const torch::nn::Linear net(2, 2);
  Components parts{.model = net,
                   .optimizer = torch::optim::SGD(net->parameters(), 0.1),
                   .criterion = torch::nn::MSELoss()};
  change(parts);
  return error_of(
      [&] { sgd::internal::modules_of(sgd::internal::normalised(parts, SchedulerStep::unset)); });
}

AnyLRScheduler step_lr() { return StepLR({.step_size = 1}); }

}  // namespace

TEST_CASE("a model is called with as many tensors as its forward takes") {
  const auto a = torch::tensor({3.0}), b = torch::tensor({1.0});
  const AnyModel two = TwoInputs();
  CHECK(two.arity() == 2);
  CHECK(two({a, b}).item<float>() == 2);
  const AnyModel one = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::ReLU());
  CHECK(one.arity() == 1);
  CHECK(one({torch::tensor({{-1.0, 2.0}})}).sum().item<float>() == 2);
}

TEST_CASE("a wrong number of features is told with the model's name and both numbers") {
  const auto x = torch::zeros({1});
  const AnyModel two = TwoInputs();
  CHECK(contains(error_of([&] { two({x}); }),
                 "TwoInputs::forward takes 2 tensors, the loader gives 1"));
  const AnyModel one = torch::nn::ReLU();
  CHECK(contains(error_of([&] { one({x, x}); }), "takes 1 tensor, the loader gives 2"));
  const AnyModel none = NoTensor();
  CHECK(none.arity() == 0);
  CHECK(contains(error_of([&] { none({x}); }), "override train_batch"));
}

TEST_CASE("a criterion is a module, which is kept, or a function") {
  const AnyCriterion module = torch::nn::BCEWithLogitsLoss(
      torch::nn::BCEWithLogitsLossOptions().pos_weight(torch::tensor({2.0})));
  CHECK(module.module() != nullptr);
  const AnyCriterion function = [](const torch::Tensor& output, const torch::Tensor& target) {
    return (output - target).abs().sum();
  };
  CHECK(function.module() == nullptr);
  CHECK(function(torch::tensor({3.0}), torch::tensor({1.0})).item<float>() == 2);
}

TEST_CASE("components that can't be right are refused with the way out") {
  CHECK(refused([](Components&) {}).empty());
  const torch::nn::Linear other(2, 2);
  CHECK(contains(refused([&](Components& c) {
                   c.models = {{"b", other}};
                 }),
                 "both model and models"));
  CHECK(contains(refused([](Components& c) { c.model = {}; }), "no model is given"));
  CHECK(contains(refused([&](Components& c) {
                   c.models = {{"a", std::exchange(c.model, {})}, {"a", other}};
                 }),
                 "two models are named 'a'"));
  CHECK(contains(refused([](Components& c) { c.optimizers = {c.optimizer}; }),
                 "both optimizer and optimizers"));
  CHECK(contains(refused([](Components& c) {
                   c.criteria = {AnyCriterion()};
                   c.criterion = {};
                 }),
                 "criteria[0] is empty"));
  CHECK(contains(refused([](Components& c) { c.scheduler = step_lr(); }), "scheduler_step"));
  CHECK(contains(refused([](Components& c) {
                   c.scheduler = step_lr();
                   c.optimizer = {};
                 }),
                 "1 LR schedulers, but 0 optimizers"));
  CHECK(contains(refused([](Components& c) { c.accumulate = 0; }), "accumulate is 0"));
  CHECK(contains(refused([](Components& c) { c.clip_grad_norm = -1; }), "clip_grad_norm"));
}

TEST_CASE("a parameter whose gradient would be averaged twice, or never, is refused") {
  const torch::nn::Linear other(3, 3);
  CHECK(contains(
      refused([&](Components& c) { c.optimizer = torch::optim::SGD(other->parameters(), 0.1); }),
      "of shape [3, 3] that is in none of the models"));
  CHECK(contains(refused([&](Components& c) {
                   const auto net = std::exchange(c.model, {});
                   c.models = {
                       {"a", net},
                       {"b", torch::nn::Sequential(torch::nn::AnyModule(
                                 std::dynamic_pointer_cast<torch::nn::LinearImpl>(net.ptr())))}};
                 }),
                 "parameter '0.weight' of 'b' belongs to 'a' too"));
}
