#include "tune/trial.hpp"

#include "libactor/assert.hpp"

namespace troupe::tune {

std::string_view name_of(TrialState state) {
  switch (state) {
    case TrialState::pending: return "PENDING";
    case TrialState::running: return "RUNNING";
    case TrialState::paused: return "PAUSED";
    case TrialState::terminated: return "TERMINATED";
    case TrialState::error: return "ERROR";
  }
  return "?";
}

void TrialStatus::become(TrialState next) {
  const auto allowed = [&] {
    switch (state_) {
      case TrialState::pending: return next != TrialState::paused && next != TrialState::pending;
      case TrialState::running: return next != TrialState::running;
      case TrialState::paused: return next == TrialState::pending || next == TrialState::terminated;
      case TrialState::terminated: return false;
      case TrialState::error: return next == TrialState::pending;
    }
    return false;
  }();
  TROUPE_ASSERT(allowed, name_of(state_), name_of(next));
  state_ = next;
}

}  // namespace troupe::tune
