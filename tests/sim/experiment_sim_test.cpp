#include "tests/support/experiment_sim.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::sim;

namespace {

/// One seed of TROUPE_SEED, or so many.
void for_seeds(std::uint64_t count, const std::function<void(std::uint64_t)>& body) {
  const char* given = std::getenv("TROUPE_SEED");
  const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
  for (std::uint64_t seed = first; seed < first + (given ? 1 : count); ++seed) {
    CAPTURE(seed);
    try {
      body(seed);
    } catch (const Broken& broken) {
      FAIL("TROUPE_SEED=", seed, ": ", broken.what);
    }
  }
}

void everything(std::uint64_t seed) {
  World world(random_plan(seed));
  world.run();
}

/// One trial at a time: then the order of results is the same, whatever happens.
Plan one_at_a_time(std::uint64_t seed) {
  Plan plan = random_plan(seed);
  plan.max_concurrent = 1;
  plan.time_budget = {};
  plan.fail_fast = false;
  plan.faults.trials_fail &= plan.restart.max_failures > 0;
  return plan;
}

void same_as_undisturbed(std::uint64_t seed) {
  const Plan plan = one_at_a_time(seed);
  World disturbed(plan);
  World quiet(undisturbed(plan));
  disturbed.run();
  quiet.run();
  CHECK(disturbed.outcome() == quiet.outcome());
  CHECK(disturbed.scheduler_state() == quiet.scheduler_state());
}

bool notices(Canary canary) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Plan plan = random_plan(seed);
    plan.canary = canary;
    try {
      World world(plan);
      world.run();
    } catch (const Broken&) {
      return true;
    }
  }
  return false;
}

void mend(std::uint64_t seed, Resume mode) {
  Plan plan = random_plan(seed);
  plan.faults.trials_fail = true;
  World world(plan);
  world.run();
  const auto before = world.outcome();
  const auto rows = world.journal().size();
  world.run_again(mode);
  const auto after = world.outcome();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].state != TrialState::error) CHECK(after[i] == before[i]);
    if (before[i].state == TrialState::error) CHECK(after[i].state == TrialState::terminated);
  }
  for (std::size_t i = rows; i < world.journal().size(); ++i)
    if (const auto* row = std::get_if<tune::internal::ResultRow>(&world.journal()[i]))
      CHECK(before[row->trial].state == TrialState::error);
}

}  // namespace

TEST_CASE("experiment_sim: whatever is killed and whenever, every trial comes to its end") {
  for_seeds(1'000, everything);
}

TEST_CASE("experiment_sim: one trial at a time, a disturbed run ends as an undisturbed one") {
  for_seeds(300, same_as_undisturbed);
}

TEST_CASE("experiment_sim: errored_only runs the trials in ERROR and no other") {
  for_seeds(100, [](std::uint64_t seed) { mend(seed, Resume::errored_only); });
}

TEST_CASE("experiment_sim: restart_errored runs the trials in ERROR and no other") {
  for_seeds(100, [](std::uint64_t seed) { mend(seed, Resume::restart_errored); });
}

TEST_CASE("experiment_sim: mistakes that are made on purpose are noticed") {
  CHECK(notices(Canary::loses_row));
  CHECK(notices(Canary::loses_end));
  CHECK(notices(Canary::answers_early));
  CHECK(notices(Canary::no_fence));
  CHECK(notices(Canary::deletes_nothing));
  CHECK_FALSE(notices(Canary::none));
}

TEST_SUITE("slow") {
  TEST_CASE("experiment_sim: ten times as many seeds") {
    for_seeds(10'000, everything);
    for_seeds(3'000, same_as_undisturbed);
  }
}
