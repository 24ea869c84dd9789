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

#include <array>
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
  std::int64_t number;  ///< counts every failure of the trial
  std::string text;
};
struct CloseTrial {
  std::uint64_t trial;
  bool for_now;  ///< it will be opened again soon: only its descriptors go
};
struct DeleteCheckpoint {
  std::uint64_t trial;
  std::string name;
};
struct StartTrial {
  std::uint64_t trial;
  bool again;  ///< the supervisor has it already
};
struct StopTrial {
  std::uint64_t trial;
  StopMode mode;
  std::string text;
};
/// `add` has no verdict; every other event is answered by `on_verdict`, in order.
struct AskScheduler {
  SchedulerEvent::Kind kind;
  std::uint64_t trial;
  RowPtr row;
};
struct AnswerReport {
  std::uint64_t trial;
  std::int64_t iteration;
  TrialOrder order;
};
struct AnswerSaved {
  std::uint64_t trial;
};
struct Notify {
  enum class What { started, restored, result, saved, complete, error };
  What what;
  std::uint64_t trial;
  std::string text = {};  ///< error: the failure's
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

/// Of a finished trial's last row only what tables show is kept: the user's metrics, iterations and
/// time.
RowPtr trimmed(const RowPtr& row);

/// The deciding core behind `tune::run`: events in, commands out. No actors, no clock, no disk.
///
/// A result's way: `on_report` asks the scheduler, its verdict comes by `on_verdict`, and only then
/// the row is journalled, written and answered. Scheduler and searcher are told everything in the
/// order in which the journal has it, so that `restore` can feed new ones the same way: a new trial
/// is made only when no verdict is outstanding, and asks that come meanwhile are held back.
class Experiment {
 public:
  Experiment(ExperimentSpec spec, std::unique_ptr<Searcher> searcher);

  /// Gives a new scheduler one event of an earlier run; the same events bring the same verdicts.
  using Feed = std::function<Result<SchedulerVerdict>(const SchedulerEvent&)>;
  /// Everything that was known when the journal ended, record by record; call before `begin`.
  /// Without a searcher it only feeds: so a scheduler that died alone is brought back. Errors:
  /// corrupt, and those of scheduler and searcher.
  Result<void> restore(const Record& record, const Feed& feed);
  /// After the last record: which trials run again. By default those that had not ended.
  Result<void> resume(Resume mode, const Feed& feed);

  void begin(Clock::Time now);
  void on_verdict(const SchedulerVerdict& verdict, Clock::Time now);
  void on_child(const ChildEvent& event, Clock::Time now);
  void on_ready(const TrialReady& ready, Clock::Time now);
  void on_report(const TrialReport& report, RowPtr row, Clock::Time now);
  void on_saved(const TrialSaved& saved, Clock::Time now);
  /// AnswerReport or AnswerSaved is carried out: its next step begins.
  void on_answered(std::uint64_t trial, Clock::Time now);
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
  /// Whether this is the trial's present process. What others say is dropped.
  bool is_current(std::uint64_t trial, std::uint64_t incarnation) const;
  std::size_t trial_count() const { return trials_.size(); }
  /// Trials that have a process.
  std::size_t running_count() const { return count(Place::running); }
  /// Trials expected in all; -1: endless; nothing: not known.
  std::optional<std::int64_t> expected_count() const { return searcher_->total(); }
  const Searcher& searcher() const { return *searcher_; }
  TrialSnapshot snapshot(std::uint64_t trial) const;
  const std::string& trial_id(std::uint64_t trial) const { return trials_[trial].id; }
  const Config& config(std::uint64_t trial) const { return trials_[trial].config; }
  const std::string& directory(std::uint64_t trial) const { return trials_[trial].directory; }
  const std::string& tag(std::uint64_t trial) const { return trials_[trial].tag; }
  TrialState state(std::uint64_t trial) const { return trials_[trial].status.state(); }
  const TrialResult& last_result(std::uint64_t trial) const;
  /// Of the last journalled row, counted by rows; 0 before the first.
  std::int64_t iteration(std::uint64_t trial) const { return trials_[trial].iteration; }
  /// `training_iteration` of that row, which the user's own metrics may set.
  std::int64_t row_iteration(std::uint64_t trial) const;
  std::int64_t failure_count(std::uint64_t trial) const { return trials_[trial].failure_count; }
  /// How many processes it has had.
  std::uint64_t incarnation(std::uint64_t trial) const { return trials_[trial].incarnation; }
  const CheckpointPolicy* checkpoints(std::uint64_t trial) const {
    return trials_[trial].checkpoints.get();
  }
  /// Indices of trials that are not finished.
  const std::set<std::uint64_t>& live() const { return live_; }
  std::chrono::milliseconds time_used(Clock::Time now) const;

