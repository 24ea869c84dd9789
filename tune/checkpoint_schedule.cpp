#include "tune/checkpoint_schedule.hpp"

#include "libactor/limits.hpp"

namespace troupe::tune {

CheckpointSchedule::CheckpointSchedule(std::int64_t every_steps, Clock::Time now)
    : every_steps_(every_steps), began_(now), last_(now) {}

bool CheckpointSchedule::due(std::int64_t iteration, Clock::Time now) const {
  if (every_steps_ == 0) return false;
  if (every_steps_ > 0) return iteration % every_steps_ == 0;
  return now - last_ >= limits::kCheckpointInterval &&
         cost_ < limits::kCheckpointCost * (now - began_);
}

void CheckpointSchedule::saved(Clock::Time now, Clock::Time::duration cost) {
  last_ = now;
  cost_ += cost;
}

}  // namespace troupe::tune
