#include "tune/internal/experiment.hpp"

#include "libactor/assert.hpp"
#include "libactor/limits.hpp"
#include "tune/internal/wire.hpp"
#include "tune/naming.hpp"

#include <algorithm>
#include <utility>

namespace troupe::tune::internal {
namespace {

/// Why a function trainable's trial ended by itself; `restore` tells its last scheduler event by
/// it.
constexpr std::string_view kReturned = "returned";

/// Of a finished trial's last row only what tables show is kept: the user's metrics, iterations and
/// time.
RowPtr trimmed(const RowPtr& row) {
  if (!row) return row;
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

}  // namespace

Experiment::Experiment(ExperimentSpec spec, std::unique_ptr<Searcher> searcher)
    : spec_(std::move(spec)), searcher_(std::move(searcher)) {}

std::vector<Command> Experiment::take_commands() { return std::exchange(commands_, {}); }

std::chrono::milliseconds Experiment::time_used(Clock::Time now) const {
  return used_before_ + std::chrono::duration_cast<std::chrono::milliseconds>(now - begun_);
}

const TrialResult& Experiment::last_result(std::uint64_t trial) const {
  static const TrialResult none;
  return trials_[trial].last_row ? trials_[trial].last_row->values : none;
}

std::int64_t Experiment::row_iteration(std::uint64_t trial) const {
  const Value* iteration = last_result(trial).find(kTrainingIteration);
  return iteration && iteration->is_int() ? iteration->as_int() : trials_[trial].iteration;
}

// --- beginning ------------------------------------------------------------------------------

void Experiment::begin(Clock::Time now) {
  begun_ = budget_noted_ = now;
  for (const auto index : std::set(live_)) {
    push(OpenTrial{index});
    if (!paused_.contains(index)) push(StartTrial{index, false});
  }
  fill();
  check_end();
}

/// Makes trials ahead of free resources: a few wait with the head, the rest does not exist yet.
void Experiment::fill() {
  if (phase_ != Phase::running || creating_ || exhausted_) return;
  const std::size_t waiting = live_.size() - running_ - paused_.size();
  if (waiting >= static_cast<std::size_t>(limits::kPendingTrials)) return;
  if (spec_.max_concurrent > 0 &&
      live_.size() - paused_.size() >= static_cast<std::size_t>(spec_.max_concurrent))
    return;
  create(trials_.size());
}

void Experiment::create(std::uint64_t index) {
  auto suggestion = searcher_->suggest(static_cast<std::int64_t>(index));
  if (!suggestion) {
    wind_down(Phase::failing, suggestion.error());
    return;
  }
  if (!*suggestion) {
    exhausted_ = true;
    resume_paused();
    return;
  }
  Trial trial;
  trial.id = tune::trial_id(head_from_seed(spec_.seed), static_cast<std::int64_t>(index));
  trial.tag = (*suggestion)->tag;
  trial.directory = trial_directory(spec_.trainable_name + "_" + trial.id, trial.tag, spec_.date);
  trial.config = spec_.defaults;
  trial.config.merge((*suggestion)->config);
  trials_.push_back(std::move(trial));
  live_.insert(index);
  creating_ = true;
  ask({.kind = SchedulerEvent::Kind::add, .trial = index});
}

void Experiment::ask(Ask ask) {
  ++trials_[ask.trial].asked;
  push(AskScheduler{ask.kind, ask.trial, ask.row});
  asks_.push_back(std::move(ask));
}

// --- going on with an earlier run -----------------------------------------------------------

Result<void> Experiment::restore(const Record& record, const Feed& feed) {
  const auto known = [&](std::uint64_t index) -> Trial* {
    return index < trials_.size() ? &trials_[index] : nullptr;
  };
  const auto unknown = [](std::uint64_t index) {
    return make_error(Errc::corrupt, "the journal tells of trial " + std::to_string(index) +
                                         " before it was added");
  };
  if (const auto* added = std::get_if<TrialAdded>(&record)) {
    if (added->trial != trials_.size()) return unknown(added->trial);
    auto config = decode_config(added->config);
    if (!config) return with_context(config.error(), "trial " + added->id);
    Trial trial;
    trial.id = added->id;
    trial.tag = added->tag;
    trial.directory = added->directory;
    trial.config = std::move(*config);
    trials_.push_back(std::move(trial));
    live_.insert(added->trial);
    feed({.kind = SchedulerEvent::Kind::add, .trial_id = added->id, .config = added->config});
  } else if (const auto* result = std::get_if<ResultRow>(&record)) {
    Trial* trial = known(result->trial);
    if (!trial) return unknown(result->trial);
    auto values = decode_metrics(result->row);
    if (!values) return with_context(values.error(), "trial " + trial->id);
    trial->iteration = result->iteration;
    trial->last_row = std::make_shared<Row>(Row{result->row, std::move(*values)});
    if (result->decision != Decision::proceed) trial->ending = result->decision;
    feed(
        {.kind = result->by_stopper ? SchedulerEvent::Kind::complete : SchedulerEvent::Kind::result,
         .trial_id = trial->id,
         .row = result->row});
  } else if (const auto* saved = std::get_if<CheckpointSaved>(&record)) {
    Trial* trial = known(saved->trial);
    if (!trial) return unknown(saved->trial);
    keep_checkpoint(*trial, saved->iteration, saved->name);
  } else if (const auto* failed = std::get_if<TrialFailed>(&record)) {
    Trial* trial = known(failed->trial);
    if (!trial) return unknown(failed->trial);
    trial->failure_count = failed->failure_count;
    trial->has_error_file = true;
    trial->ending.reset();
  } else if (const auto* ended = std::get_if<TrialEnded>(&record)) {
    Trial* trial = known(ended->trial);
    if (!trial) return unknown(ended->trial);
    if (ended->state == TrialState::error)
      feed({.kind = SchedulerEvent::Kind::remove, .trial_id = trial->id});
    else if (ended->why == kReturned)
      feed({.kind = SchedulerEvent::Kind::complete,
            .trial_id = trial->id,
            .row = trial->last_row ? trial->last_row->bytes : encode(TrialResult{})});
    if (!trial->status.finished()) trial->status.become(ended->state);
    trial->last_row = trimmed(trial->last_row);
    live_.erase(ended->trial);
  } else if (const auto* again = std::get_if<TrialReopened>(&record)) {
    Trial* trial = known(again->trial);
    if (!trial) return unknown(again->trial);
    reopen(again->trial, again->from_beginning);
  } else if (const auto* used = std::get_if<TimeUsed>(&record)) {
    used_before_ = std::chrono::milliseconds(static_cast<std::int64_t>(used->seconds * 1000));
  }
  return {};
}

void Experiment::reopen(std::uint64_t index, bool from_beginning) {
  Trial& trial = trials_[index];
  trial.status.become(TrialState::pending);
  trial.ending.reset();
  trial.failure_count = 0;
  live_.insert(index);
  if (!from_beginning) return;
  trial.iteration = 0;
  trial.checkpoint_iteration = 0;
  trial.last_row.reset();
  trial.checkpoints.reset();
}

void Experiment::resume(Resume mode) {
  const bool only_errored = mode == Resume::errored_only || mode == Resume::restart_errored;
  for (const auto index : std::set(live_)) {
    Trial& trial = trials_[index];
    if (trial.ending == Decision::stop) {  // decided, and then nobody was left to note its end
      finish_trial(index, TrialState::terminated, "stopped");
    } else if (only_errored) {
      live_.erase(index);
    } else if (trial.ending == Decision::pause) {
      trial.ending.reset();
      trial.status.become(TrialState::running);
      trial.status.become(TrialState::paused);
      paused_.insert(index);
    }
  }
  if (!only_errored) return;
  exhausted_ = true;
  for (std::uint64_t index = 0; index < trials_.size(); ++index) {
    if (trials_[index].status.state() != TrialState::error) continue;
    const bool from_beginning = mode == Resume::restart_errored;
    reopen(index, from_beginning);
    push(AppendRecord{TrialReopened{.trial = index, .from_beginning = from_beginning}});
  }
}

void Experiment::keep_checkpoint(Trial& trial, std::int64_t iteration, const std::string& name) {
  trial.checkpoint_iteration = iteration;
  if (!trial.checkpoints)
    trial.checkpoints =
        std::make_unique<CheckpointPolicy>(spec_.keep_checkpoints_num, spec_.checkpoint_score_attr);
  static const TrialResult none;
  for (auto& gone :
       trial.checkpoints->on_saved(iteration, name, trial.last_row ? trial.last_row->values : none))
    push(DeleteCheckpoint{static_cast<std::uint64_t>(&trial - trials_.data()), std::move(gone)});
}

// --- the scheduler's answers ----------------------------------------------------------------

void Experiment::on_verdict(const SchedulerVerdict& verdict, Clock::Time now) {
  TROUPE_ASSERT(!asks_.empty());
  Ask ask = std::move(asks_.front());
  asks_.pop_front();
  const auto index = ask.trial;
  Trial& trial = trials_[index];
  --trial.asked;
  switch (ask.kind) {
    case SchedulerEvent::Kind::add:
      creating_ = false;
      push(AppendRecord{TrialAdded{.trial = index,
                                   .id = trial.id,
                                   .tag = trial.tag,
                                   .directory = trial.directory,
                                   .config = encode(trial.config)}});
      push(OpenTrial{index});
      if (phase_ == Phase::running)
        push(StartTrial{index, false});
      else
        live_.erase(index);
      break;
    case SchedulerEvent::Kind::result:
      accept_row(index, ask, verdict.decision);
      trial.since = now;
      break;
    case SchedulerEvent::Kind::complete:
      if (ask.returned)
        finish_trial(index, TrialState::terminated, kReturned);
      else
        accept_row(index, ask, Decision::stop);
      break;
    case SchedulerEvent::Kind::remove:
      finish_trial(index, TrialState::error, "failed");
      if (spec_.fail_fast)
        wind_down(
            Phase::failing,
            make_error(Errc::user_code, "trial " + trial.id +
                                            " failed and fail_fast is set; its error.txt lies in " +
                                            trial.directory));
      break;
  }
  apply_side_effects(verdict);
  if (trial.asked == 0 && trial.deferred) {
    const ChildEvent event = *std::exchange(trial.deferred, std::nullopt);
    process_gone(index, event);
  }
  fill();
  check_end();
}

void Experiment::accept_row(std::uint64_t index, const Ask& ask, Decision decision) {
  Trial& trial = trials_[index];
  trial.iteration = ask.iteration;
  trial.last_row = ask.row;
  push(AppendRecord{ResultRow{.trial = index,
                              .iteration = ask.iteration,
                              .row = ask.row->bytes,
                              .decision = decision,
                              .by_stopper = ask.by_stopper}});
  push(WriteRow{index, ask.iteration, ask.row});
  push(Notify{Notify::What::result, index});
  if (decision != Decision::proceed) trial.ending = decision;
  Decision told = decision;
  if (told == Decision::proceed && phase_ != Phase::running) told = order_while_ending(trial);
  if (std::exchange(trial.report_open, false))
    push(AnswerReport{index, {.decision = told, .save = std::exchange(trial.save_wanted, false)}});
}

/// An interrupted run ends its trials' processes; in the journal they go on. Out of time, they end
/// there too.
Decision Experiment::order_while_ending(Trial& trial) {
  if (phase_ != Phase::out_of_time) return Decision::pause;
  trial.ending = Decision::stop;
  return Decision::stop;
}

void Experiment::apply_side_effects(const SchedulerVerdict& verdict) {
  for (const auto& id : verdict.stop)
    if (const auto index = find(id); index && paused_.erase(*index) > 0)
      finish_trial(*index, TrialState::terminated, "stopped while it was paused");
  for (const auto& id : verdict.resume)
    if (const auto index = find(id); index && paused_.contains(*index)) restart(*index);
  for (const auto& id : verdict.checkpoint)
    if (const auto index = find(id)) trials_[*index].save_wanted = true;
}

std::optional<std::uint64_t> Experiment::find(const std::string& id) const {
  for (const auto index : live_)
    if (trials_[index].id == id) return index;
  return std::nullopt;
}

// --- what trials say ------------------------------------------------------------------------

void Experiment::on_ready(const TrialReady& ready, Clock::Time now) {
  if (ready.trial >= trials_.size()) return;
  Trial& trial = trials_[ready.trial];
  if (ready.incarnation != trial.incarnation) return;
  trial.set_up = true;
  trial.since = now;
  if (ready.iteration > 0) push(Notify{Notify::What::restored, ready.trial});
  if (ready.iteration < trial.checkpoint_iteration)
    push(Say{true, "trial " + trial.id + ": the checkpoint of iteration " +
                       std::to_string(trial.checkpoint_iteration) +
                       " is gone or broken; it goes on from iteration " +
                       std::to_string(ready.iteration)});
  first_setup_done_ = true;
}

bool Experiment::stop_wanted(const Trial& trial, const TrialResult& row) {
  for (const auto& [key, value] : spec_.stop.criteria())
    if (!row.find(key) && warned_.insert(key).second)
      push(Say{true, "trial " + trial.id + " reports no '" + key +
                         "', which stop asks for: that criterion is ignored"});
  if (spec_.stop.should_stop(trial.id, row)) return true;
  const Value* done = row.find(kDone);
  return done && done->is_bool() && done->as_bool();
}

void Experiment::on_report(const TrialReport& report, RowPtr row, Clock::Time now) {
  if (report.trial >= trials_.size()) return;
  Trial& trial = trials_[report.trial];
  if (report.incarnation != trial.incarnation || trial.asked > 0)
    return;  // an older life, or said twice
  trial.since = now;
  if (!spec_.metric.empty() && !row->values.find(spec_.metric) &&
      warned_.insert(spec_.metric).second) {
    std::string known;
    for (const auto& [key, value] : row->values)
      if (value.is_number() && known.size() < 200) known += (known.empty() ? "" : ", ") + key;
    push(Say{true, "trial " + trial.id + " reports no '" + spec_.metric +
                       "', the metric of this run; it reports: " + known});
  }
  if (report.iteration <= trial.iteration || trial.ending) {
    // Recomputed after a restart: it stands in the journal already.
    Decision told = trial.ending.value_or(Decision::proceed);
    if (!trial.ending && phase_ != Phase::running) told = order_while_ending(trial);
    push(AnswerReport{report.trial, {.decision = told}});
    return;
  }
  trial.report_open = true;
  const bool stop = stop_wanted(trial, row->values);
  ask({.kind = stop ? SchedulerEvent::Kind::complete : SchedulerEvent::Kind::result,
       .trial = report.trial,
       .iteration = report.iteration,
       .row = std::move(row),
       .by_stopper = stop});
}

void Experiment::on_saved(const TrialSaved& saved, Clock::Time now) {
  if (saved.trial >= trials_.size()) return;
  Trial& trial = trials_[saved.trial];
  if (saved.incarnation != trial.incarnation) return;
  trial.since = now;
  const auto same_name = [&](const auto& kept) { return kept.name == saved.name; };
  if (trial.checkpoints && std::ranges::any_of(trial.checkpoints->kept(), same_name)) {
    push(AnswerSaved{saved.trial});  // the one that a restart goes on from
    return;
  }
  push(AppendRecord{CheckpointSaved{
      .trial = saved.trial, .iteration = saved.iteration, .name = saved.name, .uuid = saved.uuid}});
  push(AnswerSaved{saved.trial});
  push(Notify{Notify::What::saved, saved.trial});
  keep_checkpoint(trial, saved.iteration, saved.name);
}

void Experiment::on_note(std::uint64_t index, const std::string& text) {
  if (index < trials_.size() && warned_.insert(text).second)
    push(Say{true, "trial " + trials_[index].id + ": " + text});
}

void Experiment::on_config_error(std::uint64_t index, const std::string& text) {
  if (index >= trials_.size() || first_setup_done_) return;
  wind_down(Phase::failing,
            make_error(Errc::bad_request, "trial " + trials_[index].id + ": " + text));
}

// --- processes ------------------------------------------------------------------------------

void Experiment::on_child(const ChildEvent& event, Clock::Time now) {
  const auto index = event.child;
  if (!live_.contains(index)) return;  // killed meanwhile: its last words
  Trial& trial = trials_[index];
  switch (event.kind) {
    case ChildEvent::Kind::waiting: trial.waits_for = event.text; return;
    case ChildEvent::Kind::output: return;
    case ChildEvent::Kind::started:
      trial.incarnation = event.incarnation;
      trial.waits_for.clear();
      trial.location = "pid=" + std::to_string(event.pid);
      trial.set_up = false;
      trial.timed_out = false;
      trial.since = now;
      trial.status.become(TrialState::running);
      ++running_;
      push(AppendRecord{TrialStarted{.trial = index,
                                     .incarnation = event.incarnation,
                                     .from_iteration = trial.checkpoint_iteration}});
      push(Notify{Notify::What::started, index});
      fill();
      return;
    case ChildEvent::Kind::refused:
    case ChildEvent::Kind::ended:
    case ChildEvent::Kind::failed:
      if (trial.asked > 0)
        trial.deferred = event;
      else
        process_gone(index, event);
      break;
  }
  fill();
  check_end();
}

namespace {

/// Its process may have gone before it was there: with the zygote that was to fork it.
void wait_again(TrialStatus& status) {
  if (status.state() != TrialState::pending) status.become(TrialState::pending);
}

}  // namespace

/// The process of a live trial is gone and nothing of it is with the scheduler.
void Experiment::process_gone(std::uint64_t index, const ChildEvent& event) {
  Trial& trial = trials_[index];
  if (trial.status.finished()) return;
  if (trial.status.state() == TrialState::running) --running_;
  trial.report_open = false;
  trial.location.clear();

  if (event.kind == ChildEvent::Kind::refused) {
    wind_down(Phase::failing, make_error(Errc::out_of_resources, event.text));
    live_.erase(index);
    return;
  }
  if (event.kind == ChildEvent::Kind::failed && trial.ending != Decision::stop &&
      phase_ == Phase::running) {
    trial.ending.reset();
    trial.failure_count = event.user_failures;
    push(AppendRecord{TrialFailed{.trial = index,
                                  .user = event.user,
                                  .text = event.text,
                                  .failure_count = event.user_failures}});
    push(WriteError{index, event.user_failures, event.text});
    trial.has_error_file = true;
    push(Notify{Notify::What::error, index});
    if (event.restart) {
      wait_again(trial.status);
      push(StartTrial{index, true});
    } else {
      ask({.kind = SchedulerEvent::Kind::remove, .trial = index});
    }
    return;
  }
  if (event.kind == ChildEvent::Kind::failed)
    push(Say{true, "trial " + trial.id + " was stopped, and failed while it ended: " + event.text});

  if (trial.ending == Decision::stop) {
    finish_trial(index, TrialState::terminated, "stopped");
  } else if (trial.ending == Decision::pause) {
    trial.ending.reset();
    trial.status.become(TrialState::paused);
    paused_.insert(index);
    resume_paused();
  } else if (phase_ == Phase::out_of_time) {
    finish_trial(index, TrialState::terminated, "out of time");
  } else if (phase_ != Phase::running) {
    wait_again(trial.status);  // a resume goes on with it
    live_.erase(index);
    push(CloseTrial{index});
  } else {
    ask({.kind = SchedulerEvent::Kind::complete,
         .trial = index,
         .row = trial.last_row,
         .returned = true});
  }
}

void Experiment::restart(std::uint64_t index) {
  paused_.erase(index);
  trials_[index].status.become(TrialState::pending);
  push(StartTrial{index, false});
}

/// Paused trials run again when no new ones are to be made.
void Experiment::resume_paused() {
  if (!exhausted_ || phase_ != Phase::running || live_.size() != paused_.size()) return;
  for (const auto index : std::set(paused_)) restart(index);
}

void Experiment::finish_trial(std::uint64_t index, TrialState state, std::string_view why) {
  Trial& trial = trials_[index];
  trial.status.become(state);
  trial.last_row = trimmed(trial.last_row);
  trial.waits_for.clear();
  live_.erase(index);
  push(AppendRecord{TrialEnded{.trial = index, .state = state, .why = std::string(why)}});
  push(CloseTrial{index});
  if (state == TrialState::terminated) push(Notify{Notify::What::complete, index});
}

// --- time and the end -----------------------------------------------------------------------

void Experiment::on_tick(Clock::Time now) {
  if (finished_) return;
  if (spec_.step_timeout.count() > 0)
    for (const auto index : live_) {
      Trial& trial = trials_[index];
      if (trial.status.state() != TrialState::running || !trial.set_up || trial.asked > 0 ||
          trial.timed_out)
        continue;
      if (now - trial.since < spec_.step_timeout) continue;
      trial.timed_out = true;
      push(StopTrial{index, StopMode::fail,
                     "a step took longer than step_timeout (" +
                         Value(spec_.step_timeout.count() / 1000.0).text() + " s)"});
    }
  if (now - budget_noted_ >= std::chrono::seconds(10)) {
    note_time(now);
  }
  if (spec_.time_budget.count() > 0 && phase_ == Phase::running &&
      time_used(now) >= spec_.time_budget) {
    push(Say{false, "time_budget is used up: the running trials end"});
    wind_down(Phase::out_of_time, {});
  }
}

void Experiment::note_time(Clock::Time now) {
  budget_noted_ = now;
  push(AppendRecord{TimeUsed{.seconds = std::chrono::duration<double>(time_used(now)).count()}});
}

void Experiment::interrupt(const std::string& why, Clock::Time now) {
  if (phase_ != Phase::running) return;
  note_time(now);
  wind_down(Phase::interrupted, make_error(Errc::cancelled, why));
}

void Experiment::wind_down(Phase phase, Error error) {
  if (phase_ != Phase::running) return;
  phase_ = phase;
  end_error_ = std::move(error);
  exhausted_ = true;
  for (const auto index : std::set(live_)) {
    Trial& trial = trials_[index];
    if (trial.status.state() == TrialState::running) {
      push(StopTrial{index, phase == Phase::failing ? StopMode::kill : StopMode::cancel, {}});
      if (phase != Phase::failing) continue;
      --running_;
      trial.status.become(TrialState::pending);
    } else {
      push(StopTrial{index, StopMode::kill, {}});
    }
    if (phase == Phase::out_of_time && trial.asked == 0) {
      paused_.erase(index);
      finish_trial(index, TrialState::terminated, "out of time");
    } else {
      live_.erase(index);
    }
  }
  check_end();
}

void Experiment::check_end() {
  if (finished_ || creating_ || !asks_.empty()) return;
  const bool none_left = live_.empty() && exhausted_;
  if (!none_left) return;
  finished_ = true;
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
          .error_file = trial.has_error_file ? trial.directory + "/error.txt" : ""};
}

}  // namespace troupe::tune::internal
