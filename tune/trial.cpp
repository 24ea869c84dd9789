#include "tune/trial.hpp"

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

}  // namespace troupe::tune
