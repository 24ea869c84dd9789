#include "tune/internal/experiment.hpp"

#include "libactor/limits.hpp"
#include "tests/support/sim_deciders.hpp"
#include "tune/internal/wire.hpp"
#include "tune/naming.hpp"

#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <stdexcept>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;
using namespace std::chrono_literals;

namespace {

const Experiment::Feed kNoScheduler = [](const SchedulerEvent&) { return SchedulerVerdict{}; };

/// A core, and all commands that it has given. What asks the scheduler is answered by `decide`.
class Run {
 public:
  explicit Run(ExperimentSpec spec = {}, std::int64_t trial_count = 1) {
    spec.trainable_name = "Net";
    auto searcher = std::make_unique<sim::NotingSearcher>();
    REQUIRE(searcher->begin({}, {.num_samples = trial_count}));
    core = std::make_unique<Experiment>(spec, std::move(searcher));
  }

  Run& begin() {
    core->begin(now);
    return take();
  }
  Run& restore(const std::vector<Record>& records, Resume mode = Resume::yes) {
    for (const auto& record : records) REQUIRE(core->restore(record, kNoScheduler));
    REQUIRE(core->resume(mode, kNoScheduler));
    return begin();
  }
  Run& child(ChildEvent event) {
    if (event.incarnation == 0) event.incarnation = core->incarnation(event.child);
    core->on_child(event, now);
    return take();
  }
  Run& starts(std::uint64_t trial, std::int64_t from = 0) {
    child({.child = trial,
           .kind = ChildEvent::Kind::started,
           .incarnation = core->incarnation(trial) + 1});
    core->on_ready({.trial = trial,
                    .incarnation = core->incarnation(trial),
                    .iteration = from,
                    .checkpoint = from > 0 ? "checkpoint_" + std::to_string(from) : ""},
                   now);
    return take();
  }
  Run& reports(std::uint64_t trial, std::int64_t iteration, Metrics row = {{"loss", 1.0}}) {
    row.set(kTrainingIteration, iteration);
    core->on_report(
        {.trial = trial, .incarnation = core->incarnation(trial), .iteration = iteration},
        std::make_shared<Row>(Row{encode(row), row}), now);
    return take();
  }
  Run& verdict(SchedulerVerdict verdict = {}) {
    core->on_verdict(verdict, now);
    return take();
  }
  Run& saves(std::uint64_t trial, std::int64_t iteration) {
    core->on_saved({.trial = trial,
                    .incarnation = core->incarnation(trial),
                    .iteration = iteration,
                    .name = "checkpoint_" + std::to_string(iteration)},
                   now);
    return take();
  }
  Run& ends(std::uint64_t trial) {
    return child({.child = trial, .kind = ChildEvent::Kind::ended});
  }
  Run& fails(std::uint64_t trial, bool restart, std::int64_t count = 1) {
    return child({.child = trial,
                  .kind = ChildEvent::Kind::failed,
                  .text = "step: no",
                  .user = true,
                  .restart = restart,
                  .user_failures = count});
  }
  Run& passes(std::chrono::milliseconds time) {
    now += time;
    core->on_tick(now);
    return take();
  }

