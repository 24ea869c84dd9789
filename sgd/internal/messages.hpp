#pragma once

#include "libactor/actor.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Every message between a trainer and the processes of its ranks.
namespace troupe::sgd::internal {

/// Who a process of ranks is in its group.
struct Membership {
  std::uint64_t epoch = 0;  ///< older ones are over
  int process_count = 1;
  int first_rank = 0;
  int rank_count = 1;
  int world_size = 1;
};

/// What a process of ranks is to be: trainer to host. Answered by `Formed`, or by CallFailed.
struct RankPlan {
  Membership member = {};
  int threads = 1;  ///< of each rank
  std::uint64_t seed = 0;
  bool use_gpu = false;
  bool use_fp16 = false;
  bool shard_data = true;
  std::uint8_t scheduler_step = 0;       ///< SchedulerStep
  std::int64_t global_batch = 0;         ///< 0: world_size times the operator's
  std::int64_t timeout_ms = 0;           ///< of one wait for other ranks
  std::string config = {};               ///< JSON
  std::vector<std::string> memory = {};  ///< for its snapshots: paths; none: it takes none
  int next_place = 0;                    ///< in it
  std::int64_t next_snapshot = 1;        ///< its number
  bool snapshots_within_calls = true;
  std::vector<std::string> restore = {};  ///< states to begin from: paths; the first has what all
                                          ///< ranks share; none: from the beginning
  std::string shared_memory = {};  ///< joins the ranks of all processes of the machine; empty: one
                                   ///< process has them all
};

/// What all ranks are to do: trainer to host. Answered by CallDone or CallFailed.
struct CallSpec {
  enum class Kind : std::uint8_t {
    train,
    validate,
    update_scheduler,
    call_operators,  ///< `function` with each operator
    snapshot,        ///< only that
    form,            ///< nothing: the ranks are set up, that is all
  };
  std::uint64_t id = 0;
  Kind kind = Kind::train;
  std::int64_t num_steps = 0;
  bool profile = false;
  std::string info = {};  ///< JSON
  double metric = 0;
  std::string function = {};
  bool optional = false;  ///< validate: without validation data there are no metrics and no error
};

struct Formed {
  std::uint64_t epoch = 0;
  int process = 0;
  std::int64_t global_batch = 0;  ///< samples of a step of the whole group
};

struct CallDone {
  std::uint64_t epoch = 0;
  std::uint64_t id = 0;
  int process = 0;
  std::vector<std::string> metrics = {};  ///< JSON, of each rank of the process
};

struct CallFailed {
  std::uint64_t epoch = 0;
  int process = 0;
  int rank = -1;  ///< -1: not of one rank
  std::string text = {};
  std::uint8_t code = 0;  ///< Errc. peer_lost and timed_out may pass; all else would come again
};

/// What a rank is doing; told when asked, from a thread that user code can't hold up.
struct RankStatus {
  int rank = 0;
  std::string doing = {};  ///< "setup", "forward", …; "idle": it has ended its call
  std::int64_t batch = 0;
  std::int64_t batch_count = 0;            ///< of the pass, when it is known
  std::string collective = {};             ///< that it waits in; empty: it doesn't
  std::vector<std::int32_t> missing = {};  ///< ranks that have not come to it
  std::int64_t waiting_ms = 0;
};

struct HostStatus {
  int process = 0;
  std::uint64_t epoch = 0;
  std::vector<RankStatus> ranks = {};
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankPlan& x) {
  return f(caf::meta::type_name("troupe::RankPlan"), x.member.epoch, x.member.process_count,
           x.member.first_rank, x.member.rank_count, x.member.world_size, x.threads, x.seed,
           x.use_gpu, x.use_fp16, x.shard_data, x.scheduler_step, x.global_batch, x.timeout_ms,
           x.config, x.memory, x.next_place, x.next_snapshot, x.snapshots_within_calls, x.restore,
           x.shared_memory);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CallSpec& x) {
  return f(caf::meta::type_name("troupe::CallSpec"), x.id, x.kind, x.num_steps, x.profile, x.info,
           x.metric, x.function, x.optional);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Formed& x) {
  return f(caf::meta::type_name("troupe::Formed"), x.epoch, x.process, x.global_batch);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CallDone& x) {
  return f(caf::meta::type_name("troupe::CallDone"), x.epoch, x.id, x.process, x.metrics);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CallFailed& x) {
  return f(caf::meta::type_name("troupe::CallFailed"), x.epoch, x.process, x.rank, x.text, x.code);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankStatus& x) {
  return f(caf::meta::type_name("troupe::RankStatus"), x.rank, x.doing, x.batch, x.batch_count,
           x.collective, x.missing, x.waiting_ms);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, HostStatus& x) {
  return f(caf::meta::type_name("troupe::HostStatus"), x.process, x.epoch, x.ranks);
}

}  // namespace troupe::sgd::internal

CAF_BEGIN_TYPE_ID_BLOCK(troupe_sgd, ::troupe::kSgdTypeIds)
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::RankPlan))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::CallSpec))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::Formed))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::CallDone))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::CallFailed))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::RankStatus))
CAF_ADD_TYPE_ID(troupe_sgd, (std::vector<troupe::sgd::internal::RankStatus>))
CAF_ADD_TYPE_ID(troupe_sgd, (troupe::sgd::internal::HostStatus))
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, host_hello_atom, "sgdhello")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, host_status_atom, "sgdstatus")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, rank_told_atom, "ranktold")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, leave_atom, "leave")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, again_atom, "again")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, call_atom, "sgdcall")
CAF_ADD_ATOM(troupe_sgd, troupe::sgd::internal, status_tick_atom, "sgdtick")
CAF_END_TYPE_ID_BLOCK(troupe_sgd)
