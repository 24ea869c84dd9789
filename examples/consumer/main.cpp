#include <libactor/init.hpp>
#include <tune/run.hpp>

#include <cstdio>

void parabola(troupe::tune::Session& session, const troupe::tune::Config& config) {
  const auto x = config.get<double>("x");
  session.report({{"loss", x * x}});
}

int main(int argc, char** argv) {
  auto cluster = troupe::init(argc, argv);
  const auto analysis = troupe::tune::run<&parabola>(
      cluster, troupe::tune::RunOptions{.metric = "loss",
                                        .mode = troupe::tune::Mode::min,
                                        .config = {{"x", troupe::tune::grid_search({2.0, 1.0})}},
                                        .verbose = 0});
  if (!analysis) return troupe::fail(analysis.error());
  const auto best = analysis->best_config().get<double>("x");
  std::printf("best x: %g\n", best);
  return best == 1 ? 0 : 1;
}
