#include "tune/internal/experiment.hpp"

#include "tune/internal/wire.hpp"

#include <type_traits>
#include <utility>

/// Going on with an earlier run: what the journal tells goes the same way to trials, scheduler and
/// searcher as it did when it was written.
namespace troupe::tune::internal {
namespace {

/// Which trial that was added before a record is about.
std::optional<std::uint64_t> subject(const Record& record) {
  return std::visit(
      [](const auto& told) -> std::optional<std::uint64_t> {
        if constexpr (requires { told.trial; } &&
                      !std::is_same_v<decltype(told), const TrialAdded&>)
          return told.trial;
        else
          return std::nullopt;
      },
      record);
}

}  // namespace

Result<void> Experiment::restore(const Record& record, const Feed& feed) {
  // The shell carries out commands in order, so a record proves that those before it are done.
  if (!std::holds_alternative<RunResumed>(record)) commands_.clear();
  if (const auto* added = std::get_if<TrialAdded>(&record)) return restore_added(*added, feed);
  if (const auto* used = std::get_if<TimeUsed>(&record))
    used_before_ = std::chrono::milliseconds(static_cast<std::int64_t>(used->seconds * 1000));

  const auto index = subject(record);
  if (!index) return {};
  if (*index >= trials_.size())
    return make_error(Errc::corrupt, "the journal tells of trial " + std::to_string(*index) +
                                         " before it was added");
  Trial& trial = trials_[*index];
  if (const auto* row = std::get_if<ResultRow>(&record)) {
    return restore_row(*row, feed);
  } else if (const auto* ended = std::get_if<TrialEnded>(&record)) {
    return restore_end(*ended, feed);
  } else if (const auto* again = std::get_if<TrialReopened>(&record)) {
    return reopen(*index, again->from_beginning, feed);
  } else if (const auto* started = std::get_if<TrialStarted>(&record)) {
    trial.incarnation = started->incarnation;
    trial.ending.reset();  // one that was paused runs again
  } else if (const auto* saved = std::get_if<CheckpointSaved>(&record)) {
    keep_checkpoint(*index, saved->iteration, saved->name);
  } else if (const auto* failed = std::get_if<TrialFailed>(&record)) {
    trial.failure_count = failed->failure_count;
    ++trial.error_count;
  }
  return {};
}

/// Side effects are in no record: they come from the scheduler again.
Result<void> Experiment::feed_scheduler(const SchedulerEvent& event, const Feed& feed) {
  auto verdict = feed(event);
  if (!verdict) return verdict.error();
  for (const auto& id : verdict->stop)
    if (const auto index = find(id); index && trials_[*index].ending == Decision::pause)
      trials_[*index].ending = Decision::stop;
  for (const auto& id : verdict->resume)
    if (const auto index = find(id); index && trials_[*index].ending == Decision::pause)
      trials_[*index].ending.reset();
  return {};
}

Result<void> Experiment::restore_added(const TrialAdded& added, const Feed& feed) {
  if (added.trial != trials_.size())
    return make_error(Errc::corrupt, "the journal adds trial " + std::to_string(added.trial) +
                                         " where trial " + std::to_string(trials_.size()) +
                                         " is next");
  auto config = decode_config(added.config);
  if (!config) return with_context(config.error(), "trial " + added.id);
  Trial trial;
  trial.id = added.id;
  trial.tag = added.tag;
  trial.directory = added.directory;
  trial.config = std::move(*config);
  trials_.push_back(std::move(trial));
  live_.insert(added.trial);
  // The searcher must know what it suggested; what the journal has stands.
  auto told = tell_searcher([&](Searcher& searcher) {
    unwrap(searcher.suggest(static_cast<std::int64_t>(added.trial)));
  });
  if (!told) return told;
  return feed_scheduler(
      {.kind = SchedulerEvent::Kind::add, .trial_id = added.id, .config = added.config}, feed);
}

Result<void> Experiment::restore_row(const ResultRow& result, const Feed& feed) {
  Trial& trial = trials_[result.trial];
  auto values = decode_metrics(result.row);
  if (!values) return with_context(values.error(), "trial " + trial.id);
  first_setup_done_ = true;
  trial.iteration = result.iteration;
  trial.last_row = std::make_shared<Row>(Row{result.row, std::move(*values)});
  if (result.decision != Decision::proceed) trial.ending = result.decision;
  auto fed = feed_scheduler(
      {.kind = result.by_stopper ? SchedulerEvent::Kind::complete : SchedulerEvent::Kind::result,
       .trial_id = trial.id,
       .row = result.row},
      feed);
  if (!fed) return fed;
  return tell_searcher([&](Searcher& searcher) {
    searcher.on_trial_result(static_cast<std::int64_t>(result.trial), trial.last_row->values);
  });
}

Result<void> Experiment::restore_end(const TrialEnded& ended, const Feed& feed) {
  Trial& trial = trials_[ended.trial];
  if (trial.status.finished())
    return make_error(Errc::corrupt, "the journal ends trial " + trial.id + " twice");
  trial.status.become(ended.state);
  trial.ending.reset();
  live_.erase(ended.trial);
  if (ended.state == TrialState::error || ended.why == kReturned) {
    const bool failed = ended.state == TrialState::error;
    auto fed = feed_scheduler(
        {.kind = failed ? SchedulerEvent::Kind::remove : SchedulerEvent::Kind::complete,
         .trial_id = trial.id,
         .row = failed ? std::string() : whole_row(trial)->bytes},
        feed);
    if (!fed) return fed;
  }
  trial.last_row = trimmed(trial.last_row);
  return complete_in_searcher(ended.trial);
}

/// For the scheduler it is a new trial, since the old one was removed.
Result<void> Experiment::reopen(std::uint64_t index, bool from_beginning, const Feed& feed) {
  Trial& trial = trials_[index];
  if (trial.status.state() != TrialState::error)
    return make_error(Errc::corrupt,
                      "the journal reopens trial " + trial.id + ", which is not in ERROR");
  trial.status.become(TrialState::pending);
  trial.failure_count = 0;
  live_.insert(index);
  if (from_beginning) {
    trial.iteration = 0;
    trial.checkpoint_iteration = 0;
    trial.last_row.reset();
    trial.checkpoints.reset();
  }
  return feed_scheduler(
      {.kind = SchedulerEvent::Kind::add, .trial_id = trial.id, .config = encode(trial.config)},
      feed);
}

Result<void> Experiment::resume(Resume mode, const Feed& feed) {
  const bool only_errored = mode == Resume::errored_only || mode == Resume::restart_errored;
  for (const auto index : std::vector(live_.begin(), live_.end())) {
    Trial& trial = trials_[index];
    if (trial.ending == Decision::stop) {  // decided, and then nobody was left to note its end
      finish_trial(index, TrialState::terminated, "stopped");
    } else {
      if (trial.ending == Decision::pause) {
        trial.ending.reset();
        trial.status.become(TrialState::running);
        trial.status.become(TrialState::paused);
        move(trial, Place::paused);
      }
      if (only_errored) set_aside(index);
    }
  }
  if (!only_errored) return {};
  exhausted_ = true;
  for (std::uint64_t index = 0; index < trials_.size(); ++index) {
    if (trials_[index].status.state() != TrialState::error) continue;
    const bool from_beginning = mode == Resume::restart_errored;
    if (auto done = reopen(index, from_beginning, feed); !done) return done;
    push(AppendRecord{TrialReopened{.trial = index, .from_beginning = from_beginning}});
  }
  return {};
}

}  // namespace troupe::tune::internal
