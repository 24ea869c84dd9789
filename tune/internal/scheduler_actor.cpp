#include "tune/internal/scheduler_actor.hpp"

#include "libactor/actor.hpp"
#include "tune/internal/wire.hpp"

#include <caf/all.hpp>

namespace troupe::tune::internal {
namespace {

Result<Verdict> decide_unfenced(SchedulerState& state, const SchedulerEvent& event) {
  if (event.kind == SchedulerEvent::Kind::add) {
    auto config = decode_config(event.config);
    if (!config) return config.error();
    const auto& kept = state.configs[event.trial_id] = std::move(*config);
    state.scheduler->on_trial_add({.id = event.trial_id, .config = kept});
    return Verdict{};
  }
  static const Config none;
  const auto known = state.configs.find(event.trial_id);
  const TrialView trial{.id = event.trial_id,
                        .config = known == state.configs.end() ? none : known->second};
  Verdict verdict;
  if (event.kind == SchedulerEvent::Kind::remove) {
    verdict = state.scheduler->on_trial_remove(trial);
  } else {
    auto row = decode_metrics(event.row);
    if (!row) return row.error();
    verdict = event.kind == SchedulerEvent::Kind::result
                  ? state.scheduler->on_trial_result(trial, *row)
                  : state.scheduler->on_trial_complete(trial, *row);
  }
  const bool over =
      event.kind != SchedulerEvent::Kind::result || verdict.decision == Decision::stop;
  if (over && known != state.configs.end()) state.configs.erase(known);
  for (const auto& id : verdict.stop) state.configs.erase(id);
  return verdict;
}

}  // namespace

Result<SchedulerVerdict> decide(SchedulerState& state, const SchedulerEvent& event) {
  auto verdict = fence(Errc::user_code, [&] { return unwrap(decide_unfenced(state, event)); });
  if (!verdict) return with_context(verdict.error(), "the scheduler");
  return SchedulerVerdict{.decision = verdict->decision,
                          .stop = std::move(verdict->stop),
                          .resume = std::move(verdict->resume),
                          .checkpoint = std::move(verdict->checkpoint),
                          .why = std::move(verdict->why)};
}

caf::behavior scheduler_actor(caf::stateful_actor<SchedulerState>* self,
                              const std::shared_ptr<SchedulerState>& scheduler) {
  guard(self);
  self->state = std::move(*scheduler);
  return {
      [self](const std::vector<SchedulerEvent>& events)
          -> caf::result<std::vector<SchedulerVerdict>, std::string> {
        std::vector<SchedulerVerdict> verdicts;
        for (const auto& event : events) {
          auto verdict = decide(self->state, event);
          if (!verdict) return verdict.error();
          verdicts.push_back(std::move(*verdict));
        }
        std::string text;
        auto told = fence(Errc::user_code, [&] { text = self->state.scheduler->debug_string(); });
        if (!told) text = "the scheduler's debug_string: " + text_of(told.error());
        return {std::move(verdicts), std::move(text)};
      },
  };
}

}  // namespace troupe::tune::internal
