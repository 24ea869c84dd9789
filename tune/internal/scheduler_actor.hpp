#pragma once

#include "tune/internal/messages.hpp"
#include "tune/scheduler.hpp"

#include <caf/stateful_actor.hpp>

#include <map>
#include <memory>
#include <string>

namespace troupe::tune::internal {

/// A scheduler in an actor of its own: one event in, one verdict out, in order. When it dies the
/// experiment makes another and feeds it the journal's events again.
struct SchedulerState {
  std::unique_ptr<TrialScheduler> scheduler;
  std::map<std::string, Config> configs;  ///< of trials that it has not seen the end of

  static inline const char* name = "scheduler";
};

/// A scheduler may be the user's own: what it throws is user_code.
Result<SchedulerVerdict> decide(SchedulerState& state, const SchedulerEvent& event);

/// scheduler: `begin` has been called; it may have been fed already. Takes SchedulerEvents and
/// answers with as many SchedulerVerdicts and its debug string after them.
caf::behavior scheduler_actor(caf::stateful_actor<SchedulerState>* self,
                              const std::shared_ptr<SchedulerState>& scheduler);

}  // namespace troupe::tune::internal
