#pragma once

// The trainable of mnist_trainable.cpp and mnist_asha.cpp.

#include "examples/mnist.hpp"

#include <tune/analysis.hpp>
#include <tune/trainable.hpp>

#include <optional>

namespace mnist {

/// A step trains on 15,000 images, in an order that seed and step decide, and tests on all 10,000.
class MnistTrainable final : public troupe::tune::Trainable {
 public:
  void setup(const troupe::tune::Config& config) override {
    troupe::sgd::seed_everything(context());
    data_ = &troupe::preloaded<&load>();  // when it is not there, no trial need begin
    net_ = Net();
    sgd_.emplace(net_->parameters(), torch::optim::SGDOptions(config.get<double>("lr"))
                                         .momentum(config.get<double>("momentum")));
  }

  troupe::tune::Metrics step() override {
    const auto epoch =
        data_->train.epoch(context().iteration(),
                           {.batch_size = 64, .sample_count = 15'000, .seed = context().seed()});
    const double loss = train(net_, *sgd_, epoch, [&](std::int64_t done) {
      context().progress(done, epoch.size(), "batch");
    });
    return {{"mean_loss", loss}, {"mean_accuracy", accuracy(net_, data_->test)}};
  }

  void save_checkpoint(troupe::tune::CheckpointWriter& out) override {
    troupe::sgd::save(out, "net", *net_);
    troupe::sgd::save(out, "sgd", *sgd_);
  }

  void load_checkpoint(const troupe::tune::CheckpointReader& in) override {
    troupe::sgd::load(in, "net", *net_);
    troupe::sgd::load(in, "sgd", *sgd_);
  }

 private:
  const troupe::sgd::Data* data_ = nullptr;
  Net net_{nullptr};
  std::optional<torch::optim::SGD> sgd_;
};

/// The best trial's net, loaded from its checkpoint, on the whole test set.
inline troupe::Result<double> test_accuracy(const troupe::tune::ExperimentAnalysis& analysis) {
  const auto checkpoint = analysis.best_checkpoint();
  if (!checkpoint) return checkpoint.error();
  return troupe::fence(troupe::Errc::user_code, [&] {
    Net net;
    troupe::sgd::load(*checkpoint, "net", *net);
    return accuracy(net, troupe::preloaded<&load>().test);
  });
}

}  // namespace mnist
