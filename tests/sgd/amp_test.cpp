#include "sgd/amp.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

using namespace troupe;
using troupe::sgd::AmpOptions;
using troupe::sgd::internal::Autocast;
using troupe::sgd::internal::GradScaler;
using troupe::test::TempFolder;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A parameter with the gradient that is given, and an optimizer for it.
struct Trained {
  torch::Tensor weight = torch::ones(3, torch::requires_grad());
  torch::optim::SGD optimizer{{weight}, 0.5};

  explicit Trained(const torch::Tensor& gradient) { weight.mutable_grad() = gradient; }
};

bool is_finite(GradScaler& scaler, const torch::Tensor& gradient) {
  Trained trained(gradient);
  return scaler.unscale(trained.optimizer);
}

/// What a training step does.
bool feed(GradScaler& scaler, float gradient) {
  const bool finite = is_finite(scaler, torch::full(3, gradient));
  scaler.update(finite);
  return finite;
}

CheckpointReader written(const TempFolder& folder, const GradScaler& scaler) {
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  scaler.save(*out, "scaler");
  unwrap(out->commit());
  return unwrap(CheckpointReader::open(folder / "c"));
}

}  // namespace

TEST_CASE("amp: inside autocast a linear layer computes in bfloat16, with gradients in float32") {
  torch::nn::Linear layer(4, 2);
  torch::Tensor output, loss;
  {
    const Autocast autocast(true, torch::kCPU);
    output = layer(torch::rand({3, 4}));
    loss = torch::mse_loss(output, torch::zeros({3, 2}));
  }
  CHECK(output.dtype() == torch::kBFloat16);
  CHECK(loss.dtype() == torch::kFloat32);
  loss.backward();
  CHECK(layer->weight.grad().dtype() == torch::kFloat32);
  CHECK(layer->weight.dtype() == torch::kFloat32);
  CHECK(layer(torch::rand({3, 4})).dtype() == torch::kFloat32);
}

TEST_CASE("amp: autocast that is not enabled changes nothing, nested neither") {
  torch::nn::Linear layer(4, 2);
  const auto type = [&] { return layer(torch::rand({3, 4})).dtype(); };
  {
    const Autocast off(false, torch::kCPU);
    CHECK(type() == torch::kFloat32);
    const Autocast on(true, torch::kCPU);
    CHECK(type() == torch::kBFloat16);
    {
      const Autocast again(true, torch::kCPU);
      const Autocast off_again(false, torch::kCPU);
      CHECK(type() == torch::kBFloat16);
    }
    CHECK(type() == torch::kBFloat16);
  }
  CHECK(type() == torch::kFloat32);
}

TEST_CASE("amp: autocast ends with an exception, and is its own thread's") {
  CHECK_THROWS_AS(
      [] {
        const Autocast autocast(true, torch::kCPU);
        throw std::runtime_error("in the middle");
      }(),
      std::runtime_error);
  CHECK_FALSE(at::autocast::is_cpu_enabled());
  const Autocast autocast(true, torch::kCPU);
  bool elsewhere = true;
  std::thread([&] { elsewhere = at::autocast::is_cpu_enabled(); }).join();
  CHECK_FALSE(elsewhere);
}

TEST_CASE("amp: after a step autocast computes with the new weights") {
  const auto weight = torch::ones({1, 1}, torch::requires_grad());
  const auto compute = [&] {
    const Autocast autocast(true, torch::kCPU);
    return torch::mm(torch::ones({1, 1}), weight).item<float>();
  };
  CHECK(compute() == 1);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2);
  }
  CHECK(compute() == 2);
}

TEST_CASE("amp: gradients are divided by the scale that the loss was multiplied by") {
  GradScaler scaler({.init_scale = 1024}, true);
  Trained trained(torch::Tensor{});
  scaler.scaled((trained.weight * torch::tensor({1.0F, 2.0F, 3.0F})).sum()).backward();
  CHECK(trained.weight.grad().equal(torch::tensor({1024.0F, 2048.0F, 3072.0F})));
  CHECK(scaler.unscale(trained.optimizer));
  CHECK(trained.weight.grad().equal(torch::tensor({1.0F, 2.0F, 3.0F})));
}

TEST_CASE("amp: a gradient that is not finite anywhere says that the step must be skipped") {
  GradScaler scaler({}, true);
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
    CHECK_FALSE(is_finite(scaler, torch::tensor({1.0F, bad, 2.0F})));
  CHECK_FALSE(is_finite(scaler, torch::tensor({1.0F, 6e4F, 2.0F}).to(torch::kFloat16) * 2));
  CHECK(is_finite(scaler, torch::tensor({1.0F, 3e38F, 2.0F})));
  CHECK(is_finite(scaler, torch::Tensor{}));
}

