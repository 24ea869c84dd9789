#include "tune/internal/experiment_actor.hpp"

#include "libactor/checkpoint_folder.hpp"
#include "libactor/limits.hpp"
#include "libactor/log.hpp"
#include "libactor/output.hpp"
#include "tune/internal/host_memory.hpp"
#include "tune/internal/journal_disk.hpp"
#include "tune/internal/wire.hpp"
#include "tune/naming.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <system_error>

namespace troupe::tune::internal {
namespace {

Resources times(const Resources& one, std::int64_t count) {
  Resources all{.cpus = Amount::of_parts(one.cpus.parts() * count),
                .memory_bytes = one.memory_bytes * count};
  if (one.gpus) all.gpus = Amount::of_parts(one.gpus->parts() * count);
  for (const auto& [name, amount] : one.custom)
    all.custom[name] = Amount::of_parts(amount.parts() * count);
  return all;
}

/// What a trial printed, each line with the trial before it.
void print_output(const std::string& trial_id, const std::string& lines) {
  std::string text;
  for (std::size_t at = 0; at < lines.size();) {
    const auto end = std::min(lines.find('\n', at), lines.size());
    text += "(" + trial_id + ") " + lines.substr(at, end - at) + "\n";
    at = end + 1;
  }
  print(text);
}

}  // namespace

void ExperimentActor::begin(Self* self, std::shared_ptr<ExperimentPlan> plan) {
  self_ = self;
  plan_ = std::move(plan);
  begun_ = clock_.now();
  supervisor_ = spawn_supervisor(*plan_->cluster, caf::actor_cast<caf::actor>(self));
  syncer_ = std::make_unique<Syncer>([journal = plan_->journal.get()] { return journal->sync(); });
  scheduler_text_ = plan_->scheduler->scheduler->debug_string();
  spawn_scheduler(std::move(plan_->scheduler));
  for_callbacks([&](Callback& callback) { callback.on_experiment_begin(plan_->info); });
  next_report_ = begun_ + (plan_->reporter ? plan_->reporter->period() : limits::kStatus);
}

caf::behavior ExperimentActor::behavior() {
  self_->set_down_handler([this](const caf::down_msg& down) {
    if (down.source == scheduler_.address()) on_scheduler_down();
  });
  guard(self_, [this](const Error& error) { finish(error); });
  tick_every(limits::kTick, caf::actor_cast<caf::actor>(self_), caf::make_message(tick_atom_v));
  return {
      [this](begin_atom) {
        plan_->core->begin(clock_.now());
        run_commands();
      },
      [this](const ChildEvent& event) { on_child(event); },
      [this](const TrialReady& ready) {
        plan_->core->on_ready(ready, clock_.now());
        run_commands();
      },
      [this](const TrialReport& report) -> caf::result<TrialOrder> {
        auto promise = self_->make_response_promise();
        // Nobody waits for the answer to a process that is gone.
        if (!plan_->core->is_current(report.trial, report.incarnation)) return promise;
        auto row = std::make_shared<Row>();
        auto values = decode_metrics(report.row);
        if (!values) {
          promise.deliver(values.error());
          return promise;
        }
        row->bytes = report.row;
        row->values = std::move(*values);
        reports_[report.trial] = {report.iteration, promise};
        plan_->core->on_report(report, std::move(row), clock_.now());
        run_commands();
        return promise;
      },
      [this](const TrialSaved& saved) -> caf::result<std::int64_t> {
        auto promise = self_->make_response_promise();
        if (!plan_->core->is_current(saved.trial, saved.incarnation)) return promise;
        saves_[saved.trial] = promise;
        plan_->core->on_saved(saved, clock_.now());
        run_commands();
        return promise;
      },
      [this](config_error_atom, std::uint64_t trial, const std::string& text) {
        plan_->core->on_config_error(trial, text);
        run_commands();
      },
      [this](note_atom, std::uint64_t trial, const std::string& text) {
        if (trial >= plan_->core->trial_count()) return;
        plan_->core->on_note(trial, text);
        run_commands();
      },
      [this](tick_atom) { on_tick(); },
      [this](interrupt_atom, const std::string& why) { on_interrupt(why); },
      [this](status_atom) -> caf::result<caf::actor, caf::actor> {
        return {scheduler_, supervisor_};
      },
  };
}

// --- messages -------------------------------------------------------------------------------

void ExperimentActor::on_child(const ChildEvent& event) {
  if (event.kind == ChildEvent::Kind::output) {
    if (event.child < plan_->core->trial_count())
      print_output(plan_->core->trial_id(event.child), event.text);
    return;
  }
  plan_->core->on_child(event, clock_.now());
  run_commands();
}

void ExperimentActor::on_tick() {
  if (done_) return;
  const auto now = clock_.now();
  plan_->core->on_tick(now);
  run_commands();
  if (done_) return;
  if (plan_->reporter && now >= next_report_) {
    tell_status(false);
    next_report_ = clock_.now() + plan_->reporter->period();
  }
  if (state_pace_.due(now)) save_state(false);
}

void ExperimentActor::on_interrupt(const std::string& why) {
  if (done_) return;
  plan_->core->interrupt(why, clock_.now());
  if (!stalled_.empty()) {
    // Nobody waits for a disk who wants to leave: what was not written was not acknowledged either.
    finish(make_error(Errc::cancelled, why + "; the run was paused (" + stalled_ +
                                           "), and what was not written is computed again"));
    return;
  }
  run_commands();
}

// --- the scheduler --------------------------------------------------------------------------

void ExperimentActor::spawn_scheduler(std::shared_ptr<SchedulerState> scheduler) {
  scheduler_ = actor_system(*plan_->cluster).spawn(scheduler_actor, std::move(scheduler));
  self_->monitor(scheduler_);
}

void ExperimentActor::on_scheduler_down() {
  if (done_) return;
  if (++scheduler_deaths_ >= limits::kSchedulerTries)
    return finish(make_error(
        Errc::peer_lost,
        "the scheduler died " + std::to_string(limits::kSchedulerTries) + " times in a row"));
  say(true, "the scheduler was lost; a new one is fed the journal");
  auto scheduler = new_scheduler();
  if (!scheduler)
    return finish(with_context(scheduler.error(), "the scheduler can't be brought back"));
  spawn_scheduler(std::move(*scheduler));
  std::erase_if(unanswered_, [](const SchedulerEvent& event) {
    return event.kind == SchedulerEvent::Kind::add;  // it stands in the journal
  });
  asking_ = 0;
  ask_scheduler();
}

/// One that knows all that is in the journal, and what is on its way there. A trial whose addition
/// still stands in the queue is told by the command behind it.
Result<std::shared_ptr<SchedulerState>> ExperimentActor::new_scheduler() {
  auto scheduler = std::make_shared<SchedulerState>();
  auto made = fence(Errc::user_code, [&] { scheduler->scheduler = plan_->make_scheduler(); });
  if (!made) return made.error();
  Experiment past(plan_->spec, nullptr);
  const auto feed = [&](const SchedulerEvent& event) { return decide(*scheduler, event); };
  auto disk = open_journal_file(plan_->journal_path, JournalAccess::read_only);
  if (!disk) return disk.error();
  auto read =
      read_journal(**disk, [&](const Record& record) { return past.restore(record, feed); });
  if (!read) return read.error();
  const auto tell_later = [](const SchedulerEvent&) { return SchedulerVerdict{}; };
  for (const auto& command : queue_) {
    const auto* append = std::get_if<AppendRecord>(&command);
    if (!append) continue;
    const bool added = std::holds_alternative<TrialAdded>(append->record);
    auto done =
        added ? past.restore(append->record, tell_later) : past.restore(append->record, feed);
    if (!done) return done.error();
  }
  return scheduler;
}

SchedulerEvent ExperimentActor::event_of(const AskScheduler& ask) const {
  SchedulerEvent event{.kind = ask.kind, .trial_id = plan_->core->trial_id(ask.trial)};
  if (ask.kind == SchedulerEvent::Kind::add) event.config = encode(plan_->core->config(ask.trial));
  if (ask.row) event.row = ask.row->bytes;
  return event;
}

/// One message at a time is with the scheduler; what comes meanwhile goes together in the next. An
/// addition has no verdict, and is in the journal before it is sent.
void ExperimentActor::ask_scheduler() {
  if (asking_ > 0 || unanswered_.empty()) return;
  asking_ = unanswered_.size();
  self_
      ->request(scheduler_, limits::kRequest,
                std::vector<SchedulerEvent>(unanswered_.begin(), unanswered_.end()))
      .then(
          [this, from = scheduler_](const std::vector<SchedulerVerdict>& verdicts,
                                    const std::string& text) {
            if (from != scheduler_) return;  // of one that is gone: asked again
            scheduler_text_ = text;
            asking_ = 0;
            scheduler_deaths_ = 0;
            for (const auto& verdict : verdicts) {
              if (done_) return;
              const bool decides = unanswered_.front().kind != SchedulerEvent::Kind::add;
              unanswered_.pop_front();
              if (decides) plan_->core->on_verdict(verdict, clock_.now());
            }
            run_commands();
            ask_scheduler();
          },
          [this, to = scheduler_](const caf::error& error) {
            if (to != scheduler_ || done_) return;          // of one that is gone: asked again
            if (code_of(error) == Errc::peer_lost) return;  // its monitor tells
            finish(error);
          });
}

// --- commands -------------------------------------------------------------------------------

void ExperimentActor::run_commands() {
  for (auto& command : plan_->core->take_commands()) queue_.push_back(std::move(command));
  if (!stalled_.empty() && clock_.now() < next_try_) return;
  while (!queue_.empty() && !done_) {
    auto done = carry_out(queue_.front());
    if (!done) {
      if (stalled_.empty() || stalled_ != text_of(done.error()))
        say(true, "the experiment is paused, its trials wait: " + text_of(done.error()));
      stalled_ = text_of(done.error());
      next_try_ = clock_.now() + limits::kRetryWrite;
      return;
    }
    queue_.pop_front();
    for (auto& command : plan_->core->take_commands()) queue_.push_back(std::move(command));
    if (!std::exchange(stalled_, {}).empty()) say(true, "the experiment goes on");
  }
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

Result<void> ExperimentActor::carry_out(Command& command) {
  const auto trial_of = [this](std::uint64_t trial) { return plan_->core->trial_id(trial); };
  return std::visit(
      Overloaded{
          [&](AppendRecord& append) -> Result<void> {
            auto written = plan_->journal->append(append.record);
            if (!written) return with_context(written.error(), "journal");
            if (std::holds_alternative<ResultRow>(append.record))
              syncer_->written();
            else
              syncer_->hurry();
            return {};
          },
          [&](OpenTrial& open) { return open_trial(open.trial); },
          [&](WriteRow& row) -> Result<void> {
            auto written = files_.at(row.trial)->append(row.row->values);
            if (!written) return with_context(written.error(), "trial " + trial_of(row.trial));
            return {};
          },
          [&](WriteError& error) -> Result<void> {
            if (const auto at = files_.find(error.trial); at != files_.end())
              if (auto written = at->second->append_error(error.number, error.text, clock_.wall());
                  !written)
                say(true, "error.txt of trial " + trial_of(error.trial) + ": " +
                              text_of(written.error()));
            return {};
          },
          [&](CloseTrial& close) -> Result<void> {
            if (const auto at = files_.find(close.trial); at != files_.end()) {
              at->second->close();
              if (!close.for_now) files_.erase(at);
            }
            // What a process of it left unfinished may have been held by one that it had forked,
            // and that was dying still when the next one began.
            if (auto cleaned = clean_checkpoints(folder_of(close.trial)); !cleaned)
              log_warn(describe(cleaned.error()));
            reports_.erase(close.trial);
            saves_.erase(close.trial);
            return {};
          },
          [&](DeleteCheckpoint& gone) -> Result<void> {
            if (auto removed = remove_checkpoint(folder_of(gone.trial) / gone.name);
                !removed && code_of(removed.error()) != Errc::not_found)
              log_warn("a checkpoint stays: " + text_of(removed.error()));
            return {};
          },
          [&](StartTrial& start) -> Result<void> {
            start_trial(start);
            return {};
          },
          [&](StopTrial& stop) -> Result<void> {
            self_->send(supervisor_, stop_atom_v, stop.trial, stop.mode, stop.text);
            return {};
          },
          [&](AskScheduler& ask) -> Result<void> {
            unanswered_.push_back(event_of(ask));
            ask_scheduler();
            return {};
          },
          [&](AnswerReport& answer) -> Result<void> {
            const auto at = reports_.find(answer.trial);
            if (at == reports_.end() || at->second.iteration != answer.iteration) return {};
            at->second.answer.deliver(answer.order);
            reports_.erase(at);
            plan_->core->on_answered(answer.trial, clock_.now());
            return {};
          },
          [&](AnswerSaved& answer) -> Result<void> {
            if (auto node = saves_.extract(answer.trial); !node.empty())
              node.mapped().deliver(std::int64_t{0});
            plan_->core->on_answered(answer.trial, clock_.now());
            return {};
          },
          [&](Notify& notification) -> Result<void> {
            notify(notification);
            return {};
          },
          [&](Say& line) -> Result<void> {
            say(line.warning, line.line);
            return {};
          },
          [&](Finish& end) -> Result<void> {
            finish(end.error);
            return {};
          },
      },
      command);
}

std::filesystem::path ExperimentActor::folder_of(std::uint64_t trial) const {
  return plan_->info.directory / plan_->core->directory(trial);
}

Result<void> ExperimentActor::open_trial(std::uint64_t trial) {
  if (files_.contains(trial)) return {};  // it was paused
  auto opened = TrialFiles::open(folder_of(trial), plan_->core->config(trial));
  if (!opened) return with_context(opened.error(), "trial " + plan_->core->trial_id(trial));
  // Rows that the journal does not have were never acknowledged, and will come again.
  if (auto cut = (*opened)->truncate_to(plan_->core->row_iteration(trial)); !cut)
    return cut.error();
  if (plan_->core->iteration(trial) == 0)
    if (auto gone = remove_checkpoints(folder_of(trial)); !gone) return gone;
  files_[trial] = std::move(*opened);
  return {};
}

void ExperimentActor::start_trial(const StartTrial& start) {
  const auto& core = *plan_->core;
  auto argument = encode(TrialArgument{.config = encode(core.config(start.trial)),
                                       .trial_id = core.trial_id(start.trial),
                                       .experiment_tag = core.tag(start.trial),
                                       .experiment_id = plan_->experiment_id,
                                       .max_iteration = core.iteration(start.trial),
                                       .checkpoint_freq = plan_->checkpoint_freq,
                                       .checkpoint_at_end = plan_->checkpoint_at_end,
                                       .trainable = plan_->trainable.argument});
  if (start.again) {
    self_->send(supervisor_, restart_atom_v, start.trial, std::move(argument));
    return;
  }
  const auto view = core.snapshot(start.trial);
  self_->send(supervisor_, supervise_atom_v, start.trial,
              ChildSpec{.id = view.id,
                        .name = view.name,
                        .entry = plan_->trainable.entry,
                        .directory = folder_of(start.trial).string(),
                        .resources = plan_->resources,
                        .seed = trial_seed(plan_->seed, static_cast<std::int64_t>(start.trial)),
                        .forward_output = plan_->log_to_driver,
                        .argument = std::move(argument),
                        .restart = plan_->restart,
                        .user_failures = core.failure_count(start.trial),
                        .incarnation = core.incarnation(start.trial)});
}

// --- telling --------------------------------------------------------------------------------

template <class F>
void ExperimentActor::for_callbacks(F&& call) {
  const auto guarded = [&](Callback& callback) {
    if (auto done = fence(Errc::user_code, [&] { call(callback); }); !done)
      log_warn("a callback failed: " + text_of(done.error()));
  };
  if (plan_->reporter) guarded(*plan_->reporter);
  for (const auto& callback : plan_->callbacks) guarded(*callback);
}

void ExperimentActor::notify(const Notify& notification) {
  if (!plan_->reporter && plan_->callbacks.empty()) return;
  const auto trial = plan_->core->snapshot(notification.trial);
  const auto checkpoint = [&] {
    const auto* policy = plan_->core->checkpoints(notification.trial);
    const auto* newest = policy ? policy->newest() : nullptr;
    return newest ? folder_of(notification.trial) / newest->name : std::filesystem::path();
  };
  for_callbacks([&](Callback& callback) {
    switch (notification.what) {
      case Notify::What::started: return callback.on_trial_start(trial);
      case Notify::What::restored: return callback.on_trial_restore(trial, checkpoint());
      case Notify::What::result: return callback.on_trial_result(trial, trial.last_result);
      case Notify::What::saved: return callback.on_trial_save(trial, checkpoint());
      case Notify::What::complete: return callback.on_trial_complete(trial);
      case Notify::What::error: return callback.on_trial_error(trial, notification.text);
    }
  });
}

void ExperimentActor::say(bool warning, const std::string& line) {
  if (warning)
    log_warn(line);
  else
    log_info(line);
}

StatusView ExperimentActor::status() {
  const auto& core = *plan_->core;
  snapshots_.clear();
  snapshots_.reserve(core.trial_count());
  for (std::uint64_t i = 0; i < core.trial_count(); ++i) snapshots_.push_back(core.snapshot(i));
  StatusView view;
  view.experiment = plan_->info;
  view.scheduler = scheduler_text_;
  view.requested = times(plan_->resources, static_cast<std::int64_t>(core.running_count()));
  view.total = plan_->cluster->total();
  const auto memory = host_memory();
  view.memory_used_bytes = memory.used_bytes;
  view.memory_total_bytes = memory.total_bytes;
  for (const auto& snapshot : snapshots_) view.trials.push_back(&snapshot);
  view.expected_trials = core.expected_count();
  view.wall = clock_.wall();
  view.elapsed = view.loop_elapsed = clock_.now() - begun_;
  if (!stalled_.empty()) view.notes.push_back("paused: " + stalled_);
  return view;
}

void ExperimentActor::tell_status(bool final) {
  const auto view = status();
  if (auto told = fence(Errc::user_code, [&] { plan_->reporter->report(view, final); }); !told)
    log_warn("the progress reporter failed: " + text_of(told.error()));
}

void ExperimentActor::save_state(bool final) {
  const auto began = clock_.now();
  const auto& core = *plan_->core;
  ExperimentState state{.name = plan_->info.name,
                        .trainable = plan_->trainable.name,
                        .metric = plan_->info.metric,
                        .mode = plan_->info.mode,
                        .seed = plan_->seed,
                        .start = plan_->started,
                        .finished = final};
  for (std::uint64_t i = 0; i < core.trial_count(); ++i) {
    const auto trial = core.snapshot(i);
    SavedTrial saved{.id = trial.id,
                     .name = trial.name,
                     .tag = trial.tag,
                     .directory = trial.directory,
                     .state = trial.state,
                     .iteration = core.iteration(i),
                     .metric = trial.last_result.number(plan_->info.metric),
                     .failure_count = trial.failure_count};
    if (const auto* policy = core.checkpoints(i))
      for (const auto& kept : policy->kept())
        saved.checkpoints.push_back(
            {.iteration = kept.iteration, .name = kept.name, .score = kept.score});
    state.trials.push_back(std::move(saved));
  }
  if (auto written = write_experiment_state(plan_->info.directory, state, final); !written)
    say(true, "experiment_state.json: " + text_of(written.error()));
  state_pace_.saved(began, clock_.now());
}

void ExperimentActor::finish(Error error) {
  if (std::exchange(done_, true)) return;
  files_.clear();
  if (auto synced = syncer_->finish(); !synced && !error) error = synced.error();
  save_state(true);
  if (plan_->reporter) tell_status(true);
  const auto view = status();
  for_callbacks([&](Callback& callback) { callback.on_experiment_end(view.trials); });
  if (scheduler_) self_->send_exit(scheduler_, caf::exit_reason::user_shutdown);
  plan_->finished(std::move(error));
  self_->quit();
}

caf::behavior experiment_actor(ExperimentActor::Self* self,
                               const std::shared_ptr<ExperimentPlan>& plan) {
  auto begun = fence(Errc::io, [&] { self->state.begin(self, plan); });
  if (!begun) {
    plan->finished(
        with_context(begun.error(), "the experiment can't begin, see ulimit -u and ulimit -v"));
    self->quit();
    return {};
  }
  return self->state.behavior();
}

}  // namespace troupe::tune::internal