  /// All commands of one type since the last `forget`.
  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const auto& command : commands)
      if (const auto* one = std::get_if<T>(&command)) found.push_back(*one);
    return found;
  }
  template <class T>
  std::vector<T> records() const {
    std::vector<T> found;
    for (const auto& append : all<AppendRecord>())
      if (const auto* one = std::get_if<T>(&append.record)) found.push_back(*one);
    return found;
  }
  std::vector<std::string> said(bool warning) const {
    std::vector<std::string> lines;
    for (const auto& say : all<Say>())
      if (say.warning == warning) lines.push_back(say.line);
    return lines;
  }
  Decision last_order() const { return all<AnswerReport>().back().order.decision; }
  TrialState state(std::uint64_t trial) const { return core->state(trial); }
  std::string id(std::uint64_t trial) const { return core->trial_id(trial); }
  Error end() const {
    REQUIRE(all<Finish>().size() == 1);
    return all<Finish>().front().error;
  }
  void forget() { commands.clear(); }

  std::unique_ptr<Experiment> core;
  Clock::Time now = Clock::Time(1h);
  std::vector<Command> commands;

 private:
  Run& take() {
    for (auto& command : core->take_commands()) {
      if (const auto* answer = std::get_if<AnswerReport>(&command))
        core->on_answered(answer->trial, now);
      if (const auto* answer = std::get_if<AnswerSaved>(&command))
        core->on_answered(answer->trial, now);
      commands.push_back(std::move(command));
    }
    return *this;
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TrialAdded added(std::uint64_t trial) {
  return {.trial = trial,
          .id = trial_id(head_from_seed(0), static_cast<std::int64_t>(trial)),
          .tag = "0",
          .directory = "Net_0",
          .config = encode(Config{{"x", 1.0}})};
}

ResultRow row(std::uint64_t trial, std::int64_t iteration, Decision decision = Decision::proceed) {
  return {.trial = trial,
          .iteration = iteration,
          .row = encode(Metrics{{std::string(kTrainingIteration), iteration}}),
          .decision = decision};
}

}  // namespace

// --- a result's way -------------------------------------------------------------------------

TEST_CASE("experiment: a row is answered after it was asked, journalled and written, not before") {
  Run run;
  run.begin().starts(0).forget();
  run.reports(0, 1);
  REQUIRE(run.commands.size() == 1);
  CHECK(run.all<AskScheduler>().size() == 1);
  run.forget();
  run.verdict();
  REQUIRE(run.commands.size() == 4);
  CHECK(std::holds_alternative<AppendRecord>(run.commands[0]));
  CHECK(std::holds_alternative<WriteRow>(run.commands[1]));
  CHECK(std::holds_alternative<AnswerReport>(run.commands[3]));
}

TEST_CASE("experiment: a stop criterion ends the trial without asking for the row's verdict") {
  Run run({.stop = {{"loss", 5}}});
  run.begin().starts(0).forget();
  run.reports(0, 1, {{"loss", 5.0}});
  CHECK(run.all<AskScheduler>().at(0).kind == SchedulerEvent::Kind::complete);
  run.verdict();
  CHECK(run.records<ResultRow>().at(0).by_stopper);
  CHECK(run.last_order() == Decision::stop);
  run.ends(0);
  CHECK(run.state(0) == TrialState::terminated);
  CHECK_FALSE(run.end());
}

TEST_CASE("experiment: done in a row stops the trial") {
  Run run;
  run.begin().starts(0).reports(0, 1, {{"done", true}}).verdict();
  CHECK(run.last_order() == Decision::stop);
}

TEST_CASE("experiment: STOP of the scheduler is logged with its reasons") {
  Run run;
  run.begin().starts(0).reports(0, 1);
  run.verdict({.decision = Decision::stop, .why = "rung=4 cutoff=0.412 value=0.398"});
  REQUIRE(run.said(false).size() == 1);
  CHECK(run.said(false)[0] ==
        "trial stopped: trial=" + run.id(0) + " rung=4 cutoff=0.412 value=0.398");
  CHECK(run.last_order() == Decision::stop);
}

TEST_CASE("experiment: what is reported beyond a STOP goes nowhere") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict({.decision = Decision::stop}).forget();
  run.reports(0, 2);
  CHECK(run.records<ResultRow>().empty());
  CHECK(run.last_order() == Decision::stop);
}

TEST_CASE("experiment: a missing and an empty metric are warned about once a key") {
  Run run({.metric = "score", .stop = {{"acc", 0.9}}});
  run.begin().starts(0);
  run.reports(0, 1, {{"loss", 2.0}}).verdict();
  run.reports(0, 2, {{"score", Value()}, {"acc", Value()}}).verdict();
  run.reports(0, 3, {{"score", 3.0}}).verdict();
  const auto warnings = run.said(true);
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "no number 'score', the metric of this run; its numbers are: loss"));
  CHECK(contains(warnings[1], "no number 'acc', which stop asks for"));
  CHECK(run.core->iteration(0) == 3);
}

