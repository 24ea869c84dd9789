#pragma once

#include "libactor/clock.hpp"
#include "libactor/result.hpp"
#include "tune/checkpoint_policy.hpp"
#include "tune/metrics.hpp"
#include "tune/trial.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune::internal {

/// What a trial's own files do not tell. Config and last result are not here: they are in
/// params.json and result.json, and 10,000 of them would take long to write.
struct SavedTrial {
  std::string id = {};
  std::string name = {};
  std::string tag = {};
  std::string directory = {};  ///< relative, so that a moved experiment still opens
  TrialState state = TrialState::pending;
  std::int64_t iteration = 0;
  std::optional<double> metric = {};  ///< of the last result
  std::int64_t failure_count = 0;
  std::vector<CheckpointPolicy::Kept> checkpoints = {};
};

/// experiment_state.json: for people, analyses and dashboards. A resume reads the journal instead.
struct ExperimentState {
  std::string name = {};
  std::string trainable = {};
  std::string metric = {};
  std::optional<Mode> mode = {};
  std::uint64_t seed = 0;
  Clock::WallTime start = {};
  bool finished = false;
  std::vector<SavedTrial> trials = {};  ///< in order of creation
};

/// Replaces the file whole. `durable`: at the end of the experiment.
Result<void> write_experiment_state(const std::filesystem::path& folder,
                                    const ExperimentState& state, bool durable = false);
/// Errors: not_found, corrupt, io.
Result<ExperimentState> read_experiment_state(const std::filesystem::path& folder);

/// When it is time to write again: at least 10 s apart, and at most 5 % of the time.
class SavePace {
 public:
  bool due(Clock::Time now) const { return now >= next_; }
  void saved(Clock::Time begin, Clock::Time end);

 private:
  Clock::Time next_ = {};
};

}  // namespace troupe::tune::internal
