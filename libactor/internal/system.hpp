#pragma once

#include "libactor/limits.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <chrono>
#include <memory>
#include <vector>

namespace troupe::internal {

/// Adds a library's block of message types: `config.add_message_types<caf::id_block::x>()`.
using AddTypes = void (*)(caf::actor_system_config&);

/// What to do with an actor system that does not end within the time.
enum class WhenStuck {
  leave_process,  ///< exit code 70: for processes of ours
  leave_system,   ///< go on without it: for the driver, which is the user's
};

struct SystemOptions {
  int threads = limits::kActorThreads;  ///< the driver takes 4
  int network_threads = 1;              ///< that read messages beside the network loop
  std::vector<AddTypes> types = {};
  std::chrono::milliseconds shutdown = limits::kShutdown;
  WhenStuck when_stuck = WhenStuck::leave_process;
};

/// The one place that builds a caf::actor_system, with everything in it that must not be forgotten:
/// no port, no automatic connections, no heartbeats of CAF's, nothing that peers can call by name.
/// SIGPIPE is ignored from then on.
///
/// Before it is destroyed, whoever spawned an actor that is published, in the registry, or sends to
/// itself must end it by `anon_send_exit`, and drop the handles.
class System {
 public:
  explicit System(SystemOptions options = {});
  ~System();
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  caf::actor_system& actors();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::chrono::milliseconds shutdown_;
  WhenStuck when_stuck_;
};

}  // namespace troupe::internal