TEST_CASE("experiment: a stop function that throws ends the run, and its row comes again") {
  Run run({.stop = Stop::Function([](const std::string&, const TrialResult&) -> bool {
             throw std::runtime_error("no such key");
           })});
  run.begin().starts(0).reports(0, 1);
  CHECK(run.last_order() == Decision::pause);
  run.ends(0);
  CHECK(code_of(run.end()) == Errc::user_code);
  CHECK(contains(describe(run.end()), "the stop function failed for trial " + run.id(0)));
  CHECK(contains(describe(run.end()), "no such key"));
  CHECK(run.state(0) == TrialState::pending);
  CHECK(run.records<ResultRow>().empty());
}

TEST_CASE("experiment: a report that is said again before its verdict is asked once") {
  Run run;
  run.begin().starts(0).reports(0, 1).reports(0, 1);
  CHECK(run.all<AskScheduler>().size() == 2);  // with the addition
  run.verdict().reports(0, 1);
  CHECK(run.records<ResultRow>().size() == 1);
  CHECK(run.all<AnswerReport>().size() == 2);
}

// --- ends -----------------------------------------------------------------------------------

TEST_CASE("experiment: a function that returns completes with its last row, and no row more") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict().forget();
  run.ends(0);
  REQUIRE(run.all<AskScheduler>().size() == 1);
  CHECK(run.all<AskScheduler>()[0].kind == SchedulerEvent::Kind::complete);
  CHECK(run.all<AskScheduler>()[0].row->values.number("loss") == 1.0);
  run.verdict();
  CHECK(run.records<ResultRow>().empty());
  CHECK(run.records<TrialEnded>().at(0).why == "returned");
  CHECK_FALSE(run.end());
}

TEST_CASE("experiment: a function that returns without a row ends well") {
  Run run;
  run.begin().starts(0).ends(0);
  REQUIRE(run.all<AskScheduler>().back().row);
  CHECK(decode_metrics(run.all<AskScheduler>().back().row->bytes));
  run.verdict();
  CHECK(run.state(0) == TrialState::terminated);
}

TEST_CASE("experiment: a trial that was told to stop and does not is killed, and TERMINATED") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict({.decision = Decision::stop});
  run.passes(limits::kTrialEnd - 1ms);
  CHECK(run.all<StopTrial>().empty());
  run.passes(1ms);
  REQUIRE(run.all<StopTrial>().size() == 1);
  CHECK(run.all<StopTrial>()[0].mode == StopMode::kill);
  CHECK(run.state(0) == TrialState::terminated);
  REQUIRE(run.said(true).size() == 1);
  CHECK(contains(run.said(true)[0], "was told to stop and goes on after 60 s"));
  CHECK_FALSE(run.end());
}

TEST_CASE("experiment: a step that takes longer than step_timeout is the user's failure") {
  Run run({.step_timeout = 2s});
  run.begin().starts(0);
  run.passes(1999ms);
  CHECK(run.all<StopTrial>().empty());
  run.passes(1ms).passes(1s);
  REQUIRE(run.all<StopTrial>().size() == 1);
  CHECK(run.all<StopTrial>()[0].mode == StopMode::fail);
  CHECK(contains(run.all<StopTrial>()[0].text, "step_timeout (2"));
}

TEST_CASE("experiment: the time that a trial waits for its answer is not its step's") {
  Run run({.step_timeout = 2s});
  run.begin().starts(0).reports(0, 1).passes(10s);
  CHECK(run.all<StopTrial>().empty());
  run.verdict().passes(1s);
  CHECK(run.all<StopTrial>().empty());
}

TEST_CASE(
    "experiment: out of time, running trials end after their step and the rest never begins") {
  Run run({.time_budget = 10s}, 3);
  run.begin().starts(0).reports(0, 1).verdict().passes(10s);
  CHECK(run.all<StopTrial>().at(0).mode == StopMode::cancel);
  run.reports(0, 2).verdict();
  CHECK(run.last_order() == Decision::stop);
  run.ends(0);
  CHECK_FALSE(run.end());
  for (const std::uint64_t trial : {0, 1, 2}) CHECK(run.state(trial) == TrialState::terminated);
}

