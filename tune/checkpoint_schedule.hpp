#pragma once

#include "libactor/clock.hpp"

#include <cstdint>

namespace troupe::tune {

/// When a trial's next checkpoint is due. Time is passed in.
class CheckpointSchedule {
 public:
  /// every_steps: 0 never; -1 automatic: when `limits::kCheckpointInterval` has passed since the
  /// last one and saving has cost less than `limits::kCheckpointCost` of the time since `now`.
  CheckpointSchedule(std::int64_t every_steps, Clock::Time now);

  /// After the step of this `training_iteration`. Every n steps means those that n divides, so a
  /// restart changes nothing.
  bool due(std::int64_t iteration, Clock::Time now) const;
  /// A checkpoint was written, which took `cost`; also when that failed, or it would be tried again
  /// at once.
  void saved(Clock::Time now, Clock::Time::duration cost);

 private:
  std::int64_t every_steps_;
  Clock::Time began_;
  Clock::Time last_;
  Clock::Time::duration cost_ = {};  // of all so far
};

}  // namespace troupe::tune
