#pragma once

#include "libactor/context.hpp"
#include "libactor/worker.hpp"
#include "sgd/internal/rank.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

namespace troupe::sgd::internal {

/// The actor that has the ranks of one process. It takes:
///   (RankPlan)          makes them; once
///   (CallSpec)          all ranks do it
///   (host_status_atom)  answers with HostStatus at once, whatever user code is doing
///   (leave_atom)        ends them; those that user code holds for longer than limits::kLeave stay
///                       behind
/// and tells `trainer` Formed, CallDone and CallFailed. `process` is the trainer's number of it.
/// context: must outlive it.
caf::actor spawn_rank_host(caf::actor_system& system, caf::actor trainer, int process,
                           MakeOperator make, const Context& context);

/// The body of a process that has nothing but ranks, for a trainer in another one. It does not
/// return: the trainer's supervisor kills it.
int serve_ranks(Worker& worker, MakeOperator make);

}  // namespace troupe::sgd::internal
