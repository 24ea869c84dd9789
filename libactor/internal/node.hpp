#pragma once

#include "libactor/internal/channel.hpp"
#include "libactor/internal/machine.hpp"
#include "libactor/internal/memory.hpp"
#include "libactor/internal/messages.hpp"
#include "libactor/internal/system.hpp"
#include "libactor/internal/zygote.hpp"

#include <caf/stateful_actor.hpp>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::internal {

/// Events of the zygote's reader thread on their way to the node actor.
class ZygoteMail {
 public:
  /// True when it was empty: the reader then wakes the actor, once for many events.
  bool push(ZygoteEvent event);
  std::deque<ZygoteEvent> take();

 private:
  std::mutex mutex_;
  std::deque<ZygoteEvent> events_;
};

/// One machine: its zygote and its workers. Starts what the head grants, and reports every end to
/// the worker's supervisor and the freed resources to the head.
struct NodeState {
  struct Running {
    caf::actor supervisor = {};
    Connection connection = {};
    Fd line = {};   ///< by it two workers of this machine can be joined without a port
    pid_t pid = 0;  ///< and its process group; 0: not started yet
    std::int64_t memory_bytes = 0;  ///< granted; 0: not watched
    std::string killed_for_memory = {};
  };

  System* system = nullptr;  ///< outlives the actor
  Machine machine = {};
  ZygoteOptions zygote_options = {};
  std::unique_ptr<Zygote> zygote;
  std::shared_ptr<ZygoteMail> mail;
  bool zygote_ready = false;
  int zygotes_lost = 0;  ///< in a row, without one that got ready
  bool told_of_devices = false;
  bool sampling = false;
  std::map<std::uint64_t, Running> running;  ///< by lease
  caf::actor head;
  Parameters parameters;
  std::int64_t oom_kills = 0;

  static inline const char* name = "node";
};

struct NodeOptions {
  System* system = nullptr;
  Machine machine = {};
  bool strict = false;
};

/// Takes (LeaseGrant, supervisor), (signal_atom, lease, signal), (params_atom, name, value), and
/// `head` by (nodes_atom, head) once before anything else. Runs on a thread of its own: reading
/// /proc may take a while.
caf::behavior node(caf::stateful_actor<NodeState>* self, const NodeOptions& options);

}  // namespace troupe::internal
