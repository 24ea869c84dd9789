#pragma once

#include "tune/config.hpp"
#include "tune/metrics.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::tune {

enum class TrialState { pending, running, paused, terminated, error };

/// "PENDING", "RUNNING", …
std::string_view name_of(TrialState state);

/// A trial's state and the only arrows between states: PENDING → RUNNING → {PAUSED, TERMINATED,
/// ERROR, PENDING}, PAUSED → {PENDING, TERMINATED}, PENDING → {TERMINATED, ERROR}; ERROR → PENDING
/// by a resume only.
class TrialStatus {
 public:
  TrialState state() const { return state_; }
  bool finished() const { return state_ == TrialState::terminated || state_ == TrialState::error; }
  void become(TrialState next);

 private:
  TrialState state_ = TrialState::pending;
};

/// One row of the status table and of the analysis: what is known of a trial at one moment.
struct TrialSnapshot {
  std::string id = {};         ///< "a1b2c_00003"
  std::string name = {};       ///< "MnistTrainable_a1b2c_00003"
  std::string tag = {};        ///< "3_lr=0.001,momentum=0.5"
  std::string directory = {};  ///< relative to the experiment's folder
  TrialState state = TrialState::pending;
  Config config = {};
  TrialResult last_result = {};    ///< empty before the first
  std::string location = {};       ///< "pid=1234" while it runs
  std::string waits_for = {};      ///< why it is pending: "needs cpus=2: 0 of 2 free"
  std::int64_t failure_count = 0;  ///< those that count against max_failures
  std::string error_file = {};     ///< relative; empty when there is none
  std::string progress = {};       ///< "batch 120/938"
};

}  // namespace troupe::tune