 private:
  /// Where a live trial is; always in one place.
  enum class Place {
    none,       ///< not live: finished, or left for a resume
    queued,     ///< may run, and waits for max_concurrent
    requested,  ///< the supervisor looks for a machine
    running,    ///< it has a process
    closing,    ///< its process is gone, and the scheduler is asked
    paused,     ///< without a process by the scheduler's wish
  };

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
    std::int64_t failure_count = 0;                      ///< those that count
    std::int64_t error_count = 0;                        ///< all: entries in error.txt
    std::string location = {};
    std::string waits_for = {};
    // while it is live:
    Place place = Place::none;
    bool asked = false;                   ///< an event of it is without a verdict
    bool answer_due = false;              ///< its process waits for us
    bool set_up = false;                  ///< this process's `setup` has succeeded
    bool timed_out = false;               ///< its process is being killed for that
    bool save_wanted = false;             ///< by the scheduler, with the next answer
    bool resume_wanted = false;           ///< by the scheduler, before it was paused
    std::optional<Decision> ending = {};  ///< it was told to stop or pause
    std::optional<ChildEvent> gone = {};  ///< its process's end, until the verdict is there
    Clock::Time since = {};               ///< begin of the present step
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
  /// Why a function trainable's trial ended by itself: `restore` knows its last event by it.
  static constexpr std::string_view kReturned = "returned";

  // new trials, and the order of things
  void go_on();
  void start_queued();
  bool wants_trial() const;
  bool may_start() const;
  void create();
  void queue(std::uint64_t index);
  void start(std::uint64_t index);
  void ask(Ask ask);
  void check_end();

  // results
  void accept_row(const Ask& ask, const SchedulerVerdict& verdict);
  Decision order_for(Trial& trial);
  Result<bool> stop_wanted(const Trial& trial, const TrialResult& row);
  void warn_of_missing(const Trial& trial, const std::string& key, const std::string& rest);
  void apply_side_effects(const SchedulerVerdict& verdict);
  void record_checkpoint(std::uint64_t index, std::int64_t iteration, const std::string& name,
                         const std::string& uuid);
  void keep_checkpoint(std::uint64_t index, std::int64_t iteration, const std::string& name);

  // processes
  bool hear(std::uint64_t index, std::uint64_t incarnation, Clock::Time now);
  void lose_process(std::uint64_t index, const ChildEvent& event);
  void settle(std::uint64_t index);
  void settle_failure(std::uint64_t index, const ChildEvent& event);
  void forget_child(std::uint64_t index);
  void pause(std::uint64_t index);

  // ends
  void finish_trial(std::uint64_t index, TrialState state, std::string_view why);
  void set_aside(std::uint64_t index);
  void wind_down(Phase phase, Error error);
  void note_time();
  bool budget_used_up() const;

  // an earlier run
  Result<void> restore_added(const TrialAdded& added, const Feed& feed);
  Result<void> restore_row(const ResultRow& row, const Feed& feed);
  Result<void> restore_end(const TrialEnded& ended, const Feed& feed);
  Result<void> reopen(std::uint64_t index, bool from_beginning, const Feed& feed);
  Result<void> feed_scheduler(const SchedulerEvent& event, const Feed& feed);

  void push(Command command) { commands_.push_back(std::move(command)); }
  void say(bool warning, std::string line) { push(Say{warning, std::move(line)}); }
  std::size_t count(Place place) const { return counts_[static_cast<std::size_t>(place)]; }
  void move(Trial& trial, Place place);
  std::optional<std::uint64_t> find(const std::string& id) const;
  static RowPtr whole_row(const Trial& trial);
  void needs(const Result<void>& done);
  Result<void> complete_in_searcher(std::uint64_t index);
  /// A searcher may be the user's own.
  template <class F>
  Result<void> tell_searcher(F&& call) {
    if (!searcher_) return {};
    auto told = fence(Errc::user_code, [&] { call(*searcher_); });
    if (!told) return with_context(told.error(), "the searcher");
    return {};
  }

  ExperimentSpec spec_;
  std::unique_ptr<Searcher> searcher_;
  std::vector<Trial> trials_;
  std::set<std::uint64_t> live_;  ///< those with a place
  std::array<std::size_t, 6> counts_ = {};
  std::deque<std::uint64_t> queued_;
  std::deque<Ask> asks_;
  std::size_t sent_ = 0;  ///< of `asks_`: with the scheduler; the others are held back
  std::vector<Command> commands_;
  std::set<std::string> warned_;   ///< sentences and keys
  bool exhausted_ = false;         ///< the searcher has no more
  bool first_setup_done_ = false;  ///< of all trials
  bool setup_failed_ = false;      ///< before that
  bool finished_ = false;
  Phase phase_ = Phase::running;
  Error end_error_;
  std::chrono::milliseconds used_before_ = {};  ///< time of earlier drivers
  Clock::Time now_ = {};                        ///< of the present event
  Clock::Time begun_ = {};
  Clock::Time time_noted_ = {};
};

}  // namespace troupe::tune::internal
