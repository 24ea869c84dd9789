#include "tune/internal/auto_keys.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;
using namespace std::chrono_literals;

namespace {

const TrialPlace kPlace{.pid = 77, .hostname = "box", .node_ip = "127.0.0.1"};
const Clock::WallTime kNow{1'600'000'000s + 900ms};

std::string keys_of(const TrialResult& row) {
  std::string keys;
  for (const auto& [key, value] : row) keys += (keys.empty() ? "" : ",") + key;
  return keys;
}

}  // namespace

TEST_CASE("auto keys: a class trainable's row has Ray's keys in Ray's order") {
  AutoKeys keys("a1b2c_00000", "e0");
  const auto row = keys.complete({.metrics = {{"mean_loss", 0.5}}, .step_time = 2s}, kPlace, kNow);
  CHECK(keys_of(row) ==
        "mean_loss,done,timesteps_total,episodes_total,training_iteration,neg_mean_loss,"
        "experiment_id,date,timestamp,time_this_iter_s,time_total_s,pid,hostname,node_ip,"
        "time_since_restore,timesteps_since_restore,iterations_since_restore,trial_id");
  CHECK(*row.find("done") == Value(false));
  CHECK(row.find("timesteps_total")->is_null());
  CHECK(*row.find("neg_mean_loss") == Value(-0.5));
  CHECK(*row.find("timestamp") == Value(1'600'000'000));
  CHECK(row.find("date")->as_text().size() == std::string("2020-09-13_12-26-40").size());
  CHECK(*row.find("trial_id") == Value("a1b2c_00000"));
}

TEST_CASE("auto keys: a function's row has its step time among the user's keys") {
  AutoKeys keys("a1b2c_00000", "e0");
  const auto row = keys.complete(
      {.metrics = {{"loss", 1}}, .step_time = 2s, .from_function = true, .has_checkpoint = true},
      kPlace, kNow);
  CHECK(keys_of(row) ==
        "loss,time_this_iter_s,should_checkpoint,done,timesteps_total,episodes_total,"
        "training_iteration,experiment_id,date,timestamp,time_total_s,pid,hostname,node_ip,"
        "time_since_restore,timesteps_since_restore,iterations_since_restore,trial_id");
}

TEST_CASE("auto keys: what the user sets himself stays, and his step time feeds the total") {
  AutoKeys keys("t", "e");
  const auto row = keys.complete({.metrics = {{"done", true},
                                              {"training_iteration", 40},
                                              {"time_this_iter_s", 7.0},
                                              {"timesteps_total", 9}},
                                  .step_time = 1s},
                                 kPlace, kNow);
  CHECK(*row.find("done") == Value(true));
  CHECK(*row.find("training_iteration") == Value(40));
  CHECK(*row.find("timesteps_total") == Value(9));
  CHECK(row.number("time_total_s") == 7.0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto odd =
      keys.complete({.metrics = {{"time_this_iter_s", nan}}, .step_time = 1s}, kPlace, kNow);
  CHECK(odd.number("time_total_s") == 8.0);
}

TEST_CASE("auto keys: totals go on after a restore, counts since the restore begin again") {
  AutoKeys keys("t", "e");
  const Metrics step{{"timesteps_this_iter", 10}, {"episodes_this_iter", 2.5}};
  TrialResult row;
  for (int i = 0; i < 6; ++i) row = keys.complete({.metrics = step, .step_time = 1s}, kPlace, kNow);
  const auto totals = AutoKeys::totals_of(row);
  CHECK(totals == keys.totals());

  AutoKeys restarted("t", "e");
  restarted.restore(totals);
  row = restarted.complete({.metrics = step, .step_time = 1s}, kPlace, kNow);
  CHECK(*row.find("training_iteration") == Value(7));
  CHECK(row.number("time_total_s") == 7.0);
  CHECK(*row.find("timesteps_total") == Value(70));
  CHECK(*row.find("episodes_total") == Value(17.5));
  CHECK(*row.find("iterations_since_restore") == Value(1));
  CHECK(row.number("time_since_restore") == 1.0);
  CHECK(*row.find("timesteps_since_restore") == Value(10));
}
