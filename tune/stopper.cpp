#include "tune/stopper.hpp"

#include <algorithm>

namespace troupe::tune {

bool Stop::should_stop(const std::string& trial_id, const TrialResult& result) const {
  if (const Value* done = result.find(kDone); done && done->is_bool() && done->as_bool())
    return true;
  const bool reached = std::ranges::any_of(criteria_, [&](const auto& criterion) {
    const auto value = result.number(criterion.first);
    return value && *value >= criterion.second;
  });
  return reached || (function_ && function_(trial_id, result));
}

}  // namespace troupe::tune
