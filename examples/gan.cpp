// Two models that learn against each other: a generator of points on a ring and a discriminator,
// on several ranks in step. Shows an operator with its own train_epoch. After 12 epochs (seconds on
// 2 cores) the points' mean distance from the ring falls under 0.2: the last line tells it.
//
//   gan --num-workers 2 --epochs 12

#include "examples/command_line.hpp"

#include <libactor/init.hpp>
#include <sgd/sgd.hpp>

#include <cstdio>

#include <torch/torch.h>

using namespace troupe;

namespace {

constexpr double kRadius = 2;

torch::nn::Sequential net(std::int64_t in, std::int64_t out) {
  using torch::nn::Linear, torch::nn::LeakyReLU, torch::nn::LeakyReLUOptions;
  const auto bend = LeakyReLUOptions().negative_slope(0.2);
  return torch::nn::Sequential(Linear(in, 64), LeakyReLU(bend), Linear(64, 64), LeakyReLU(bend),
                               Linear(64, out));
}

/// 8,192 points around a circle.
std::vector<torch::Tensor> ring() {
  const auto angle = torch::arange(8192, torch::kFloat64) * 2.399963;  // the golden angle
  const auto points = torch::stack({angle.cos(), angle.sin()}, 1) * kRadius;
  return {points.to(torch::kFloat32)};
}

class GanOperator final : public sgd::TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    generator_ = net(2, 2);
    discriminator_ = net(2, 1);
    const auto adam = torch::optim::AdamOptions(config.get<double>("lr")).betas({0.5, 0.999});
    register_components({
        .models = {{"generator", generator_}, {"discriminator", discriminator_}},
        .optimizers = {torch::optim::Adam(generator_->parameters(), adam),
                       torch::optim::Adam(discriminator_->parameters(), adam)},
        .criterion = torch::nn::BCEWithLogitsLoss(),
    });
    const auto points = ring();
    register_data(
        {.dataset = {points, torch::ones({points[0].size(0), 1})}, .options = {.batch_size = 128}});
  }

  tune::Metrics train_epoch() override {
    for (const auto& batch : train_batches()) {
      const auto& real = batch.features[0];
      const auto ones = torch::ones({real.size(0), 1}), zeros = torch::zeros({real.size(0), 1});
      const auto fake = generator_->forward(torch::randn({real.size(0), 2}));

      const auto told = criterion()(discriminator_->forward(real), ones) +
                        criterion()(discriminator_->forward(fake.detach()), zeros);
      backward(told);
      step(optimizer(1));

      const auto fooled = criterion()(discriminator_->forward(fake), ones);
      backward(fooled);
      step(optimizer(0));
      optimizer(1).zero_grad();  // the generator's pass went through the discriminator

      add_metrics({{"generator_loss", fooled.item<double>()},
                   {"discriminator_loss", told.item<double>()},
                   {"num_samples", real.size(0)}});
    }
    return {};
  }

  double distance() {
    const torch::NoGradGuard no_grad;
    const auto points = generator_->forward(torch::randn({2048, 2}));
    return (points.norm(2, 1) - kRadius).abs().mean().item<double>();
  }

 private:
  torch::nn::Sequential generator_{nullptr}, discriminator_{nullptr};
};

tune::Metrics distance(GanOperator& op) { return {{"distance", op.distance()}}; }

}  // namespace

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);
  int num_workers = 2, epochs = 12;
  std::uint64_t seed = 1;
  CLI::App app("A generator and a discriminator on several ranks in step");
  app.add_option("--num-workers", num_workers)
      ->check(examples::number_in<int>(1, 1024))
      ->capture_default_str();
  app.add_option("--epochs", epochs)->check(examples::number_in<int>(1))->capture_default_str();
  app.add_option("--seed", seed)
      ->check(examples::number_in<std::uint64_t>(0))
      ->capture_default_str();
  examples::parse_or_exit(app, argc, argv);

  sgd::TorchTrainer<GanOperator> trainer(
      cluster,
      sgd::TorchTrainerOptions{.num_workers = num_workers, .config = {{"lr", 2e-3}}, .seed = seed});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto train = trainer.train();
    if (!train) return fail(train.error());
    std::printf("epoch %d: generator_loss=%.3f discriminator_loss=%.3f\n", epoch,
                train->number("generator_loss").value_or(0),
                train->number("discriminator_loss").value_or(0));
  }
  const auto ranks = trainer.apply_all_operators<&distance>();
  if (!ranks) return fail(ranks.error());
  std::printf("distance=%.3f\n", ranks->front().number("distance").value_or(0));
  return 0;
}
