#include "tune/internal/objective.hpp"

#include <fmt/format.h>

namespace troupe::tune::internal {
namespace {

std::string_view text(Mode mode) { return mode == Mode::min ? "min" : "max"; }

}  // namespace

std::optional<double> signed_value(const TrialResult& result, const std::string& metric,
                                   Mode mode) {
  const auto value = result.number(metric);
  if (!value) return std::nullopt;
  return mode == Mode::min ? -*value : *value;
}

Result<Objective> resolve_objective(std::string_view who, const std::string& own_metric,
                                    std::optional<Mode> own_mode, const std::string& run_metric,
                                    std::optional<Mode> run_mode) {
  const auto bad = [&](std::string what) -> Error {
    return make_error(Errc::bad_request, fmt::format("{}: {}", who, what));
  };
  if (!own_metric.empty() && !run_metric.empty() && own_metric != run_metric)
    return bad(
        fmt::format("its metric '{}' differs from the run's metric '{}': "
                    "give it once, in RunOptions",
                    own_metric, run_metric));
  if (own_mode && run_mode && *own_mode != *run_mode)
    return bad(
        fmt::format("its mode {} differs from the run's mode {}: "
                    "give it once, in RunOptions",
                    text(*own_mode), text(*run_mode)));
  const auto& metric = own_metric.empty() ? run_metric : own_metric;
  const auto mode = own_mode ? own_mode : run_mode;
  if (metric.empty())
    return bad(
        "it needs a metric to compare trials by: "
        R"(write .metric = "mean_accuracy", .mode = tune::Mode::max in RunOptions)");
  if (!mode)
    return bad(
        fmt::format("it needs to know whether a small or a large '{}' is good: "
                    "write .mode = tune::Mode::min or .mode = tune::Mode::max in RunOptions",
                    metric));
  return Objective{.metric = metric, .mode = *mode};
}

}  // namespace troupe::tune::internal
