#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/internal/worker_start.hpp"
#include "libactor/worker.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <memory>
#include <string>

namespace troupe {

struct Worker::Impl {
  std::shared_ptr<Context::State> state = {};
  Context context{state};
  std::uint64_t child = 0;
  std::uint64_t incarnation = 0;
  std::string argument = {};
  std::string failure = {};
  caf::actor_system* system = nullptr;
  caf::actor owner = {};
};

namespace internal {

/// What a worker process does from its fork to its end: own actor system, hello, the entry's body
/// on this, the main thread, goodbye. A WorkerBody that never returns: the process ends in here
/// with the body's exit code, or kOwnerLostExitCode when nobody answers.
[[noreturn]] int worker_main(const WorkerStart& start, Fd control, Fd line);

}  // namespace internal
}  // namespace troupe
