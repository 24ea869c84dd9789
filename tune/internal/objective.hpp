#pragma once

#include "libactor/result.hpp"
#include "tune/metrics.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace troupe::tune::internal {

/// What a scheduler or searcher compares trials by.
struct Objective {
  std::string metric = {};
  Mode mode = Mode::max;
};

/// The metric's value, negated in mode min; nothing when it is absent, null or no number.
std::optional<double> signed_value(const TrialResult& result, const std::string& metric, Mode mode);

/// One objective from what the run says and from what `who` ("ASHAScheduler") was given itself.
/// bad_request when they differ, or when nobody has named a metric and a mode.
Result<Objective> resolve_objective(std::string_view who, const std::string& own_metric,
                                    std::optional<Mode> own_mode, const std::string& run_metric,
                                    std::optional<Mode> run_mode);

}  // namespace troupe::tune::internal
