#include "tune/trial.hpp"

#include <doctest/doctest.h>

using namespace troupe::tune;

TEST_CASE("trial: its states have Ray's words") {
  CHECK(name_of(TrialState::pending) == "PENDING");
  CHECK(name_of(TrialState::running) == "RUNNING");
  CHECK(name_of(TrialState::paused) == "PAUSED");
  CHECK(name_of(TrialState::terminated) == "TERMINATED");
  CHECK(name_of(TrialState::error) == "ERROR");
}
