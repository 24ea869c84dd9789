#include "libactor/supervisor.hpp"

#include "libactor/assert.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>

namespace troupe {
namespace {

/// "signal 9 (SIGKILL)".
std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  std::string text = "signal " + std::to_string(signal);
  if (name != nullptr) text += std::string(" (SIG") + name + ")";
  return text;
}

/// Signals that a process gets for what it does itself.
Failure by_signal(int signal, bool oom_killed) {
  const std::string number = " (signal " + std::to_string(signal) + ")";
  switch (signal) {
    case SIGKILL:
      if (oom_killed)
        return {Failure::Kind::user, "out of memory: killed by the kernel" + number +
                                         "; ask for more memory or run fewer trials at once"};
      break;
    case SIGSEGV: return {Failure::Kind::user, "segmentation fault" + number};
    case SIGABRT: return {Failure::Kind::user, "abort" + number};
    case SIGBUS: return {Failure::Kind::user, "bus error" + number};
    case SIGFPE: return {Failure::Kind::user, "arithmetic fault" + number};
    case SIGILL: return {Failure::Kind::user, "illegal instruction" + number};
    case SIGTRAP:
    case SIGSYS:
    case SIGPIPE:
    case SIGALRM:
    case SIGVTALRM:
    case SIGPROF:
    case SIGXCPU:
    case SIGXFSZ: return {Failure::Kind::user, "ended by " + signal_text(signal)};
    default: break;
  }
  return {Failure::Kind::infrastructure, "killed by " + signal_text(signal) + " from outside"};
}

}  // namespace

Failure classify(const Ending& ending) {
  if (ending.said_goodbye) {
    if (ending.goodbye_failure.empty()) return {};
    return {Failure::Kind::user, ending.goodbye_failure};
  }
  switch (ending.killed_for) {
    case Ending::KilledFor::unwanted: return {};
    case Ending::KilledFor::user: return {Failure::Kind::user, ending.killed_because};
    case Ending::KilledFor::infrastructure:
      return {Failure::Kind::infrastructure, ending.killed_because};
    case Ending::KilledFor::nothing: break;
  }
  if (!ending.reaped) return {Failure::Kind::infrastructure, "its zygote or its machine was lost"};
  if (ending.never_began)
    return {Failure::Kind::infrastructure,
            (ending.signal != 0 ? by_signal(ending.signal, ending.oom_killed).text
                                : "exit(" + std::to_string(ending.exit_code) + ")") +
                " before it began; its file stderr may say why"};
  if (ending.signal != 0) return by_signal(ending.signal, ending.oom_killed);
  if (ending.exit_code == kOwnerLostExitCode)
    return {Failure::Kind::infrastructure, "it lost the connection to its owner"};
  return {Failure::Kind::user,
          "exit(" + std::to_string(ending.exit_code) + ") in the middle of a step"};
}

SupervisorPolicy::Decision SupervisorPolicy::failed(const Failure& failure) {
  TROUPE_ASSERT(failure.kind != Failure::Kind::none, failure.text);
  const bool user = failure.kind == Failure::Kind::user;
  const std::int64_t count = user ? ++user_failures_ : ++infrastructure_failures_;
  const std::int64_t limit = user ? policy_.max_failures : policy_.max_infrastructure_failures;
  if (limit < 0 || count <= limit) return {true, next_delay(), failure.text};
  std::string text = failure.text;
  if (count > 1)
    text += "; failure " + std::to_string(count) + " of its kind, " +
            (user ? "max_failures" : "max_infrastructure_failures") + " is " +
            std::to_string(limit);
  return {false, {}, text};
}

std::chrono::milliseconds SupervisorPolicy::next_delay() {
  const std::int64_t restarts = failures_in_a_row_++;
  if (restarts == 0) return {};
  const std::int64_t doublings = std::min<std::int64_t>(restarts - 1, 30);
  return std::min(policy_.back_off * (std::int64_t{1} << doublings), policy_.max_back_off);
}

}  // namespace troupe
