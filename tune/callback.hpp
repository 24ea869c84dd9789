#pragma once

#include "tune/metrics.hpp"
#include "tune/trial.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// What an experiment is: told once, at its beginning.
struct ExperimentInfo {
  std::string name = {};
  std::filesystem::path directory = {};  ///< absolute; trials' folders are relative to it
  std::string metric = {};               ///< empty when the run has none
  std::optional<Mode> mode = {};
  /// Full names of what differs from trial to trial, sorted; empty: everything in a trial's config.
  std::vector<std::string> parameters = {};
  int verbose = 2;  ///< `RunOptions::verbose`
};

/// Hears what happens in an experiment. Every member is called on the experiment's thread, between
/// two decisions, so it must be quick; what it throws is logged and changes nothing.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_experiment_begin(const ExperimentInfo& experiment) { (void)experiment; }
  /// Setup has begun in a worker; also after each restart.
  virtual void on_trial_start(const TrialSnapshot& trial) { (void)trial; }
  /// After the row is in the trial's files. A last one has "done": true.
  virtual void on_trial_result(const TrialSnapshot& trial, const TrialResult& result) {
    (void)trial, (void)result;
  }
  virtual void on_trial_complete(const TrialSnapshot& trial) { (void)trial; }
  /// Every failure, also one that is followed by a restart; state is ERROR when it was the last.
  virtual void on_trial_error(const TrialSnapshot& trial, std::string_view cause) {
    (void)trial, (void)cause;
  }
  /// checkpoint: absolute folder, complete.
  virtual void on_trial_save(const TrialSnapshot& trial, const std::filesystem::path& checkpoint) {
    (void)trial, (void)checkpoint;
  }
  virtual void on_trial_restore(const TrialSnapshot& trial,
                                const std::filesystem::path& checkpoint) {
    (void)trial, (void)checkpoint;
  }
  /// trials: all of them, in order of creation; borrowed for the call.
  virtual void on_experiment_end(const std::vector<const TrialSnapshot*>& trials) { (void)trials; }
};

}  // namespace troupe::tune