TEST_CASE("amp: a sparse gradient is summed up before it is looked at") {
  const auto sparse = [](float value) {
    return torch::sparse_coo_tensor(torch::tensor({{1, 1}}), torch::tensor({value, value}), {3});
  };
  GradScaler scaler({.init_scale = 4}, true);
  Trained trained(sparse(8));
  CHECK(scaler.unscale(trained.optimizer));
  CHECK(trained.weight.grad().to_dense().equal(torch::tensor({0.0F, 4.0F, 0.0F})));
  CHECK_FALSE(is_finite(scaler, sparse(3e38F)));
}

TEST_CASE("amp: the scale falls after an overflow and rises after a row of good steps") {
  GradScaler scaler({.init_scale = 64, .growth_interval = 3}, true);
  CHECK_FALSE(feed(scaler, kInfinity));
  CHECK(scaler.scale() == 32);
  CHECK(scaler.skipped() == 1);
  CHECK(feed(scaler, 1));
  CHECK(feed(scaler, 1));
  CHECK_FALSE(feed(scaler, kInfinity));  // the row begins again
  CHECK(scaler.scale() == 16);
  for (int step = 0; step < 3; ++step) feed(scaler, 1);
  CHECK(scaler.scale() == 32);
  for (int step = 0; step < 3; ++step) feed(scaler, 1);
  CHECK(scaler.scale() == 64);
  CHECK(scaler.skipped() == 2);
}

TEST_CASE("amp: the scale never grows out of float32") {
  GradScaler scaler({.init_scale = 2e38, .growth_interval = 1}, true);
  feed(scaler, 1);
  CHECK(scaler.scale() == 2e38);
}

TEST_CASE("amp: a scaler begins as PyTorch's does") {
  const GradScaler scaler({}, true);
  CHECK(scaler.scale() == 65536);
  CHECK(AmpOptions().growth_factor == 2);
  CHECK(AmpOptions().backoff_factor == 0.5);
  CHECK(AmpOptions().growth_interval == 2000);
}

TEST_CASE("amp: a scaler that is not enabled changes no bit and skips nothing") {
  GradScaler scaler({}, false);
  Trained trained(torch::tensor({1.0F, kInfinity, 2.0F}));
  CHECK(scaler.unscale(trained.optimizer));
  CHECK(trained.weight.grad().equal(torch::tensor({1.0F, kInfinity, 2.0F})));
  const auto loss = torch::tensor(3.0F);
  CHECK(scaler.scaled(loss).is_same(loss));
  scaler.update(false);
  CHECK(scaler.scale() == 1);
  CHECK(scaler.skipped() == 0);
}

TEST_CASE("amp: saved and loaded, a scaler goes on where it was") {
  const AmpOptions options{.init_scale = 64, .growth_interval = 3};
  GradScaler scaler(options, true);
  feed(scaler, kInfinity);
  feed(scaler, 1);
  feed(scaler, 1);
  const TempFolder folder;
  GradScaler other(options, true);
  other.load(written(folder, scaler), "scaler");
  CHECK(other.scale() == 32);
  CHECK(other.skipped() == 1);
  feed(other, 1);
  CHECK(other.scale() == 64);
}

TEST_CASE("amp: a state with scaling is taken by a run without, and the other way round") {
  const TempFolder on_folder, off_folder;
  GradScaler on({.init_scale = 64}, true), off({}, false);
  off.load(written(on_folder, on), "scaler");
  CHECK(off.scale() == 1);
  on.load(written(off_folder, off), "scaler");
  CHECK(on.scale() == 64);
}

TEST_CASE("amp: options that make no sense are refused with the value") {
  CHECK_THROWS_WITH_AS(GradScaler({.init_scale = 0}, true),
                       "bad request: amp: init_scale is 0; it must be above 0", Exception);
  CHECK_THROWS_AS(GradScaler({.growth_factor = 1}, true), Exception);
  CHECK_THROWS_AS(GradScaler({.backoff_factor = 1.5}, true), Exception);
  CHECK_THROWS_AS(GradScaler({.growth_interval = 0}, true), Exception);
}

TEST_CASE("amp: O3 halves parameters and buffers, leaves integers, and keeps ties") {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  const auto weight = net[0]->as<torch::nn::Linear>()->weight;
  sgd::internal::to_half(*net, torch::kCPU);
  for (const auto& parameter : net->parameters()) CHECK(parameter.dtype() == torch::kBFloat16);
  CHECK(weight.dtype() == torch::kBFloat16);
  CHECK(weight.requires_grad());
  const auto& norm = *net[1]->as<torch::nn::BatchNorm1d>();
  CHECK(norm.running_mean.dtype() == torch::kBFloat16);
  CHECK(norm.num_batches_tracked.dtype() == torch::kInt64);
  CHECK(net->forward(torch::rand({3, 2}, torch::kBFloat16)).dtype() == torch::kBFloat16);
}
