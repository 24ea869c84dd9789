#pragma once

#include <chrono>

namespace troupe::tune::internal {

/// Catches SIGINT, SIGTERM and SIGHUP while it lives; the first is told by `wait`, the second ends
/// the process at once by that signal. A signal that was ignored before (a driver started with `&`
/// or `nohup`) stays ignored. One at a time a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  enum class Woken { timeout, signal, done };
  /// Waits for a signal or `wake`.
  Woken wait(std::chrono::milliseconds timeout);
  /// From any thread: the wait is over.
  void wake();
  /// "SIGINT", "SIGTERM" or "SIGHUP", after `wait` has told of one.
  const char* signal_name() const;
};

}  // namespace troupe::tune::internal
