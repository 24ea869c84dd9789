#include "tune/analysis.hpp"

#include "tests/support/temp_folder.hpp"
#include "tune/internal/experiment_state.hpp"
#include "tune/internal/result_files.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;
namespace fs = std::filesystem;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A finished experiment in a folder: trials A, B, … that reported these scores.
class Experiment {
 public:
  void add(const std::string& id, const std::vector<double>& scores) {
    const auto index = static_cast<int>(state_.trials.size());
    const auto files =
        unwrap(tune::internal::TrialFiles::open(temp_ / ("t_" + id), {{"lr", 0.5 * index}}));
    std::int64_t iteration = 0;
    for (const double score : scores)
      unwrap(
          files->append({{"score", score}, {"training_iteration", ++iteration}, {"trial_id", id}}));
    state_.trials.push_back({.id = id,
                             .name = "Net_" + id,
                             .tag = "0_lr=1",
                             .directory = "t_" + id,
                             .state = TrialState::terminated});
  }
  void add_checkpoint(const std::string& id, std::int64_t iteration) {
    const fs::path folder = temp_ / ("t_" + id) / ("checkpoint_00000" + std::to_string(iteration));
    auto writer = unwrap(CheckpointWriter::begin(folder, {.trial_id = id, .iteration = iteration}));
    writer->text("who", id);
    unwrap(writer->commit());
  }
  ExperimentAnalysis open(bool with_state = true) {
    if (with_state) unwrap(tune::internal::write_experiment_state(temp_.path(), state_));
    return unwrap(ExperimentAnalysis::open(temp_.path()));
  }
  fs::path folder() const { return temp_.path(); }
  tune::internal::ExperimentState& state() { return state_; }

 private:
  test::TempFolder temp_;
  tune::internal::ExperimentState state_ = {
      .name = "exp", .metric = "score", .mode = Mode::max, .finished = true};
};

std::string best_id(const ExperimentAnalysis& analysis, const BestOptions& best) {
  return unwrap(analysis.best_trial(best))->id;
}

}  // namespace

TEST_CASE("analysis: best by scope; NaN never wins, the first trial wins a tie") {
  Experiment experiment;
  experiment.add("A", {1, 9, 2});
  experiment.add("B", {3, 4, 5});
  experiment.add("C", {kNan, kNan});
  const auto analysis = experiment.open();
  CHECK(best_id(analysis, {}) == "B");
  CHECK(best_id(analysis, {.scope = Scope::all}) == "A");
  CHECK(best_id(analysis, {.scope = Scope::avg}) == "A");
  CHECK(best_id(analysis, {.scope = Scope::last_5_avg}) == "A");
  CHECK(best_id(analysis, {.scope = Scope::last_10_avg}) == "A");
  CHECK(best_id(analysis, {.mode = Mode::min, .scope = Scope::all}) == "A");
  CHECK(best_id(analysis, {.mode = Mode::min}) == "A");
  CHECK(analysis.best_config().get<double>("lr") == 0.5);
  CHECK(*analysis.best_result().find("score") == Value(5.0));
  CHECK(analysis.best_logdir() == experiment.folder() / "t_B");
}

TEST_CASE("analysis: averages are of the last five and the last ten") {
  Experiment experiment;
  experiment.add("A", {100, 0, 0, 0, 0, 0});
  experiment.add("B", {1, 1, 1, 1, 1, 1});
  const auto analysis = experiment.open();
  CHECK(best_id(analysis, {.scope = Scope::last_5_avg}) == "B");
  CHECK(best_id(analysis, {.scope = Scope::last_10_avg}) == "A");
}

TEST_CASE("analysis: a trial that diverged in the end is not the best by its last result") {
  Experiment experiment;
  experiment.add("A", {9, kNan});
  experiment.add("B", {1, 2});
  const auto analysis = experiment.open();
  CHECK(best_id(analysis, {}) == "B");
  CHECK(best_id(analysis, {.scope = Scope::avg}) == "A");
}

TEST_CASE("analysis: when there is no best, what was reported is named, or what is missing") {
  Experiment experiment;
  experiment.add("A", {kNan});
  experiment.state().metric.clear();
  const auto analysis = experiment.open();
  CHECK(code_of(analysis.best_trial().error()) == Errc::bad_request);
  CHECK_THROWS_WITH_AS(analysis.best_config({.metric = "acc", .mode = Mode::max}),
                       "not found: no trial has reported 'acc'; reported were: score", Exception);
  CHECK(text_of(analysis.best_trial({.metric = "score", .mode = Mode::max}).error()) ==
        "no trial has reported a finite number as 'score'");
  experiment.state().mode.reset();
  experiment.state().metric = "score";
  CHECK(text_of(experiment.open().best_trial().error()).find(".mode = ") != std::string::npos);
}

