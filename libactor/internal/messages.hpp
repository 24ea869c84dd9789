#pragma once

#include "libactor/actor.hpp"

#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Every message between driver, head, node and worker. A change here is a new `kProtocolVersion`
/// and a line in libactor/README.md.
namespace troupe::internal {

inline constexpr std::uint32_t kProtocolVersion = 1;

/// Supervisor to head: run `spec` somewhere. `request` is the supervisor's own number, one for each
/// process.
struct StartRequest {
  std::uint64_t request = 0;
  ChildSpec spec = {};
};

/// Head to node: these resources are yours; start it.
struct LeaseGrant {
  std::uint64_t lease = 0;
  StartRequest start = {};
  std::vector<std::int32_t> devices = {};  ///< this node's own numbers of the granted GPUs
};

/// Node to supervisor: the process is there.
struct WorkerStarted {
  std::uint64_t request = 0;
  std::uint64_t lease = 0;
  std::int64_t pid = 0;
};

/// Node to supervisor: the process is gone, reaped, and its group and orphans with it; or it never
/// was.
struct WorkerExited {
  std::uint64_t request = 0;
  std::uint64_t lease = 0;
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;   ///< that ended it; 0: none
  bool zygote_lost = false;  ///< nobody saw its end: the process that would have is gone too
  bool oom_killed = false;   ///< the kernel counted a kill for memory meanwhile
  std::string killed_for_memory = {};  ///< the node killed it: the sentence with both numbers
  bool never_started = false;
  bool hopeless = false;  ///< never_started: another try would fail too
  std::string text = {};  ///< why it never started, or why the zygote went
};

/// Head to supervisor: it waits, or it can never be.
struct StartPending {
  std::uint64_t request = 0;
  bool impossible = false;
  std::string text = {};
};

/// Node to supervisor: what the worker printed, whole lines.
struct WorkerLines {
  std::uint64_t request = 0;
  std::string text = {};
};

/// Supervisor's answer to a worker's hello.
struct WorkerBegin {
  std::uint64_t child = 0;
  std::uint64_t incarnation = 0;
  std::string argument = {};
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartRequest& x) {
  return f(caf::meta::type_name("troupe::StartRequest"), x.request, x.spec);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LeaseGrant& x) {
  return f(caf::meta::type_name("troupe::LeaseGrant"), x.lease, x.start, x.devices);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerStarted& x) {
  return f(caf::meta::type_name("troupe::WorkerStarted"), x.request, x.lease, x.pid);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerExited& x) {
  return f(caf::meta::type_name("troupe::WorkerExited"), x.request, x.lease, x.exit_code, x.signal,
           x.zygote_lost, x.oom_killed, x.killed_for_memory, x.never_started, x.hopeless, x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartPending& x) {
  return f(caf::meta::type_name("troupe::StartPending"), x.request, x.impossible, x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerLines& x) {
  return f(caf::meta::type_name("troupe::WorkerLines"), x.request, x.text);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkerBegin& x) {
  return f(caf::meta::type_name("troupe::WorkerBegin"), x.child, x.incarnation, x.argument);
}

}  // namespace troupe::internal

CAF_BEGIN_TYPE_ID_BLOCK(troupe_node, ::troupe::kActorTypeIds + 100)
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::StartRequest))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::LeaseGrant))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::WorkerStarted))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::WorkerExited))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::StartPending))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::WorkerLines))
CAF_ADD_TYPE_ID(troupe_node, (troupe::internal::WorkerBegin))
CAF_ADD_ATOM(troupe_node, troupe::internal, place_atom,
             "place")  // supervisor -> head: StartRequest
CAF_ADD_ATOM(troupe_node, troupe::internal, unplace_atom,
             "unplace")  // supervisor -> head: not wanted any more
CAF_ADD_ATOM(troupe_node, troupe::internal, freed_atom,
             "freed")  // node -> head: a lease's resources are free
CAF_ADD_ATOM(troupe_node, troupe::internal, nodes_atom, "nodes")  // driver -> head: who is there
CAF_ADD_ATOM(troupe_node, troupe::internal, signal_atom,
             "signal")  // supervisor -> node: lease, signal, group
CAF_ADD_ATOM(troupe_node, troupe::internal, sample_atom,
             "sample")  // node -> itself: look at memory
CAF_ADD_ATOM(troupe_node, troupe::internal, hello_atom,
             "hello")  // worker -> supervisor: request, itself
CAF_ADD_ATOM(troupe_node, troupe::internal, goodbye_atom,
             "goodbye")  // worker -> supervisor: request, failure
CAF_ADD_ATOM(troupe_node, troupe::internal, cancel_atom,
             "cancel")  // supervisor -> worker: return soon
CAF_ADD_ATOM(troupe_node, troupe::internal, tick_atom, "ticknow")  // ticker -> itself
CAF_ADD_ATOM(troupe_node, troupe::internal, zygote_atom,
             "zygote")  // zygote's reader thread -> node: event
CAF_ADD_ATOM(troupe_node, troupe::internal, deadline_atom,
             "deadline")  // supervisor -> itself: request
CAF_ADD_ATOM(troupe_node, troupe::internal, again_atom,
             "again")  // supervisor -> itself: child, incarnation
CAF_ADD_ATOM(troupe_node, troupe::internal, params_atom, "params")  // driver -> node: name, value
CAF_END_TYPE_ID_BLOCK(troupe_node)
