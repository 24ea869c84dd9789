#include "tune/internal/experiment_state.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;
using namespace std::chrono_literals;

TEST_CASE("experiment state: what is written is read") {
  const test::TempFolder temp;
  const ExperimentState state{
      .name = "exp \"1\"",
      .trainable = "Net",
      .metric = "acc",
      .mode = Mode::min,
      .seed = std::numeric_limits<std::uint64_t>::max(),
      .start = Clock::WallTime(1'600'000'000s),
      .finished = true,
      .trials = {{.id = "a_0",
                  .name = "Net_a_0",
                  .tag = "0_lr=1",
                  .directory = "Net_a_0_0_lr=1",
                  .state = TrialState::error,
                  .iteration = 3,
                  .metric = 0.5,
                  .failure_count = 2,
                  .checkpoints = {{.iteration = 2, .name = "checkpoint_000002", .score = 0.25},
                                  {.iteration = 3, .name = "checkpoint_000003"}}},
                 {.id = "a_1", .state = TrialState::paused}},
  };
  unwrap(write_experiment_state(temp.path(), state));
  const auto read = unwrap(read_experiment_state(temp.path()));
  CHECK(read.name == state.name);
  CHECK(read.mode == Mode::min);
  CHECK(read.seed == state.seed);
  CHECK(read.start == state.start);
  CHECK(read.finished);
  REQUIRE(read.trials.size() == 2);
  const auto& trial = read.trials[0];
  CHECK(trial.id == "a_0");
  CHECK(trial.tag == "0_lr=1");
  CHECK(trial.state == TrialState::error);
  CHECK(trial.metric == 0.5);
  CHECK(trial.failure_count == 2);
  REQUIRE(trial.checkpoints.size() == 2);
  CHECK(trial.checkpoints[0].score == 0.25);
  CHECK_FALSE(trial.checkpoints[1].score.has_value());
  CHECK(read.trials[1].state == TrialState::paused);
  CHECK_FALSE(read.trials[1].metric.has_value());
}

TEST_CASE(
    "experiment state: a missing file, no JSON and a wrong type are errors with the file's name") {
  const test::TempFolder temp;
  CHECK(code_of(read_experiment_state(temp.path()).error()) == Errc::not_found);
  for (const char* text : {"", "{", "[]", R"({"name": 3})"}) {
    temp.write("experiment_state.json", text);
    const auto read = read_experiment_state(temp.path());
    REQUIRE_FALSE(read);
    CHECK(code_of(read.error()) == Errc::corrupt);
    CHECK(text_of(read.error()).find("experiment_state.json") != std::string::npos);
  }
}

TEST_CASE("experiment state: saves are 10 s apart, and cost 5 % of the time at most") {
  SavePace pace;
  const Clock::Time start{100s};
  CHECK(pace.due(start));
  pace.saved(start, start + 1ms);
  CHECK_FALSE(pace.due(start + 10s));
  CHECK(pace.due(start + 10s + 1ms));
  pace.saved(start, start + 1s);
  CHECK_FALSE(pace.due(start + 19s));
  CHECK(pace.due(start + 20s));
}