TEST_CASE("analysis: folders that somebody has removed are named, with the way out") {
  Experiment experiment;
  experiment.add("A", {1});
  experiment.add("B", {2});
  static_cast<void>(experiment.open());
  fs::remove_all(experiment.folder() / "t_B");
  CHECK(best_id(experiment.open(false), {}) == "A");
  fs::remove_all(experiment.folder() / "t_A");
  const auto best = experiment.open(false).best_trial();
  REQUIRE_FALSE(best);
  CHECK(
      text_of(best.error()) ==
      "there is no result with 'score'; missing in " + experiment.folder().string() +
          ": t_A, t_B (2 of trials that have run); bring what is missing back, or run again under "
          "another name");
}

TEST_CASE("analysis: the best checkpoint is the newest, or by scope the best that was kept") {
  Experiment experiment;
  experiment.add("A", {1, 9, 2});
  for (const int iteration : {1, 2, 3}) experiment.add_checkpoint("A", iteration);
  fs::create_directories(experiment.folder() / "t_A/checkpoint_000009.tmp-1");
  const auto iteration = [&](Scope scope) {
    return unwrap(experiment.open().best_checkpoint({.scope = scope})).info().iteration;
  };
  CHECK(iteration(Scope::last) == 3);
  CHECK(iteration(Scope::all) == 2);
  fs::remove_all(experiment.folder() / "t_A/checkpoint_000002");
  CHECK(iteration(Scope::all) == 3);
  fs::remove_all(experiment.folder() / "t_A/checkpoint_000003");
  fs::remove_all(experiment.folder() / "t_A/checkpoint_000001");
  CHECK(code_of(experiment.open().best_checkpoint().error()) == Errc::not_found);
}

TEST_CASE("analysis: tables have a row a trial, its best row, or a row a result") {
  Experiment experiment;
  experiment.add("A", {1, 9, 2});
  experiment.add("B", {});
  const auto analysis = experiment.open();
  const auto table = analysis.results_df();
  CHECK(table.columns == std::vector<std::string>{"trial_id", "score", "training_iteration",
                                                  "config/lr", "experiment_tag", "logdir"});
  REQUIRE(table.rows.size() == 2);
  CHECK(*table.find(0, "score") == Value(2.0));
  CHECK(*table.find(1, "trial_id") == Value("B"));
  CHECK(table.find(1, "score")->is_null());
  CHECK(*table.find(1, "config/lr") == Value(0.5));
  CHECK(*table.find(1, "logdir") == Value("t_B"));
  CHECK(*unwrap(analysis.dataframe("score", Mode::max)).find(0, "score") == Value(9.0));
  const auto rows = unwrap(analysis.trial_dataframe("A"));
  REQUIRE(rows.rows.size() == 3);
  CHECK(*rows.find(1, "score") == Value(9.0));
  CHECK(code_of(analysis.trial_dataframe("Z").error()) == Errc::not_found);
}

TEST_CASE("analysis: a run whose driver died is read from its trials' folders, a moved one too") {
  Experiment experiment;
  experiment.add("A", {1, 9, 2});
  experiment.add("B", {3, 4, 5});
  auto analysis = experiment.open(/*with_state=*/false);
  REQUIRE(analysis.trials().size() == 2);
  CHECK(best_id(analysis, {.metric = "score", .mode = Mode::max}) == "B");
  CHECK(analysis.trials()[1].config.get<double>("lr") == 0.5);

  experiment.open();
  const test::TempFolder elsewhere;
  fs::copy(experiment.folder(), elsewhere / "exp", fs::copy_options::recursive);
  analysis = unwrap(ExperimentAnalysis::open(elsewhere / "exp"));
  CHECK(analysis.best_logdir() == elsewhere / "exp/t_B");
}

TEST_CASE("analysis: no experiment, and a state that leads out of its folder, are refused") {
  const test::TempFolder temp;
  CHECK(code_of(ExperimentAnalysis::open(temp.path()).error()) == Errc::not_found);
  CHECK(code_of(ExperimentAnalysis::open(temp / "none").error()) == Errc::not_found);
  for (const char* directory : {"../x", "/etc", "a/../../x"}) {
    unwrap(tune::internal::write_experiment_state(
        temp.path(), {.trials = {{.id = "A", .directory = directory}}}));
    CHECK(code_of(ExperimentAnalysis::open(temp.path()).error()) == Errc::corrupt);
  }
}
