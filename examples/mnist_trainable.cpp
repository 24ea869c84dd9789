// One trial, no search: the small net of mnist.hpp with lr 0.05 and momentum 0.5.
// Prints a line a step and "test accuracy 0.87" give or take 0.02 after 4 steps, about 4 s on one
// core.
#include "examples/mnist.hpp"
#include "examples/mnist_trial.hpp"
#include "examples/options.hpp"

#include <libactor/init.hpp>

#include <cstdio>

using namespace troupe;

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);  // first of all: a worker process serves its trial in here
  const auto options = examples::parse(
      argc, argv, "Trains one net on Fashion-MNIST.",
      {.num_samples = 1, .max_iterations = 4, .data_dir = sgd::kFashionMnistFolder});
  if (auto set = cluster.set_parameter("data_dir", options.data_dir); !set)
    return fail(set.error());

  auto run = examples::run_options(options);
  run.metric = "mean_accuracy";
  run.mode = tune::Mode::max;
  run.config = {{"lr", 0.05}, {"momentum", 0.5}};
  run.stop = {{"training_iteration", double(options.max_iterations)}};
  run.checkpoint_at_end = true;
  const auto analysis = tune::run<mnist::MnistTrainable>(cluster, run);
  if (!analysis) return fail(analysis.error());
  const auto accuracy = mnist::test_accuracy(*analysis);
  if (!accuracy) return fail(accuracy.error());
  std::printf("test accuracy %.4f\n", *accuracy);
}