TEST_CASE("experiment: a resume with no time left starts nothing") {
  Run run({.time_budget = 10s}, 3);
  run.restore({added(0), TimeUsed{.seconds = 10}});
  CHECK(run.all<StartTrial>().empty());
  CHECK_FALSE(run.end());
  CHECK(run.core->trial_count() == 1);
}

TEST_CASE(
    "experiment: an interrupted trial that was told to pause is left PAUSED, and nothing hangs") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict({.decision = Decision::pause});
  run.core->interrupt("interrupted by SIGINT", run.now);
  run.ends(0);
  CHECK(code_of(run.end()) == Errc::cancelled);
  CHECK(run.state(0) == TrialState::paused);
}

TEST_CASE("experiment: a process that starts while the run ends is not wanted any more") {
  Run run;
  run.begin();
  run.core->interrupt("interrupted by SIGINT", run.now);
  run.child({.child = 0, .kind = ChildEvent::Kind::started, .incarnation = 1});
  CHECK(run.all<StopTrial>().at(0).mode == StopMode::kill);
  CHECK(run.state(0) == TrialState::pending);
  CHECK(run.core->running_count() == 0);
  CHECK(code_of(run.end()) == Errc::cancelled);
}

// --- failures -------------------------------------------------------------------------------

TEST_CASE("experiment: every failure stands in error.txt, with a number of its own") {
  Run run;
  run.begin().starts(0).fails(0, true, 0).starts(0).fails(0, false, 1).verdict();
  const auto errors = run.all<WriteError>();
  REQUIRE(errors.size() == 2);
  CHECK(errors[0].number == 1);
  CHECK(errors[1].number == 2);
  CHECK(run.state(0) == TrialState::error);
  CHECK(run.core->failure_count(0) == 1);
}

TEST_CASE("experiment: recomputed rows are answered and go nowhere") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict().reports(0, 2).verdict().fails(0, true);
  run.starts(0).forget();
  run.reports(0, 1).reports(0, 2);
  CHECK(run.records<ResultRow>().empty());
  CHECK(run.all<AnswerReport>().size() == 2);
  CHECK(run.last_order() == Decision::proceed);
  run.reports(0, 3).verdict();
  CHECK(run.records<ResultRow>().at(0).iteration == 3);
}

TEST_CASE("experiment: what an older process says is dropped") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict().fails(0, true);
  CHECK_FALSE(run.core->is_current(0, 1));
  run.forget();
  run.reports(0, 2).saves(0, 1);
  run.starts(0);
  run.core->on_saved({.trial = 0, .incarnation = 1, .iteration = 1, .name = "checkpoint_1"},
                     run.now);
  CHECK(run.core->take_commands().empty());
  CHECK(run.records<ResultRow>().empty());
  CHECK(run.records<CheckpointSaved>().empty());
}

TEST_CASE("experiment: a process is heard before the supervisor has told of it") {
  Run run;
  run.begin();
  run.core->on_ready({.trial = 0, .incarnation = 1}, run.now);
  CHECK(run.state(0) == TrialState::running);
  run.child({.child = 0, .kind = ChildEvent::Kind::started, .incarnation = 1, .pid = 77});
  CHECK(run.core->running_count() == 1);
  CHECK(run.core->snapshot(0).location == "pid=77");
}

TEST_CASE("experiment: the supervisor forgets a stopped trial whose process failed") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict({.decision = Decision::stop}).fails(0, true);
  CHECK(run.state(0) == TrialState::terminated);
  REQUIRE(run.all<StopTrial>().size() == 1);
  CHECK(run.all<StopTrial>()[0].mode == StopMode::kill);
}

