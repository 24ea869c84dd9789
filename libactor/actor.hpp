#pragma once

#include "libactor/cluster.hpp"
#include "libactor/float_fix.hpp"
#include "libactor/log.hpp"
#include "libactor/resources.hpp"
#include "libactor/result.hpp"
#include "libactor/supervisor.hpp"
#include "libactor/worker.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <vector>

/// What `tune`, `sgd` and those who write their own actors need of the layer below: workers as
/// supervised children. With `result.hpp` and `peer.hpp` the only public headers that show CAF.
namespace troupe {

/// The three ranges of message type ids, so that no library needs another's.
inline constexpr std::uint16_t kActorTypeIds = caf::first_custom_type_id;
inline constexpr std::uint16_t kTuneTypeIds = caf::first_custom_type_id + 200;
inline constexpr std::uint16_t kSgdTypeIds = caf::first_custom_type_id + 400;

/// One worker process as its owner wants it.
struct ChildSpec {
  std::string id = {};     ///< "a1b2c_00003": `Context::id`
  std::string name = {};   ///< for logs and `Context::name`
  std::string entry = {};  ///< in the table of entries
  std::string directory =
      {};  ///< absolute; must exist; the worker's current folder, its stdout and stderr go there
  Resources resources = {};
  std::uint64_t seed = 0;
  bool forward_output = false;  ///< lines that it prints come as `output` events
  std::string argument = {};    ///< given to the entry's body as `Worker::argument`
  RestartPolicy restart = {};
  std::int64_t user_failures = 0;  ///< of earlier lives: counted against restart.max_failures
  std::uint64_t incarnation = 0;   ///< processes of earlier lives; the first one has this + 1
};

/// What a supervisor tells its owner of a child, in order.
struct ChildEvent {
  enum class Kind : std::uint8_t {
    waiting,  ///< for resources; `text` says why
    started,  ///< a process runs: `pid`
    ended,    ///< the body returned 0 and said goodbye
    failed,   ///< `text` is the cause; `user` says whose; `restart`: answer with restart_atom
    refused,  ///< it can never start: `text`; nothing else follows
    output,   ///< `text` is what it printed, whole lines
  };
  std::uint64_t child = 0;
  Kind kind = Kind::waiting;
  std::uint64_t incarnation = 0;  ///< of the process that this is about; 0 before the first
  std::int64_t pid = 0;
  std::string text = {};
  bool user = false;
  bool restart = false;
  std::int64_t user_failures = 0;  ///< so far, this one too
};

/// How a child is ended.
enum class StopMode : std::uint8_t {
  cancel,  ///< `Context::cancelled` becomes true; SIGKILL after limits::kTerminateGrace
  kill,    ///< SIGKILL to its group, no failure: the owner does not want it any more
  fail,  ///< SIGKILL, counted as the user's failure with the given text: a step that took too long
};

/// An actor that starts children, restarts what failed within its policy, and tells `owner` by
/// `ChildEvent`. It takes, as messages without reply:
///   (supervise_atom, child number, ChildSpec)     start it; numbers are the owner's
///   (restart_atom, child number, argument)        after `failed` with `restart`
///   (stop_atom, child number, StopMode, text)     at any time; `ended` or `failed` follows, or
///   nothing for `kill`
/// It ends when `owner` ends, and kills its children then.
caf::actor spawn_supervisor(Cluster& cluster, caf::actor owner);

caf::actor_system& actor_system(Cluster& cluster);

/// In a worker: its actor system, and the owner of its supervisor, to which its entry talks
/// directly.
caf::actor_system& actor_system(Worker& worker);
caf::actor owner_of(Worker& worker);

/// What every actor of ours does first: an exception that slips through a handler is logged,
/// answered as an error, and ends the actor after `on_exception(error)`; an error message that
/// nobody expected is logged and ends nothing.
template <class Self, class F>
void guard(Self* self, F on_exception) {
  self->set_exception_handler([self, on_exception](std::exception_ptr& caught) -> caf::error {
    const auto result = fence(Errc::bad_request, [&] { std::rethrow_exception(caught); });
    log_error(std::string(self->name()) +
              ": an exception in a handler, a bug of ours: " + describe(result.error()));
    on_exception(result.error());
    return result.error();
  });
  self->set_error_handler([self](caf::scheduled_actor*, caf::error& error) {
    log_error(std::string(self->name()) + ": an error that nobody took: " + describe(error));
  });
}
template <class Self>
void guard(Self* self) {
  guard(self, [](const Error&) {});
}

/// Whether so many threads more can be started now; io, with the way out, when not. To be asked
/// before CAF 0.17 starts its own: it aborts halfway, or waits for ever for a detached actor whose
/// thread never came.
Result<void> check_threads(int count);

/// Sends `tick` to `target` every `period` until it ends. A detached actor must not send itself
/// delayed messages: one that is pending keeps CAF 0.17's actor system from ever ending, since its
/// clock stops first.
void tick_every(std::chrono::milliseconds period, const caf::actor& target,
                const caf::message& tick);

/// Adds a library's message types to every actor system of this process. Call before `main`, as
/// `Registration` does: `add_message_types(&add_block<caf::id_block::mine>)`.
bool add_message_types(void (*add)(caf::actor_system_config&));

template <class Block>
void add_block(caf::actor_system_config& config) {
  config.add_message_types<Block>();
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Resources& x) {
  std::int64_t cpus = x.cpus.parts();
  bool has_gpus = x.gpus.has_value();
  std::int64_t gpus = has_gpus ? x.gpus->parts() : 0;
  std::map<std::string, std::int64_t> custom;
  for (const auto& [name, amount] : x.custom) custom[name] = amount.parts();
  auto load = [&]() -> caf::error {
    x.cpus = Amount::of_parts(cpus);
    x.gpus = has_gpus ? std::optional(Amount::of_parts(gpus)) : std::nullopt;
    x.custom.clear();
    for (const auto& [name, parts] : custom) x.custom[name] = Amount::of_parts(parts);
    return caf::none;
  };
  return f(caf::meta::type_name("troupe::Resources"), cpus, has_gpus, gpus, x.memory_bytes, custom,
           caf::meta::load_callback(load));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, NodeInfo& x) {
  return f(caf::meta::type_name("troupe::NodeInfo"), x.id, x.host, x.total, x.free);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RestartPolicy& x) {
  return f(caf::meta::type_name("troupe::RestartPolicy"), x.max_failures,
           x.max_infrastructure_failures, x.back_off, x.max_back_off);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ChildSpec& x) {
  return f(caf::meta::type_name("troupe::ChildSpec"), x.id, x.name, x.entry, x.directory,
           x.resources, x.seed, x.forward_output, x.argument, x.restart, x.user_failures,
           x.incarnation);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ChildEvent& x) {
  return f(caf::meta::type_name("troupe::ChildEvent"), x.child, x.kind, x.incarnation, x.pid,
           x.text, x.user, x.restart, x.user_failures);
}

}  // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe_actor, ::troupe::kActorTypeIds)
CAF_ADD_TYPE_ID(troupe_actor, (troupe::Resources))
CAF_ADD_TYPE_ID(troupe_actor, (troupe::NodeInfo))
CAF_ADD_TYPE_ID(troupe_actor, (std::vector<troupe::NodeInfo>))
CAF_ADD_TYPE_ID(troupe_actor, (troupe::RestartPolicy))
CAF_ADD_TYPE_ID(troupe_actor, (troupe::ChildSpec))
CAF_ADD_TYPE_ID(troupe_actor, (troupe::ChildEvent))
CAF_ADD_TYPE_ID(troupe_actor, (troupe::StopMode))
CAF_ADD_ATOM(troupe_actor, troupe, supervise_atom, "supervise")
CAF_ADD_ATOM(troupe_actor, troupe, restart_atom, "restart")
CAF_ADD_ATOM(troupe_actor, troupe, stop_atom, "stopchild")
CAF_END_TYPE_ID_BLOCK(troupe_actor)
