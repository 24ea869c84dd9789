#pragma once

// The net and the data that the MNIST examples share.

#include <libactor/preload.hpp>
#include <sgd/sgd.hpp>

#include <cstdint>
#include <functional>

#include <torch/torch.h>

namespace mnist {

/// [N, 1, 28, 28] in [0, 1] -> [N, 10] log-probabilities: eight 3 × 3 filters, pooling, 64, 10.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(1, 8, 3))),
        fc1(register_module("fc1", torch::nn::Linear(8 * 13 * 13, 64))),
        fc2(register_module("fc2", torch::nn::Linear(64, 10))) {}

  torch::Tensor forward(const torch::Tensor& images) {
    // Pooled first: relu then has a quarter of the work, and the result is the same.
    auto x = torch::relu(torch::max_pool2d(conv((images - 0.286) / 0.353), 2));
    return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
  }

  torch::nn::Conv2d conv;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

/// For `preloaded<&mnist::load>()`: read once a machine, before the first trial is forked.
inline troupe::sgd::Data load() {
  return troupe::unwrap(
      troupe::sgd::read_mnist(troupe::parameter("data_dir", troupe::sgd::kFashionMnistFolder)));
}

/// One pass over `epoch`; gives the mean loss. `after_batch` hears how many are done.
inline double train(Net& net, torch::optim::Optimizer& optimizer, const troupe::sgd::Epoch& epoch,
                    const std::function<void(std::int64_t)>& after_batch = {}) {
  net->train();
  double loss_sum = 0;
  std::int64_t done = 0;
  for (const auto& batch : epoch) {
    const auto loss = torch::nll_loss(net->forward(batch.features[0]), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
    if (after_batch) after_batch(++done);
  }
  return loss_sum / static_cast<double>(epoch.size());
}

/// The fraction of `split` that the net names rightly.
inline double accuracy(Net& net, const troupe::sgd::Split& split) {
  const torch::NoGradGuard no_grad;
  net->eval();
  std::int64_t right = 0;
  for (const auto& batch : split.epoch(0, {.batch_size = 500, .shuffle = false}))
    right += net->forward(batch.features[0]).argmax(1).eq(batch.target).sum().item<std::int64_t>();
  return static_cast<double>(right) / static_cast<double>(split.size());
}

}  // namespace mnist
