#pragma once

#include "tune/metrics.hpp"

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::tune {

/// When one trial ends: any of "key >= value" (always >=, also for losses, as in Ray), or a
/// function that says so. A result with `done: true` stops regardless.
///
/// In braces: `.stop = {{"mean_accuracy", 0.99}, {"training_iteration", 100}}`. A key that a result
/// lacks never stops; it is warned about once by the experiment.
class Stop {
 public:
  using Function = std::function<bool(const std::string& trial_id, const TrialResult& result)>;

  Stop() = default;
  Stop(std::initializer_list<std::pair<std::string, double>> criteria) : criteria_(criteria) {}
  Stop(Function function) : function_(std::move(function)) {}
  Stop(std::vector<std::pair<std::string, double>> criteria, Function function)
      : criteria_(std::move(criteria)), function_(std::move(function)) {}

  bool should_stop(const std::string& trial_id, const TrialResult& result) const;
  const std::vector<std::pair<std::string, double>>& criteria() const { return criteria_; }
  bool has_function() const { return static_cast<bool>(function_); }

 private:
  std::vector<std::pair<std::string, double>> criteria_;
  Function function_;
};

}  // namespace troupe::tune