TEST_CASE("experiment: with fail_fast the first failure ends the run, and the others can go on") {
  Run run({.fail_fast = true}, 3);
  run.begin().starts(0).starts(1).fails(0, false).verdict();
  CHECK(contains(describe(run.end()), "fail_fast"));
  CHECK(run.state(0) == TrialState::error);
  CHECK(run.state(1) == TrialState::pending);
  CHECK(run.state(2) == TrialState::pending);
  CHECK(run.records<TrialEnded>().size() == 1);
}

TEST_CASE("experiment: two failures at once with fail_fast are both noted") {
  Run run({.fail_fast = true}, 2);
  run.begin().starts(0).starts(1).fails(0, false).fails(1, false).verdict().verdict();
  CHECK(run.end());
  CHECK(run.state(0) == TrialState::error);
  CHECK(run.state(1) == TrialState::error);
}

// --- the first wave -------------------------------------------------------------------------

TEST_CASE("experiment: a ConfigError in the first wave ends the run") {
  Run run({}, 3);
  run.begin();
  run.core->on_config_error(1, "config has no key 'hiden'; did you mean 'hidden'?");
  run.core->on_tick(run.now);
  run.passes(0ms);
  CHECK(code_of(run.end()) == Errc::bad_request);
  CHECK(contains(describe(run.end()), "did you mean 'hidden'"));
}

TEST_CASE("experiment: a ConfigError after a setup that succeeded is one trial's failure") {
  Run run({}, 2);
  run.begin().starts(0);
  run.core->on_config_error(1, "config has no key 'hiden'");
  CHECK(run.all<Finish>().empty());
}

TEST_CASE("experiment: a function has proved its setup with its first report") {
  Run run({}, 2);
  run.begin();
  run.core->on_ready({.trial = 0, .incarnation = 1, .set_up = false}, run.now);
  SUBCASE("not before") {
    run.core->on_config_error(0, "config has no key 'hiden'");
    run.passes(0ms);
    CHECK(code_of(run.end()) == Errc::bad_request);
  }
  SUBCASE("after it") {
    run.reports(0, 1).verdict();
    run.core->on_config_error(0, "config has no key 'hiden'");
    run.passes(0ms);
    CHECK(run.all<Finish>().empty());
  }
}

TEST_CASE("experiment: while no setup has succeeded, one that failed holds new trials back") {
  Run run({}, 1000);
  run.begin();
  const auto wave = run.core->trial_count();
  CHECK(wave == static_cast<std::size_t>(limits::kPendingTrials));
  for (std::uint64_t trial = 0; trial + 1 < wave; ++trial) {
    run.child({.child = trial, .kind = ChildEvent::Kind::started, .incarnation = 1});
    if (trial == 0) CHECK(run.core->trial_count() == wave + 1);
    run.fails(trial, false).verdict();
  }
  CHECK(run.core->trial_count() == wave + 1);
  run.starts(wave - 1);
  CHECK(run.core->trial_count() > wave + 1);
}

TEST_CASE("experiment: a first wave that fails as a whole is followed by another") {
  Run run({.max_concurrent = 2}, 4);
  run.begin();
  for (const std::uint64_t trial : {0, 1})
    run.child({.child = trial, .kind = ChildEvent::Kind::started, .incarnation = 1});
  run.fails(0, false).verdict();
  CHECK(run.core->trial_count() == 2);
  run.fails(1, false).verdict();
  CHECK(run.core->trial_count() == 4);
}

// --- pausing --------------------------------------------------------------------------------

TEST_CASE("experiment: a trial that is resumed while it still saves runs again at once") {
  Run run({}, 2);
  run.begin().starts(0).starts(1);
  run.reports(0, 1).verdict({.decision = Decision::pause});
  run.reports(1, 1).verdict({.resume = {run.id(0)}}).forget();
  run.ends(0);
  CHECK(run.all<StartTrial>().size() == 1);
  CHECK(run.state(0) == TrialState::pending);
}

