// Eight learning rates roll down a bowl; ASHA stops the slow ones early. No LibTorch.
// Prints "best lr: 0.246464" after a tenth of a second, each trial in a process of its own.
#include <libactor/init.hpp>
#include <tune/run.hpp>
#include <tune/schedulers/asha.hpp>

#include <cstdio>

using namespace troupe;

/// Gradient descent on y = x² from x = 1.
void descend(tune::Session& session, const tune::Config& config) {
  double x = 1;
  do {
    x -= config.get<double>("lr") * 2 * x;
  } while (session.report({{"loss", x * x}}));  // false: stop
}

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);  // first of all: a worker process serves its trial in here
  const auto analysis =
      tune::run<&descend>(cluster, tune::RunOptions{
                                       .metric = "loss",
                                       .mode = tune::Mode::min,
                                       .config = {{"lr", tune::loguniform(1e-3, 1)}},
                                       .stop = {{"training_iteration", 20}},
                                       .num_samples = 8,
                                       .scheduler = tune::ASHAScheduler({.max_t = 20}),
                                       .seed = 1,
                                   });
  if (!analysis) return fail(analysis.error());
  const auto best = analysis->best_trial();
  if (!best) return fail(best.error());
  std::printf("best lr: %g\n", (*best)->config.get<double>("lr"));
}
