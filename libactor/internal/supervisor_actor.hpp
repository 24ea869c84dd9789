#pragma once

#include "libactor/internal/messages.hpp"

#include <caf/actor_clock.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>

#include <chrono>
#include <map>
#include <string>

namespace troupe::internal {

/// The actor behind `spawn_supervisor`. What to restart is decided in `supervisor.hpp`; this keeps
/// who is who.
struct SupervisorState {
  /// One child: at most one process at a time.
  struct Child {
    ChildSpec spec = {};
    std::uint64_t request = 0;      ///< of its present process
    std::uint64_t incarnation = 0;  ///< how many processes it has had
    std::uint64_t lease = 0;        ///< 0: not started
    caf::actor node = {};
    caf::actor worker = {};            ///< after its hello
    caf::response_promise hello = {};  ///< to be answered when it is known to have started
    Ending ending = {};                ///< of the present process, as far as it is known
    bool cancelled = false;
    caf::actor_clock::time_point started = {};
    std::chrono::milliseconds delay = {};  ///< before its next restart
    SupervisorPolicy policy{RestartPolicy{}};
  };

  caf::actor head;
  caf::actor owner;
  std::map<std::uint64_t, Child> children;
  std::map<std::uint64_t, std::uint64_t> child_of_request;

  static inline const char* name = "supervisor";
};

caf::behavior supervisor(caf::stateful_actor<SupervisorState>* self, caf::actor head,
                         caf::actor owner);

}  // namespace troupe::internal