TEST_CASE("experiment: a trial that is stopped while it still saves ends") {
  Run run({}, 2);
  run.begin().starts(0).starts(1);
  run.reports(0, 1).verdict({.decision = Decision::pause});
  run.reports(1, 1).verdict({.stop = {run.id(0)}});
  run.ends(0);
  CHECK(run.state(0) == TrialState::terminated);
}

TEST_CASE("experiment: a failure while it pauses leaves a trial paused") {
  Run run({}, 2);
  run.begin().starts(0).starts(1).reports(0, 1).verdict({.decision = Decision::pause}).forget();
  run.fails(0, true);
  CHECK(run.state(0) == TrialState::paused);
  CHECK(run.all<StartTrial>().empty());
  CHECK(run.all<WriteError>().size() == 1);
}

TEST_CASE("experiment: when all are paused and no more come, all go on") {
  Run run({}, 2);
  run.begin().starts(0).starts(1);
  run.reports(0, 1).verdict({.decision = Decision::pause}).ends(0);
  run.forget();
  run.reports(1, 1).verdict({.decision = Decision::pause}).ends(1);
  CHECK(run.all<StartTrial>().size() == 2);
}

TEST_CASE("experiment: max_concurrent holds for trials that a resume begins with too") {
  Run run({.max_concurrent = 1}, 4);
  std::vector<Record> journal;
  for (std::uint64_t trial = 0; trial < 4; ++trial) {
    journal.emplace_back(added(trial));
    journal.emplace_back(TrialEnded{.trial = trial, .state = TrialState::error, .why = "failed"});
  }
  run.restore(journal, Resume::restart_errored);
  CHECK(run.all<StartTrial>().size() == 1);
  run.starts(0).ends(0).verdict();
  CHECK(run.all<StartTrial>().size() == 2);
}

// --- going on with an earlier run -----------------------------------------------------------

TEST_CASE("experiment: a resume makes the trials that the earlier run had not made yet") {
  Run run({}, 4);
  run.restore({added(0), TrialEnded{.trial = 0, .why = "stopped"}, added(1), row(1, 1)});
  CHECK(run.core->trial_count() == 4);
  CHECK(run.all<StartTrial>().size() == 3);
  CHECK(run.all<StartTrial>()[0].trial == 1);
}

TEST_CASE("experiment: fewer num_samples than there are trials throw none away, and it is told") {
  Run run({}, 1);
  run.restore({added(0), added(1), TrialEnded{.trial = 0, .why = "stopped"}});
  REQUIRE(run.said(true).size() == 1);
  CHECK(contains(run.said(true)[0], "has 2 trials already, num_samples asks for 1"));
  CHECK(run.all<StartTrial>().size() == 1);
}

TEST_CASE("experiment: a run that had ended is over at once") {
  Run run({}, 1);
  run.restore({added(0), TrialEnded{.trial = 0, .why = "stopped"}, RunEnded{.why = "complete"}});
  CHECK(run.all<StartTrial>().empty());
  CHECK_FALSE(run.end());
}

TEST_CASE("experiment: a decided STOP whose end nobody could note is carried out") {
  Run run({}, 1);
  run.restore({added(0), row(0, 1, Decision::stop)});
  CHECK(run.state(0) == TrialState::terminated);
  CHECK(run.all<StartTrial>().empty());
  CHECK(run.records<TrialEnded>().size() == 1);
}

TEST_CASE("experiment: errored_only goes on from the checkpoint, and no other trial runs") {
  Run run({}, 4);
  const std::vector<Record> journal = {
      added(0),
      row(0, 1),
      row(0, 2),
      CheckpointSaved{.trial = 0, .iteration = 2, .name = "checkpoint_2"},
      TrialFailed{.trial = 0, .user = true, .text = "no", .failure_count = 1},
      TrialEnded{.trial = 0, .state = TrialState::error, .why = "failed"},
      added(1),
      row(1, 1)};
  run.restore(journal, Resume::errored_only);
  REQUIRE(run.all<StartTrial>().size() == 1);
  CHECK(run.all<StartTrial>()[0].trial == 0);
  CHECK(run.core->iteration(0) == 2);
  CHECK(run.core->failure_count(0) == 0);
  CHECK(run.core->trial_count() == 2);
  run.starts(0, 2).reports(0, 3).verdict();
  CHECK(run.records<ResultRow>().at(0).iteration == 3);
}

