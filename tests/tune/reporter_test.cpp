#include "tune/reporter.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;
using namespace std::chrono_literals;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// The six trials of Ray's sample.
struct Sample {
  std::vector<TrialSnapshot> trials;
  StatusView view;

  Sample() {
    const auto add = [&](TrialState state, double lr, int units, TrialResult result) {
      const std::string id = "a1b2c_0000" + std::to_string(trials.size());
      trials.push_back({.id = id,
                        .name = "train_" + id,
                        .state = state,
                        .config = {{"lr", lr}, {"units", units}},
                        .last_result = std::move(result)});
    };
    const auto result = [](double loss, int iteration, double time_s) {
      return TrialResult{
          {"loss", loss}, {"training_iteration", iteration}, {"time_total_s", time_s}};
    };
    add(TrialState::running, 0.001, 16, result(0.25, 3, 4.5));
    add(TrialState::running, 0.1, 32, result(0.75, 2, 3));
    add(TrialState::terminated, 0.01, 8, result(kNan, 10, 33.1));
    add(TrialState::error, 0.3, 4, {});
    add(TrialState::pending, 0.2, 2, {});
    add(TrialState::paused, 0.02, 2, result(0.3, 1, 1));
    trials[0].location = "pid=100";
    trials[1].location = "pid=101";
    trials[3].failure_count = 1;
    trials[3].error_file = "train_x/error.txt";
    view = {.experiment = {.name = "exp",
                           .directory = "/data/ray_results/exp",
                           .metric = "loss",
                           .mode = Mode::min},
            .scheduler = "Using FIFO scheduling algorithm.",
            .requested = {.cpus = 2},
            .total = {.cpus = 4, .memory_bytes = 5 * kGiB},
            .memory_used_bytes = 6 * kGiB / 10,
            .memory_total_bytes = 235 * kGiB / 10,
            .expected_trials = 8};
    for (const auto& trial : trials) view.trials.push_back(&trial);
  }
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

// Ray shows the same five rows with a limit of four, and then counts two as hidden: the walk over
// the states gives out a whole round once it has begun. Here the limit holds. The object store at
// the end of Ray's resource line has no counterpart here.
TEST_CASE("reporter: the status is Ray's, character by character") {
  const Sample sample;
  CHECK(render_status(sample.view, {.max_progress_rows = 5}, true, false) ==
        R"(== Status ==
Memory usage on this node: 0.6/23.5 GiB
Using FIFO scheduling algorithm.
Resources requested: 2.0/4 CPUs, 0/0 GPUs, 0.0/5.0 GiB heap
Current best trial: a1b2c_00000 with loss=0.25 and parameters={'lr': 0.001, 'units': 16}
Result logdir: /data/ray_results/exp
Number of trials: 6/8 (1 ERROR, 1 PAUSED, 1 PENDING, 2 RUNNING, 1 TERMINATED)
+-------------------+------------+---------+-------+---------+--------+------------------+--------+
| Trial name        | status     | loc     |    lr |   units |   iter |   total time (s) |   loss |
|-------------------+------------+---------+-------+---------+--------+------------------+--------|
| train_a1b2c_00000 | RUNNING    | pid=100 | 0.001 |      16 |      3 |              4.5 |   0.25 |
| train_a1b2c_00005 | PAUSED     |         | 0.02  |       2 |      1 |              1   |   0.3  |
| train_a1b2c_00004 | PENDING    |         | 0.2   |       2 |        |                  |        |
| train_a1b2c_00002 | TERMINATED |         | 0.01  |       8 |     10 |             33.1 | nan    |
| train_a1b2c_00003 | ERROR      |         | 0.3   |       4 |        |                  |        |
+-------------------+------------+---------+-------+---------+--------+------------------+--------+
... 1 more trials not shown (1 RUNNING)
Number of errored trials: 1
+-------------------+--------------+-----------------------------------------+
| Trial name        |   # failures | error file                              |
|-------------------+--------------+-----------------------------------------|
| train_a1b2c_00003 |            1 | /data/ray_results/exp/train_x/error.txt |
+-------------------+--------------+-----------------------------------------+
)");
}

TEST_CASE("reporter: rows keep to the limit and the hidden are counted; the final has all") {
  const Sample sample;
  const auto four = render_status(sample.view, {.max_progress_rows = 4}, true, false);
  CHECK(has(four, "... 2 more trials not shown (1 RUNNING, 1 TERMINATED)\n"));
  CHECK_FALSE(has(four, "train_a1b2c_00002 |"));
  const auto none = render_status(sample.view, {.max_progress_rows = 0}, true, false);
  CHECK(has(none, "... 6 more trials not shown (1 ERROR, 1 PAUSED, 1 PENDING, 2 RUNNING, 1 TERM"));
  const auto all =
      render_status(sample.view, {.max_progress_rows = 0, .max_error_rows = 0}, true, true);
  CHECK_FALSE(has(all, "not shown"));
  CHECK(has(all, "train_a1b2c_00001 | RUNNING"));
  CHECK(has(all, "train_x/error.txt"));
}

TEST_CASE("reporter: a best value of 0 stays best, NaN and infinities never are, the first wins") {
  Sample sample;
  const auto best_line = [&] {
    const auto text = render_status(sample.view, {}, false, false);
    const auto begin = text.find("Current best trial: ");
    return begin == std::string::npos ? "" : text.substr(begin + 20, 11);
  };
  sample.trials[0].last_result.set("loss", kNan);
  sample.trials[1].last_result.set("loss", 0);
  sample.trials[2].last_result.set("loss", -std::numeric_limits<double>::infinity());
  CHECK(best_line() == "a1b2c_00001");
  sample.view.experiment.mode = Mode::max;
  CHECK(best_line() == "a1b2c_00005");
  sample.trials[0].last_result.set("loss", 0.3);
  CHECK(best_line() == "a1b2c_00000");
  sample.view.experiment.mode = {};
  CHECK(best_line() == "");
}

TEST_CASE("reporter: time, low memory, custom resources, notes and reasons to wait are told") {
  Sample sample;
  auto& view = sample.view;
  view.wall = Clock::WallTime(1'600'000'000s);
  view.elapsed = std::chrono::duration<double>(3725.25);
  view.memory_used_bytes = 22 * kGiB;
  view.total.custom = {{"fpga", 1}, {"licences", 2}};
  view.requested.custom = {{"licences", 0.5}};
  view.requested.gpus = 0.25;
  view.expected_trials = -1;
  view.notes = {"paused: no space left on device"};
  sample.trials[4].waits_for = "needs cpus=2: 0 of 4 free";
  const auto text = render_status(view, {}, false, false);
  CHECK(has(text, "== Status ==\nCurrent time: 2020-09-1"));
  CHECK(has(text, " (running for 01:02:05.25)\nMemory usage on this node: 22.0/23.5 GiB: ***LOW"));
  CHECK(has(text, "0.25/0 GPUs, 0.0/5.0 GiB heap (0/1 fpga, 0.5/2 licences)\n"));
  CHECK(has(text, "Number of trials: 6/infinite (1 ERROR"));
  CHECK(has(text, "Note: paused: no space left on device\n"));
  CHECK(has(text, "1 trial waits: needs cpus=2: 0 of 4 free\n"));
  CHECK_FALSE(has(text, "+--"));
}

TEST_CASE("reporter: columns are those asked for, else what varies and three numbers") {
  Sample sample;
  sample.view.experiment.parameters = {"units"};
  sample.trials[0].last_result = {
      {"acc2", 1},   {"name", "x"},         {"b", 2.0}, {"c", 3}, {"pid", 4},
      {"loss", 0.5}, {"mean_accuracy", 0.9}};
  const auto text = render_status(sample.view, {}, true, false);
  CHECK(has(text,
            "| loc     |   units |   acc |   iter |   total time (s) |   loss |   acc2 |   b |\n"));
  CHECK(has(text, "parameters={'units': "));
  const auto asked = render_status(
      sample.view, {.metric_columns = {{"pid", "process"}, "none"}, .parameter_columns = {"lr"}},
      true, false);
  CHECK(has(asked, "| loc     |    lr |   process |\n"));
}

TEST_CASE("reporter: a text with a line break does not break the table") {
  Sample sample;
  sample.trials[0].config.set("text", "a\nb");
  CHECK(has(render_status(sample.view, {}, true, false), "| a b    |"));
}

TEST_CASE("reporter: an experiment without trials has a status") {
  const auto text = render_status({}, {}, true, true);
  CHECK(has(text, "Number of trials: 0\n"));
  CHECK_FALSE(has(text, "+--"));
}

TEST_CASE("reporter: verbose 0 is silent, 1 has no table, 2 and 3 have one in every status") {
  Sample sample;
  std::string out;
  CLIReporter reporter({.print = [&](std::string_view text) { out += text; }});
  const auto report = [&](int verbose, bool final) {
    out.clear();
    sample.view.experiment.verbose = verbose;
    reporter.report(sample.view, final);
    return out;
  };
  sample.view.elapsed = std::chrono::duration<double>(2.5);
  sample.view.loop_elapsed = std::chrono::duration<double>(2.25);
  CHECK(report(0, true).empty());
  CHECK(has(report(1, false), "== Status =="));
  CHECK_FALSE(has(report(1, true), "+--"));
  CHECK(has(report(2, false), "+--"));
  CHECK(has(report(2, true), "+--"));
  CHECK(out.ends_with("Total run time: 2.50 seconds (2.25 seconds for the tuning loop).\n"));
  CHECK(has(report(3, false), "+--"));
  CHECK_FALSE(has(out, "Total run time"));
}

TEST_CASE("reporter: a line a result, one a trial every 5 s, and always at its end") {
  Sample sample;
  std::string out;
  CLIReporter reporter({.print = [&](std::string_view text) { out += text; }});
  auto& trial = sample.trials[0];
  const auto told = [&](const auto& event) {
    out.clear();
    event();
    return out;
  };
  const auto result = [&](std::int64_t second, bool done, double loss = 0.256) {
    trial.last_result = {{"loss", loss}, {"acc2", 0.5}, {"done", done}, {"timestamp", second}};
    return told([&] { reporter.on_trial_result(trial, trial.last_result); });
  };
  reporter.on_experiment_begin(sample.view.experiment);
  const std::string parameters = "with parameters={'lr': 0.001, 'units': 16}.";
  CHECK(result(100, false) == "Trial train_a1b2c_00000 reported loss=0.26 " + parameters + "\n");
  CHECK(result(104, false) == "");
  CHECK(result(105, false) != "");
  CHECK(result(106, true) ==
        "Trial train_a1b2c_00000 reported loss=0.26 " + parameters + " This trial completed.\n");
  CHECK(told([&] { reporter.on_trial_complete(trial); }) == "");

  sample.view.experiment.metric.clear();
  reporter.on_experiment_begin(sample.view.experiment);
  CHECK(result(107, false) ==
        "Trial train_a1b2c_00000 reported loss=0.256,acc2=0.5 " + parameters + "\n");
  CHECK(told([&] { reporter.on_trial_complete(trial); }) ==
        "Trial train_a1b2c_00000 completed. Last result: loss=0.256,acc2=0.5\n");
  trial.error_file = "t0/error.txt";
  CHECK(told([&] { reporter.on_trial_error(trial, "exit by signal 9"); }) ==
        "The trial train_a1b2c_00000 errored with parameters={'lr': 0.001, 'units': 16}. Error "
        "file: /data/ray_results/exp/t0/error.txt\nexit by signal 9\n");

  sample.view.experiment.verbose = 3;
  reporter.on_experiment_begin(sample.view.experiment);
  CHECK(result(200, false)
            .starts_with("Result for train_a1b2c_00000:\n  loss: 0.256\n  acc2: 0.5\n"));
  sample.view.experiment.verbose = 1;
  reporter.on_experiment_begin(sample.view.experiment);
  CHECK(result(300, true) == "");
  CHECK(told([&] { reporter.on_trial_error(trial, "x"); }) == "");
}
