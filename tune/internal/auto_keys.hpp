#pragma once

#include "libactor/clock.hpp"
#include "tune/metrics.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::tune::internal {

/// True for the names that `AutoKeys` fills in, "config" and "nan_keys".
bool is_automatic(std::string_view key);

/// Where a trial runs: goes into each of its rows.
struct TrialPlace {
  std::int64_t pid = 0;
  std::string hostname = {};
  std::string node_ip = {};
};

/// One report as it came from the worker.
struct Report {
  Metrics metrics = {};
  std::chrono::duration<double> step_time = {};  ///< measured, since the step or report before
  bool from_function = false;   ///< Ray puts the step time of function trainables elsewhere
  bool has_checkpoint = false;  ///< written together with this report
};

/// Makes a trial's rows: the user's metrics, then Ray's automatic keys in Ray's order, without
/// `config`, which `TrialFiles` adds. What the user sets himself of done, training_iteration,
/// time_this_iter_s and the totals is kept. Source: `Trainable.train` of Ray Tune
/// 1.3.
class AutoKeys {
 public:
  /// What goes on over a restart; the "since restore" keys begin again.
  struct Totals {
    std::int64_t iteration = 0;
    double time_s = 0;
    Value timesteps = {};  ///< null until a result had timesteps_this_iter
    Value episodes = {};
    bool operator==(const Totals&) const = default;
  };

  AutoKeys(std::string trial_id, std::string experiment_id)
      : trial_id_(std::move(trial_id)), experiment_id_(std::move(experiment_id)) {}

  /// The trial goes on from a checkpoint; `restore({})`: from the beginning.
  void restore(const Totals& totals);
  /// The totals as they stand in a row that was journalled.
  static Totals totals_of(const TrialResult& row);
  const Totals& totals() const { return totals_; }

  TrialResult complete(Report report, const TrialPlace& place, Clock::WallTime now);

 private:
  std::string trial_id_;
  std::string experiment_id_;
  Totals totals_;
  std::int64_t iterations_since_restore_ = 0;
  double time_since_restore_s_ = 0;
  Value timesteps_since_restore_ = 0;
};

}  // namespace troupe::tune::internal