TEST_CASE("experiment: restart_errored begins at 1 and forgets rows and checkpoints") {
  Run run({}, 1);
  run.restore({added(0), row(0, 1), CheckpointSaved{.trial = 0, .iteration = 1, .name = "c"},
               TrialEnded{.trial = 0, .state = TrialState::error, .why = "failed"}},
              Resume::restart_errored);
  CHECK(run.core->iteration(0) == 0);
  CHECK(run.core->row_iteration(0) == 0);
  CHECK(run.core->checkpoints(0) == nullptr);
  CHECK(run.records<TrialReopened>().at(0).from_beginning);
  run.starts(0).reports(0, 1).verdict();
  CHECK(run.records<ResultRow>().at(0).iteration == 1);
}

TEST_CASE("experiment: a paused trial stays so over a resume, unless it had run again") {
  const std::vector<Record> journal = {added(0), row(0, 1, Decision::pause), added(1)};
  Run paused({}, 2);
  paused.restore(journal);
  CHECK(paused.state(0) == TrialState::paused);

  auto again = journal;
  again.emplace_back(TrialStarted{.trial = 0, .incarnation = 2});
  Run runs({}, 2);
  runs.restore(again);
  CHECK(runs.state(0) == TrialState::pending);
  CHECK(runs.all<StartTrial>().size() == 2);
}

TEST_CASE("experiment: what the scheduler did to others comes from it again in a resume") {
  Run run({}, 2);
  const auto feed = [&](const SchedulerEvent& event) -> Result<SchedulerVerdict> {
    if (event.kind == SchedulerEvent::Kind::result && event.trial_id == added(1).id)
      return SchedulerVerdict{.resume = {added(0).id}};
    return SchedulerVerdict{};
  };
  for (const auto& record :
       std::vector<Record>{added(0), added(1), row(0, 1, Decision::pause), row(1, 1)})
    REQUIRE(run.core->restore(record, feed));
  REQUIRE(run.core->resume(Resume::yes, feed));
  run.begin();
  CHECK(run.state(0) == TrialState::pending);
  CHECK(run.all<StartTrial>().size() == 2);
}

TEST_CASE("experiment: checkpoints of an earlier life are not deleted again") {
  Run run({}, 1);
  run.restore({added(0), row(0, 1), CheckpointSaved{.trial = 0, .iteration = 1, .name = "c1"},
               row(0, 2), CheckpointSaved{.trial = 0, .iteration = 2, .name = "c2"}, row(0, 3)});
  CHECK(run.all<DeleteCheckpoint>().empty());

  Run cut({}, 1);  // the driver was killed before it could
  cut.restore({added(0), row(0, 1), CheckpointSaved{.trial = 0, .iteration = 1, .name = "c1"},
               row(0, 2), CheckpointSaved{.trial = 0, .iteration = 2, .name = "c2"}});
  REQUIRE(cut.all<DeleteCheckpoint>().size() == 1);
  CHECK(cut.all<DeleteCheckpoint>()[0].name == "c1");
}

TEST_CASE("experiment: a checkpoint that was published and not told of is known by its process") {
  Run run({}, 1);
  run.restore({added(0), row(0, 1), row(0, 2)}).starts(0, 2);
  REQUIRE(run.records<CheckpointSaved>().size() == 1);
  CHECK(run.records<CheckpointSaved>()[0].iteration == 2);
  CHECK(run.records<TrialStarted>().at(0).from_iteration == 2);
  REQUIRE(run.core->checkpoints(0));
  CHECK(run.core->checkpoints(0)->newest()->iteration == 2);
}

TEST_CASE("experiment: a checkpoint that is gone is told, with where the trial goes on") {
  Run run({}, 1);
  run.restore({added(0), row(0, 1), CheckpointSaved{.trial = 0, .iteration = 1, .name = "c1"}});
  run.starts(0, 0);
  REQUIRE(run.said(true).size() == 1);
  CHECK(contains(run.said(true)[0], "iteration 1 is gone or broken; it goes on from iteration 0"));
}

