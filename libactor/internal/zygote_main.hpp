#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/internal/worker_start.hpp"

namespace troupe::internal {

/// What this process was started as.
struct ProcessRole {
  enum class Kind : std::uint8_t { driver, zygote, worker };
  Kind kind = Kind::driver;
  int fd = -1;  ///< the socket to who started it
};

/// Reads the role, and removes it from the environment so that no child takes it for its own.
ProcessRole role_from_environment();

/// What a worker process does on its main thread; returns the exit code. Nothing may be thrown.
using WorkerBody = int (*)(const WorkerStart& start, Fd control, Fd line);

/// The life of a zygote: serves the socket until its other end is closed or the process that
/// started it has ended, then kills everything it started and exits. Never returns, but for each
/// worker it calls `body` in a process of its own.
[[noreturn]] void zygote_main(int fd, WorkerBody body);

/// The same for a worker that was started by exec because the zygote has threads.
[[noreturn]] void worker_main_from_environment(int fd, WorkerBody body);

}  // namespace troupe::internal
