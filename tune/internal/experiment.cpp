#include "tune/internal/experiment.hpp"

#include "libactor/assert.hpp"
#include "libactor/limits.hpp"
#include "tune/internal/wire.hpp"
#include "tune/naming.hpp"

#include <charconv>
#include <utility>

namespace troupe::tune::internal {

RowPtr trimmed(const RowPtr& row) {
  if (!row || row->bytes.empty()) return row;
  static const std::set<std::string_view> dropped = {"done",
                                                     "timesteps_total",
                                                     "episodes_total",
                                                     "experiment_id",
                                                     "date",
                                                     "timestamp",
                                                     "time_this_iter_s",
                                                     "pid",
                                                     "hostname",
                                                     "node_ip",
                                                     "time_since_restore",
                                                     "timesteps_since_restore",
                                                     "iterations_since_restore",
                                                     "trial_id"};
  auto result = std::make_shared<Row>();
  for (const auto& [key, value] : row->values)
    if (!dropped.contains(key)) result->values.set(key, value);
  return result;
}

Experiment::Experiment(ExperimentSpec spec, std::unique_ptr<Searcher> searcher)
    : spec_(std::move(spec)), searcher_(std::move(searcher)) {}

std::vector<Command> Experiment::take_commands() { return std::exchange(commands_, {}); }

const TrialResult& Experiment::last_result(std::uint64_t trial) const {
  static const TrialResult none;
  return trials_[trial].last_row ? trials_[trial].last_row->values : none;
}

std::int64_t Experiment::row_iteration(std::uint64_t trial) const {
  const Value* iteration = last_result(trial).find(kTrainingIteration);
  return iteration && iteration->is_int() ? iteration->as_int() : trials_[trial].iteration;
}

/// Of an event that needs a row, where a finished trial's is trimmed or there never was one.
RowPtr Experiment::whole_row(const Trial& trial) {
  if (trial.last_row && !trial.last_row->bytes.empty()) return trial.last_row;
  const TrialResult values = trial.last_row ? trial.last_row->values : TrialResult{};
  return std::make_shared<Row>(Row{encode(values), values});
}

void Experiment::move(Trial& trial, Place place) {
  if (trial.place != Place::none) --counts_[static_cast<std::size_t>(trial.place)];
  trial.place = place;
  if (place != Place::none) ++counts_[static_cast<std::size_t>(place)];
}

/// Ids end in the trial's index.
std::optional<std::uint64_t> Experiment::find(const std::string& id) const {
  std::uint64_t index = 0;
  const auto digits = id.rfind('_') + 1;
  const auto read = std::from_chars(id.data() + digits, id.data() + id.size(), index);
  if (read.ec != std::errc{} || index >= trials_.size() || trials_[index].id != id) return {};
  return index;
}

/// Without it the run can't go on, but nothing is lost.
void Experiment::needs(const Result<void>& done) {
  if (!done) wind_down(Phase::interrupted, done.error());
}

// --- beginning, and the order of things -----------------------------------------------------

void Experiment::begin(Clock::Time now) {
  now_ = begun_ = time_noted_ = now;
  const auto expected = expected_count();
  if (expected && *expected >= 0 && trial_count() > static_cast<std::uint64_t>(*expected))
    say(true, "this run has " + std::to_string(trial_count()) + " trials already, num_samples " +
                  "asks for " + std::to_string(*expected) + ": none is thrown away");
  if (budget_used_up())
    wind_down(Phase::out_of_time, {});
  else
    for (const auto index : live_)
      if (trials_[index].place != Place::paused) queue(index);
  go_on();
}

/// After every event: what can begin now.
void Experiment::go_on() {
  start_queued();
  while (sent_ == 0 && wants_trial()) create();
  const bool all_paused = exhausted_ && !live_.empty() && live_.size() == count(Place::paused);
  if (phase_ == Phase::running && all_paused) {
    for (const auto index : live_) queue(index);
    start_queued();
  }
  while (sent_ < asks_.size() && !wants_trial()) {
    const Ask& ask = asks_[sent_++];
    push(AskScheduler{ask.kind, ask.trial, ask.row});
  }
  check_end();
}

void Experiment::start_queued() {
  while (phase_ == Phase::running && !queued_.empty() && may_start()) {
    const auto index = queued_.front();
    queued_.pop_front();
    if (trials_[index].place == Place::queued) start(index);
  }
}

/// Trials are made ahead of free resources: a few wait with the head, the rest does not exist yet.
/// While no `setup` has succeeded, one that failed makes all wait for the trials that are there.
bool Experiment::wants_trial() const {
  if (phase_ != Phase::running || exhausted_ || count(Place::queued) > 0 || !may_start())
    return false;
  return first_setup_done_ || !setup_failed_ || live_.empty();
}

bool Experiment::may_start() const {
  const auto started = live_.size() - count(Place::paused) - count(Place::queued);
  return count(Place::requested) < static_cast<std::size_t>(limits::kPendingTrials) &&
         (spec_.max_concurrent == 0 || started < static_cast<std::size_t>(spec_.max_concurrent));
}

void Experiment::create() {
  if (live_.empty()) setup_failed_ = false;
  const auto index = trials_.size();
  std::optional<Suggestion> suggestion;
  needs(tell_searcher([&](Searcher& searcher) {
    suggestion = unwrap(searcher.suggest(static_cast<std::int64_t>(index)));
  }));
  if (!suggestion) {
    exhausted_ = true;
    return;
  }
  Trial trial;
  trial.id = tune::trial_id(head_from_seed(spec_.seed), static_cast<std::int64_t>(index));
  trial.tag = suggestion->tag;
  trial.directory = trial_directory(spec_.trainable_name + "_" + trial.id, trial.tag, spec_.date);
  trial.config = spec_.defaults;
  trial.config.merge(suggestion->config);
  push(AppendRecord{TrialAdded{.trial = index,
                               .id = trial.id,
                               .tag = trial.tag,
                               .directory = trial.directory,
                               .config = encode(trial.config)}});
  trials_.push_back(std::move(trial));
  live_.insert(index);
  push(AskScheduler{SchedulerEvent::Kind::add, index, {}});
  start(index);
}

void Experiment::queue(std::uint64_t index) {
  Trial& trial = trials_[index];
  if (trial.status.state() == TrialState::paused) trial.status.become(TrialState::pending);
  move(trial, Place::queued);
  queued_.push_back(index);
}

void Experiment::start(std::uint64_t index) {
  move(trials_[index], Place::requested);
  push(OpenTrial{index});
  push(StartTrial{index, false});
}

void Experiment::ask(Ask ask) {
  trials_[ask.trial].asked = true;
  asks_.push_back(std::move(ask));
}

// --- the scheduler's answers ----------------------------------------------------------------

void Experiment::on_verdict(const SchedulerVerdict& verdict, Clock::Time now) {
  TROUPE_ASSERT(sent_ > 0);
  now_ = now;
  const Ask ask = std::move(asks_.front());
  asks_.pop_front();
  --sent_;
  Trial& trial = trials_[ask.trial];
  trial.asked = false;
  if (ask.kind == SchedulerEvent::Kind::remove)
    finish_trial(ask.trial, TrialState::error, "failed");
  else if (ask.returned)
    finish_trial(ask.trial, TrialState::terminated, kReturned);
  else
    accept_row(ask, verdict);
  apply_side_effects(verdict);
  if (trial.gone) settle(ask.trial);
  if (ask.kind == SchedulerEvent::Kind::remove && spec_.fail_fast)
    wind_down(
        Phase::failing,
        make_error(Errc::user_code, "trial " + trial.id +
                                        " failed and fail_fast is set; its error.txt lies in " +
                                        trial.directory));
  go_on();
}

void Experiment::accept_row(const Ask& ask, const SchedulerVerdict& verdict) {
  Trial& trial = trials_[ask.trial];
  const auto decision = ask.by_stopper ? Decision::stop : verdict.decision;
  trial.iteration = ask.iteration;
  trial.last_row = ask.row;
  push(AppendRecord{ResultRow{.trial = ask.trial,
                              .iteration = ask.iteration,
                              .row = ask.row->bytes,
                              .decision = decision,
                              .by_stopper = ask.by_stopper}});
  push(WriteRow{ask.trial, ask.iteration, ask.row});
  push(Notify{Notify::What::result, ask.trial});
  if (decision != Decision::proceed) trial.ending = decision;
  if (decision == Decision::stop && !ask.by_stopper)
    say(false, "trial stopped: trial=" + trial.id + (verdict.why.empty() ? "" : " " + verdict.why));
  if (trial.place == Place::running) {
    const auto order = order_for(trial);
    push(AnswerReport{ask.trial,
                      ask.iteration,
                      {.decision = order, .save = std::exchange(trial.save_wanted, false)}});
  }
  needs(tell_searcher([&](Searcher& searcher) {
    searcher.on_trial_result(static_cast<std::int64_t>(ask.trial), ask.row->values);
  }));
}

/// An interrupted run ends its trials' processes; in the journal they go on. Out of time, they end
/// there too.
Decision Experiment::order_for(Trial& trial) {
  if (phase_ == Phase::out_of_time) trial.ending = Decision::stop;
  return trial.ending.value_or(phase_ == Phase::running ? Decision::proceed : Decision::pause);
}

/// One that is about to pause counts as paused. Trials that run on are not stopped from outside.
void Experiment::apply_side_effects(const SchedulerVerdict& verdict) {
  for (const auto& id : verdict.stop) {
    const auto index = find(id);
    if (!index) continue;
    Trial& trial = trials_[*index];
    if (trial.ending == Decision::pause)
      trial.ending = Decision::stop;
    else if (trial.place == Place::paused || trial.place == Place::queued)
      finish_trial(*index, TrialState::terminated, "stopped while it was paused");
  }
  for (const auto& id : verdict.resume) {
    const auto index = find(id);
    if (!index) continue;
    if (trials_[*index].place == Place::paused) queue(*index);
    if (trials_[*index].ending == Decision::pause) trials_[*index].resume_wanted = true;
  }
  for (const auto& id : verdict.checkpoint)
    if (const auto index = find(id)) trials_[*index].save_wanted = true;
}

// --- what trials say ------------------------------------------------------------------------

bool Experiment::is_current(std::uint64_t index, std::uint64_t incarnation) const {
  if (index >= trials_.size()) return false;
  const Trial& trial = trials_[index];
  return (trial.place == Place::running && incarnation == trial.incarnation) ||
         (trial.place == Place::requested && incarnation > trial.incarnation);
}

/// A process may be heard before the supervisor has told of it.
bool Experiment::hear(std::uint64_t index, std::uint64_t incarnation, Clock::Time now) {
  if (!is_current(index, incarnation)) return false;
  now_ = now;
  Trial& trial = trials_[index];
  if (trial.place == Place::running) return true;
  trial.incarnation = incarnation;
  trial.waits_for.clear();
  trial.set_up = trial.timed_out = trial.answer_due = false;
  trial.since = now;
  trial.status.become(TrialState::running);
  move(trial, Place::running);
  push(Notify{Notify::What::started, index});
  return true;
}

void Experiment::on_ready(const TrialReady& ready, Clock::Time now) {
  if (!hear(ready.trial, ready.incarnation, now)) return;
  Trial& trial = trials_[ready.trial];
  trial.set_up = true;
  trial.since = now;
  first_setup_done_ |= ready.set_up;
  push(AppendRecord{TrialStarted{
      .trial = ready.trial, .incarnation = ready.incarnation, .from_iteration = ready.iteration}});
  if (ready.iteration < trial.checkpoint_iteration) {
    say(true, "trial " + trial.id + ": the checkpoint of iteration " +
                  std::to_string(trial.checkpoint_iteration) +
                  " is gone or broken; it goes on from iteration " +
                  std::to_string(ready.iteration));
    trial.checkpoint_iteration = ready.iteration;
  } else if (ready.iteration > trial.checkpoint_iteration) {
    // Its process died, or we did, between publishing and telling.
    record_checkpoint(ready.trial, ready.iteration, ready.checkpoint, ready.uuid);
  }
  if (ready.iteration > 0) push(Notify{Notify::What::restored, ready.trial});
  go_on();
}

void Experiment::on_report(const TrialReport& report, RowPtr row, Clock::Time now) {
  if (!hear(report.trial, report.incarnation, now)) return;
  Trial& trial = trials_[report.trial];
  if (trial.asked) return;  // said twice: the verdict is on its way
  trial.answer_due = true;
  first_setup_done_ = true;  // where `setup` is the function itself
  // Recomputed after a restart, and in the journal already; or beyond its end.
  if (report.iteration <= trial.iteration || trial.ending) {
    push(AnswerReport{report.trial, report.iteration, {.decision = order_for(trial)}});
    return go_on();
  }
  if (!spec_.metric.empty() && !row->values.number(spec_.metric)) {
    std::string known;
    for (const auto& [key, value] : row->values)
      if (value.is_number() && known.size() < 200) known += (known.empty() ? "" : ", ") + key;
    warn_of_missing(trial, spec_.metric, "the metric of this run; its numbers are: " + known);
  }
  const auto stop = stop_wanted(trial, row->values);
  if (!stop) {  // the row comes again after a resume
    wind_down(Phase::interrupted, stop.error());
    push(AnswerReport{report.trial, report.iteration, {.decision = order_for(trial)}});
    return go_on();
  }
  ask({.kind = *stop ? SchedulerEvent::Kind::complete : SchedulerEvent::Kind::result,
       .trial = report.trial,
       .iteration = report.iteration,
       .row = std::move(row),
       .by_stopper = *stop});
  go_on();
}

Result<bool> Experiment::stop_wanted(const Trial& trial, const TrialResult& row) {
  for (const auto& [key, value] : spec_.stop.criteria())
    if (!row.number(key))
      warn_of_missing(trial, key, "which stop asks for: that criterion is ignored");
  bool stop = false;
  auto asked = fence(Errc::user_code, [&] { stop = spec_.stop.should_stop(trial.id, row); });
  if (!asked) return with_context(asked.error(), "the stop function failed for trial " + trial.id);
  return stop;
}

void Experiment::warn_of_missing(const Trial& trial, const std::string& key,
                                 const std::string& rest) {
  if (warned_.insert(key).second)
    say(true, "trial " + trial.id + " reports no number '" + key + "', " + rest);
}

void Experiment::on_saved(const TrialSaved& saved, Clock::Time now) {
  if (!hear(saved.trial, saved.incarnation, now)) return;
  trials_[saved.trial].answer_due = true;
  record_checkpoint(saved.trial, saved.iteration, saved.name, saved.uuid);
  push(AnswerSaved{saved.trial});
}

void Experiment::on_answered(std::uint64_t index, Clock::Time now) {
  trials_[index].answer_due = false;
  trials_[index].since = now;
}

void Experiment::record_checkpoint(std::uint64_t index, std::int64_t iteration,
                                   const std::string& name, const std::string& uuid) {
  push(AppendRecord{
      CheckpointSaved{.trial = index, .iteration = iteration, .name = name, .uuid = uuid}});
  keep_checkpoint(index, iteration, name);
  push(Notify{Notify::What::saved, index});
}

void Experiment::keep_checkpoint(std::uint64_t index, std::int64_t iteration,
                                 const std::string& name) {
  Trial& trial = trials_[index];
  trial.checkpoint_iteration = iteration;
  if (!trial.checkpoints)
    trial.checkpoints =
        std::make_unique<CheckpointPolicy>(spec_.keep_checkpoints_num, spec_.checkpoint_score_attr);
  // After a restart rows may be ahead of the checkpoint: then its own is not at hand.
  static const TrialResult none;
  const bool at_hand = iteration == trial.iteration && trial.last_row;
  for (auto& gone :
       trial.checkpoints->on_saved(iteration, name, at_hand ? trial.last_row->values : none))
    push(DeleteCheckpoint{index, std::move(gone)});
}

void Experiment::on_note(std::uint64_t index, const std::string& text) {
  if (index < trials_.size() && warned_.size() < limits::kNotes && warned_.insert(text).second)
    say(true, "trial " + trials_[index].id + ": " + text);
}

void Experiment::on_config_error(std::uint64_t index, const std::string& text) {
  if (index >= trials_.size() || first_setup_done_) return;
  wind_down(Phase::failing,
            make_error(Errc::bad_request, "trial " + trials_[index].id + ": " + text));
  go_on();
}

// --- processes ------------------------------------------------------------------------------

void Experiment::on_child(const ChildEvent& event, Clock::Time now) {
  const auto index = event.child;
  if (!is_current(index, event.incarnation)) return;  // of a process that we have given up
  now_ = now;
  Trial& trial = trials_[index];
  switch (event.kind) {
    case ChildEvent::Kind::waiting: trial.waits_for = event.text; return;
    case ChildEvent::Kind::output: return;
    case ChildEvent::Kind::started:
      trial.location = "pid=" + std::to_string(event.pid);
      hear(index, event.incarnation, now);
      break;
    case ChildEvent::Kind::refused:
    case ChildEvent::Kind::ended:
    case ChildEvent::Kind::failed:
      trial.incarnation = event.incarnation;
      lose_process(index, event);
      break;
  }
  go_on();
}

/// Its end is looked at when the scheduler has answered for its last row.
void Experiment::lose_process(std::uint64_t index, const ChildEvent& event) {
  Trial& trial = trials_[index];
  move(trial, Place::closing);
  trial.location.clear();
  trial.waits_for.clear();
  trial.gone = event;
  if (!trial.asked) settle(index);
}

/// Its process is gone and nothing of it is with the scheduler: what now?
void Experiment::settle(std::uint64_t index) {
  Trial& trial = trials_[index];
  const ChildEvent event = *std::exchange(trial.gone, std::nullopt);
  const bool failed = event.kind == ChildEvent::Kind::failed;
  if (event.kind == ChildEvent::Kind::refused)
    wind_down(Phase::failing, make_error(Errc::out_of_resources, event.text));
  const bool wanted = trial.ending != Decision::stop && phase_ == Phase::running;
  if (failed && wanted) return settle_failure(index, event);
  if (failed)
    say(true, "trial " + trial.id + " was stopped, and failed while it ended: " + event.text);
  if (event.restart) forget_child(index);
  if (trial.ending == Decision::stop)
    finish_trial(index, TrialState::terminated, "stopped");
  else if (!wanted)
    set_aside(index);
  else if (trial.ending == Decision::pause)
    pause(index);
  else
    ask({.kind = SchedulerEvent::Kind::complete,
         .trial = index,
         .row = whole_row(trial),
         .returned = true});
}

void Experiment::settle_failure(std::uint64_t index, const ChildEvent& event) {
  Trial& trial = trials_[index];
  trial.failure_count = event.user_failures;
  push(AppendRecord{TrialFailed{.trial = index,
                                .user = event.user,
                                .text = event.text,
                                .failure_count = event.user_failures}});
  push(WriteError{index, ++trial.error_count, event.text});
  push(Notify{Notify::What::error, index, event.text});
  setup_failed_ = true;
  if (!event.restart) {
    ask({.kind = SchedulerEvent::Kind::remove, .trial = index});
  } else if (trial.ending == Decision::pause) {
    forget_child(index);
    pause(index);
  } else {
    if (trial.status.state() == TrialState::running) trial.status.become(TrialState::pending);
    move(trial, Place::requested);
    push(StartTrial{index, true});
  }
}

/// The supervisor waits to be told to restart what has no process any more.
void Experiment::forget_child(std::uint64_t index) { push(StopTrial{index, StopMode::kill, {}}); }

void Experiment::pause(std::uint64_t index) {
  Trial& trial = trials_[index];
  trial.ending.reset();
  trial.status.become(TrialState::paused);
  move(trial, Place::paused);
  push(CloseTrial{index, true});
  if (std::exchange(trial.resume_wanted, false)) queue(index);
}

// --- time -----------------------------------------------------------------------------------

void Experiment::on_tick(Clock::Time now) {
  if (finished_) return;
  now_ = now;
  for (const auto index : std::vector(live_.begin(), live_.end())) {
    Trial& trial = trials_[index];
    if (trial.place != Place::running || trial.answer_due || trial.timed_out) continue;
    const auto waited = now - trial.since;
    if (trial.ending) {
      if (waited < limits::kTrialEnd) continue;
      say(true, "trial " + trial.id + " was told to " +
                    (trial.ending == Decision::stop ? "stop" : "pause") + " and goes on after " +
                    std::to_string(limits::kTrialEnd.count() / 1000) + " s: it is killed");
      push(StopTrial{index, StopMode::kill, {}});
      lose_process(index, {.child = index, .kind = ChildEvent::Kind::ended});
    } else if (spec_.step_timeout.count() > 0 && trial.set_up && waited >= spec_.step_timeout) {
      trial.timed_out = true;
      push(StopTrial{index, StopMode::fail,
                     "a step took longer than step_timeout (" +
                         Value(spec_.step_timeout.count() / 1000.0).text() + " s)"});
    }
  }
  if (now - time_noted_ >= limits::kTimeNoted) note_time();
  if (budget_used_up() && phase_ == Phase::running) {
    say(false, "time_budget is used up: the running trials end");
    wind_down(Phase::out_of_time, {});
  }
  go_on();
}

std::chrono::milliseconds Experiment::time_used(Clock::Time now) const {
  return used_before_ + std::chrono::duration_cast<std::chrono::milliseconds>(now - begun_);
}

bool Experiment::budget_used_up() const {
  return spec_.time_budget.count() > 0 && time_used(now_) >= spec_.time_budget;
}

void Experiment::note_time() {
  time_noted_ = now_;
  push(AppendRecord{TimeUsed{.seconds = std::chrono::duration<double>(time_used(now_)).count()}});
}

// --- ends -----------------------------------------------------------------------------------

void Experiment::finish_trial(std::uint64_t index, TrialState state, std::string_view why) {
  Trial& trial = trials_[index];
  trial.status.become(state);
  trial.last_row = trimmed(trial.last_row);
  trial.ending.reset();
  move(trial, Place::none);
  live_.erase(index);
  push(AppendRecord{TrialEnded{.trial = index, .state = state, .why = std::string(why)}});
  push(CloseTrial{index, false});
  if (state == TrialState::terminated) push(Notify{Notify::What::complete, index});
  needs(complete_in_searcher(index));
}

Result<void> Experiment::complete_in_searcher(std::uint64_t index) {
  return tell_searcher([&](Searcher& searcher) {
    searcher.on_trial_complete(static_cast<std::int64_t>(index), last_result(index),
                               state(index) == TrialState::error);
  });
}

/// The run ends without it; out of time it ends too, else a resume goes on with it.
void Experiment::set_aside(std::uint64_t index) {
  if (phase_ == Phase::out_of_time)
    return finish_trial(index, TrialState::terminated, "out of time");
  Trial& trial = trials_[index];
  if (trial.status.state() == TrialState::running)
    trial.status.become(trial.ending == Decision::pause ? TrialState::paused : TrialState::pending);
  move(trial, Place::none);
  live_.erase(index);
  push(CloseTrial{index, false});
}

void Experiment::interrupt(const std::string& why, Clock::Time now) {
  now_ = now;
  wind_down(Phase::interrupted, make_error(Errc::cancelled, why));
  go_on();
}

/// Running trials save and end, or are killed when something failed; the others end here.
void Experiment::wind_down(Phase phase, Error error) {
  if (phase_ != Phase::running) return;
  phase_ = phase;
  end_error_ = std::move(error);
  for (const auto index : std::vector(live_.begin(), live_.end())) {
    switch (trials_[index].place) {
      case Place::running:
        push(StopTrial{index, phase == Phase::failing ? StopMode::kill : StopMode::cancel, {}});
        if (phase == Phase::failing)
          lose_process(index, {.child = index, .kind = ChildEvent::Kind::ended});
        break;
      case Place::requested:
        push(StopTrial{index, StopMode::kill, {}});
        set_aside(index);
        break;
      case Place::none:
      case Place::queued:
      case Place::paused: set_aside(index); break;
      case Place::closing: break;  // the verdict decides
    }
  }
}

void Experiment::check_end() {
  if (finished_ || !asks_.empty() || !live_.empty()) return;
  if (phase_ == Phase::running && !exhausted_) return;
  finished_ = true;
  note_time();
  push(AppendRecord{RunEnded{.why = end_error_ ? describe(end_error_) : "complete"}});
  push(Finish{end_error_});
}

TrialSnapshot Experiment::snapshot(std::uint64_t index) const {
  const Trial& trial = trials_[index];
  return {.id = trial.id,
          .name = spec_.trainable_name + "_" + trial.id,
          .tag = trial.tag,
          .directory = trial.directory,
          .state = trial.status.state(),
          .config = trial.config,
          .last_result = last_result(index),
          .location = trial.location,
          .waits_for = trial.waits_for,
          .failure_count = trial.failure_count,
          .error_file = trial.error_count > 0 ? trial.directory + "/error.txt" : ""};
}

}  // namespace troupe::tune::internal