TEST_CASE("experiment: a journal that contradicts itself is corrupt, and nothing aborts") {
  const std::vector<std::vector<Record>> journals = {
      {row(0, 1)},
      {added(1)},
      {added(0), TrialEnded{.trial = 0}, TrialEnded{.trial = 0}},
      {added(0), TrialReopened{.trial = 0}}};
  for (const auto& journal : journals) {
    Run run;
    Result<void> last;
    for (const auto& record : journal) last = run.core->restore(record, kNoScheduler);
    REQUIRE_FALSE(last);
    CHECK(code_of(last.error()) == Errc::corrupt);
  }
}

// --- scheduler and searcher -----------------------------------------------------------------

TEST_CASE(
    "experiment: no trial is made while a verdict is outstanding, so the journal has the order") {
  Run run({.max_concurrent = 2}, 3);
  run.begin().starts(0).starts(1).forget();
  run.reports(0, 1, {{"done", true}}).reports(1, 1).verdict().ends(0);
  CHECK(run.records<TrialAdded>().empty());  // the other's verdict is not there
  run.verdict();
  CHECK(run.records<TrialAdded>().size() == 1);
}

TEST_CASE("experiment: the searcher hears of every row and every end") {
  Run run;
  run.begin().starts(0).reports(0, 1).verdict().ends(0).verdict();
  const auto told = run.core->searcher().state();
  CHECK(told.starts_with("suggest 0\nresult 0 1.000000\ncomplete 0 {"));

  Run restored;
  for (const auto& append : run.all<AppendRecord>())
    REQUIRE(restored.core->restore(append.record, kNoScheduler));
  CHECK(restored.core->searcher().state() == told);
}

TEST_CASE("experiment: a searcher that throws ends the run with its words") {
  class Throwing final : public Searcher {
    Result<void> begin(const SearchSpace&, const SearchOptions&) override { return {}; }
    Result<std::optional<Suggestion>> suggest(std::int64_t) override {
      throw std::runtime_error("matrix is singular");
    }
    std::optional<std::int64_t> total() const override { return 1; }
    std::string spec() const override { return "{}"; }
    std::string state() const override { return "{}"; }
  };
  Run run;
  run.core = std::make_unique<Experiment>(ExperimentSpec{}, std::make_unique<Throwing>());
  run.begin();
  CHECK(contains(describe(run.end()), "the searcher: matrix is singular"));
}

// --- cost -----------------------------------------------------------------------------------

TEST_CASE("experiment: a finished trial keeps less than 2 KB") {
  constexpr std::uint64_t kTrials = 4'000;
  Run run({}, kTrials + 100);
  const auto finish = [&](std::uint64_t trial) {
    Metrics row{{"mean_loss", 0.5},     {"mean_accuracy", 0.8},
                {"time_total_s", 3.25}, {"hostname", "some-machine"},
                {"pid", 12345},         {"date", "2026-12-01_09-30-00"},
                {"done", true}};
    run.starts(trial).reports(trial, 1, row).verdict().ends(trial);
    run.forget();
    run.commands.shrink_to_fit();
  };
  run.begin();
  for (std::uint64_t trial = 0; trial < 100; ++trial) finish(trial);
  const auto before = ::mallinfo2().uordblks;
  for (std::uint64_t trial = 100; trial < kTrials; ++trial) finish(trial);
  const auto bytes = (::mallinfo2().uordblks - before) / (kTrials - 100);
  CAPTURE(bytes);
  CHECK(bytes < 2048);
}

TEST_CASE("experiment: different notes of trials are bounded") {
  Run run;
  run.begin().starts(0).forget();
  for (int i = 0; i < 3'000; ++i) run.core->on_note(0, "note " + std::to_string(i));
  run.passes(0ms);
  CHECK(run.said(true).size() == static_cast<std::size_t>(limits::kNotes));
}
