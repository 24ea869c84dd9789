#pragma once

// The operator of mnist_ddp.cpp and mnist_ddp_asha.cpp.

#include "examples/mnist.hpp"

#include <sgd/sgd.hpp>

namespace mnist {

/// [N, 1, 28, 28] in [0, 1] -> [N, 10] log-probabilities: two convolutions with pooling, 128, 10.
struct DeepNetImpl : torch::nn::Module {
  DeepNetImpl()
      : conv1(register_module("conv1", torch::nn::Conv2d(1, 16, 3))),
        conv2(register_module("conv2", torch::nn::Conv2d(16, 32, 3))),
        fc1(register_module("fc1", torch::nn::Linear(32 * 5 * 5, 128))),
        fc2(register_module("fc2", torch::nn::Linear(128, 10))) {}

  torch::Tensor forward(const torch::Tensor& images) {
    auto x = torch::relu(torch::max_pool2d(conv1((images - 0.286) / 0.353), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(DeepNet);

/// config: lr, and momentum (default 0.9).
class MnistOperator final : public troupe::sgd::TrainingOperator {
 public:
  void setup(const troupe::tune::Config& config) override {
    DeepNet net;
    register_components({
        .model = net,
        .optimizer =
            torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(config.get<double>("lr"))
                                                     .momentum(config.get_or("momentum", 0.9))),
        .criterion = torch::nn::NLLLoss(),
        .scheduler = troupe::sgd::ExponentialLR({.gamma = 0.7}),
        .scheduler_step = troupe::sgd::SchedulerStep::epoch,
    });
    register_data(troupe::preloaded<&load>());
  }
};

}  // namespace mnist
