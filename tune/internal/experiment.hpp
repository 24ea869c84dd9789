#pragma once

#include "libactor/actor.hpp"
#include "libactor/clock.hpp"
#include "libactor/resources.hpp"
#include "libactor/result.hpp"
#include "tune/checkpoint_policy.hpp"
#include "tune/internal/journal.hpp"
#include "tune/internal/messages.hpp"
#include "tune/metrics.hpp"
#include "tune/resume.hpp"
#include "tune/scheduler.hpp"
#include "tune/searcher.hpp"
#include "tune/stopper.hpp"
#include "tune/trial.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tune::internal {

/// What the deciding core needs to know of a run.
struct ExperimentSpec {
  std::string metric = {};
  std::optional<Mode> mode = {};
  Stop stop = {};
  std::chrono::milliseconds time_budget = {};
  std::chrono::milliseconds step_timeout = {};
  std::int64_t max_concurrent = 0;  ///< 0: no limit of its own
  std::uint64_t seed = 0;
  std::int64_t keep_checkpoints_num = 1;
  std::string checkpoint_score_attr = {};
  bool fail_fast = false;
  std::string trainable_name = {};
  std::string date = {};  ///< "2026-12-01_09-30-00": part of new trials' folder names
  Config defaults = {};   ///< of the trainable, under every suggested config
};

/// One reported row, as it came and as it is read.
struct Row {
  std::string bytes = {};  ///< encoded
  TrialResult values = {};
};
using RowPtr = std::shared_ptr<const Row>;

/// What the shell must do, strictly in this order. A command that needs the disk may fail; the
/// shell then keeps it and all behind it, and tries again: nothing is answered before it is
/// written.
struct AppendRecord {
  Record record;
};
struct OpenTrial {
  std::uint64_t trial;
};
struct WriteRow {
  std::uint64_t trial;
  std::int64_t iteration;
  RowPtr row;
};
struct WriteError {
  std::uint64_t trial;
  std::int64_t number;
  std::string text;
};
struct CloseTrial {
  std::uint64_t trial;
};
struct DeleteCheckpoint {
  std::uint64_t trial;
  std::string name;
};
struct StartTrial {
  std::uint64_t trial;
  bool again;
};  ///< again: the supervisor has it already
struct StopTrial {
  std::uint64_t trial;
  StopMode mode;
  std::string text;
};
struct AskScheduler {
  SchedulerEvent::Kind kind;
  std::uint64_t trial;
  RowPtr row;
};
struct AnswerReport {
  std::uint64_t trial;
  TrialOrder order;
};
struct AnswerSaved {
  std::uint64_t trial;
};
struct Notify {
  enum class What { started, restored, result, saved, complete, error };
  What what;
  std::uint64_t trial;
};
struct Say {
  bool warning;
  std::string line;
};
struct Finish {
  Error error;
};  ///< no error: it ran to its end

using Command = std::variant<AppendRecord, OpenTrial, WriteRow, WriteError, CloseTrial,
                             DeleteCheckpoint, StartTrial, StopTrial, AskScheduler, AnswerReport,
                             AnswerSaved, Notify, Say, Finish>;

/// The deciding core behind `tune::run`: events in, commands out. No actors, no clock, no disk.
///
/// A result's way: `on_report` asks the scheduler, its verdict comes by `on_verdict`, and only then
/// the row is journalled, written and answered. Every scheduler event is asked and answered in one
/// queue, so the journal holds them in the order in which the scheduler saw them, and `restore` can
/// feed a new scheduler the same way.
class Experiment {
 public:
  Experiment(ExperimentSpec spec, std::unique_ptr<Searcher> searcher);

  /// Everything that was known when the journal ended, record by record; call before `begin`.
  /// `event` is given what a new scheduler must be fed, in order: the same way brings back a
  /// scheduler that died alone.
  using Feed = std::function<void(const SchedulerEvent&)>;
  Result<void> restore(const Record& record, const Feed& event);
  /// After the last record: which trials run again. By default those that had not ended.
  void resume(Resume mode);

  void begin(Clock::Time now);
  void on_verdict(const SchedulerVerdict& verdict, Clock::Time now);
  void on_child(const ChildEvent& event, Clock::Time now);
  void on_ready(const TrialReady& ready, Clock::Time now);
  void on_report(const TrialReport& report, RowPtr row, Clock::Time now);
  void on_saved(const TrialSaved& saved, Clock::Time now);
  /// `setup` threw a ConfigError: in the first wave the end of all, since every trial would fail.
  void on_config_error(std::uint64_t trial, const std::string& text);
  /// A trial's sentence for the log; the same one from another trial is not repeated.
  void on_note(std::uint64_t trial, const std::string& text);
  void on_tick(Clock::Time now);
  /// Running trials save and end; the journal says nothing of them, so that a resume goes on with
  /// them.
  void interrupt(const std::string& why, Clock::Time now);

