#include "tune/checkpoint_schedule.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::tune;
using namespace std::chrono_literals;

namespace {

const Clock::Time kStart = Clock::Time(1000h);

}  // namespace

TEST_CASE("checkpoint_schedule: every n steps means the iterations that n divides") {
  const CheckpointSchedule schedule(3, kStart);
  CHECK_FALSE(schedule.due(1, kStart + 1h));
  CHECK_FALSE(schedule.due(2, kStart + 1h));
  CHECK(schedule.due(3, kStart));
  CHECK(schedule.due(6, kStart));
}

TEST_CASE("checkpoint_schedule: 0 is never") {
  CHECK_FALSE(CheckpointSchedule(0, kStart).due(1, kStart + 100h));
}

TEST_CASE("checkpoint_schedule: automatic waits for 30 s since the last one") {
  CheckpointSchedule schedule(-1, kStart);
  CHECK_FALSE(schedule.due(1, kStart + 29s));
  CHECK(schedule.due(1, kStart + 30s));
  schedule.saved(kStart + 30s, 100ms);
  CHECK_FALSE(schedule.due(2, kStart + 59s));
  CHECK(schedule.due(2, kStart + 60s));
}

TEST_CASE("checkpoint_schedule: automatic waits until saving has cost less than 2 % of the time") {
  CheckpointSchedule schedule(-1, kStart);
  schedule.saved(kStart + 40s, 10s);
  CHECK_FALSE(schedule.due(2, kStart + 500s));  // exactly 2 %
  CHECK(schedule.due(2, kStart + 501s));
  schedule.saved(kStart + 501s, 10s);
  CHECK_FALSE(schedule.due(3, kStart + 999s));
  CHECK(schedule.due(3, kStart + 1001s));
}

TEST_CASE("checkpoint_schedule: a save that failed is tried again after 30 s, not at once") {
  CheckpointSchedule schedule(-1, kStart);
  schedule.saved(kStart + 30s, 0s);
  CHECK_FALSE(schedule.due(2, kStart + 31s));
  CHECK(schedule.due(2, kStart + 60s));
}