  /// Empties the queue.
  std::vector<Command> take_commands();

  bool finished() const { return finished_; }
  std::size_t trial_count() const { return trials_.size(); }
  /// Trials expected in all; -1: endless; nothing: not known.
  std::optional<std::int64_t> expected_count() const { return searcher_->total(); }
  TrialSnapshot snapshot(std::uint64_t trial) const;
  const std::string& trial_id(std::uint64_t trial) const { return trials_[trial].id; }
  const Config& config(std::uint64_t trial) const { return trials_[trial].config; }
  const std::string& directory(std::uint64_t trial) const { return trials_[trial].directory; }
  const std::string& tag(std::uint64_t trial) const { return trials_[trial].tag; }
  const TrialResult& last_result(std::uint64_t trial) const;
  /// `training_iteration` of the last journalled row; 0 before the first.
  std::int64_t row_iteration(std::uint64_t trial) const;
  std::int64_t failure_count(std::uint64_t trial) const { return trials_[trial].failure_count; }
  const CheckpointPolicy* checkpoints(std::uint64_t trial) const {
    return trials_[trial].checkpoints.get();
  }
  std::int64_t iteration(std::uint64_t trial) const { return trials_[trial].iteration; }
  /// Indices of trials that are not finished.
  const std::set<std::uint64_t>& live() const { return live_; }
  std::chrono::milliseconds time_used(Clock::Time now) const;

 private:
  /// Everything kept of a trial; of a finished one less than 2 KB.
  struct Trial {
    std::string id = {};
    std::string tag = {};
    std::string directory = {};  ///< relative to the experiment's folder
    Config config = {};
    TrialStatus status = {};
    std::uint64_t incarnation = 0;
    std::int64_t iteration = 0;  ///< of the last journalled row
    RowPtr last_row = {};
    std::int64_t checkpoint_iteration = 0;               ///< of the newest checkpoint
    std::unique_ptr<CheckpointPolicy> checkpoints = {};  ///< none before the first
    std::int64_t failure_count = 0;
    bool has_error_file = false;
    std::string location = {};
    std::string waits_for = {};
    // while it is live:
    int asked = 0;             ///< scheduler events without verdict
    bool report_open = false;  ///< its process waits for an answer
    bool set_up = false;       ///< this incarnation's `setup` has succeeded
    std::optional<Decision> ending =
        {};  ///< it was told to stop or pause; its process may still be there
    std::optional<ChildEvent> deferred =
        {};                  ///< its process's end, met while a verdict was awaited
    Clock::Time since = {};  ///< begin of the present step
    bool timed_out = false;
    bool save_wanted = false;
  };
  struct Ask {
    SchedulerEvent::Kind kind;
    std::uint64_t trial;
    std::int64_t iteration = 0;
    RowPtr row = {};
    bool by_stopper = false;
    bool returned = false;  ///< complete: a function's return, whose row is in the journal already
  };
  enum class Phase { running, interrupted, out_of_time, failing };

  void push(Command command) { commands_.push_back(std::move(command)); }
  void fill();
  void create(std::uint64_t index);
  void ask(Ask ask);
  void accept_row(std::uint64_t index, const Ask& ask, Decision decision);
  Decision order_while_ending(Trial& trial);
  void keep_checkpoint(Trial& trial, std::int64_t iteration, const std::string& name);
  void reopen(std::uint64_t index, bool from_beginning);
  void note_time(Clock::Time now);
  void apply_side_effects(const SchedulerVerdict& verdict);
  void process_gone(std::uint64_t index, const ChildEvent& event);
  void finish_trial(std::uint64_t index, TrialState state, std::string_view why);
  void restart(std::uint64_t index);
  void resume_paused();
  void wind_down(Phase phase, Error error);
  void check_end();
  std::optional<std::uint64_t> find(const std::string& id) const;
  bool stop_wanted(const Trial& trial, const TrialResult& row);

  ExperimentSpec spec_;
  std::unique_ptr<Searcher> searcher_;
  std::vector<Trial> trials_;
  std::set<std::uint64_t> live_;    ///< not finished
  std::set<std::uint64_t> paused_;  ///< of these: without a process, by the scheduler's wish
  std::size_t running_ = 0;         ///< trials with a process
  std::deque<Ask> asks_;
  std::vector<Command> commands_;
  std::set<std::string> warned_;  ///< keys that were missing
  bool exhausted_ = false;        ///< the searcher has no more
  bool creating_ = false;         ///< an `add` is with the scheduler
  bool first_setup_done_ = false;
  bool finished_ = false;
  Phase phase_ = Phase::running;
  Error end_error_;
  std::chrono::milliseconds used_before_ = {};  ///< time of earlier incarnations of the driver
  Clock::Time begun_ = {};
  Clock::Time budget_noted_ = {};
};

}  // namespace troupe::tune::internal
