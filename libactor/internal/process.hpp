#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/result.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace troupe::internal {

/// How a process ended: by itself with a code, or by a signal.
struct Exit {
  int code = 0;
  int signal = 0;  ///< 0: it ended by itself

  /// "exit code 3", "signal 9 (Killed)".
  std::string text() const;
  bool operator==(const Exit&) const = default;
};

Exit exit_of_wait_status(int status);

/// A program of ours starts itself again: this is the only way in which Troupe execs.
struct SpawnOptions {
  std::string executable = "/proc/self/exe";  ///< also after the file was replaced or removed
  std::vector<std::string> arguments = {};    ///< with argv[0]
  std::map<std::string, std::string> environment = {};  ///< added to this process's, or replacing
  /// {descriptor here, number there}; standard output and error stay, standard input is /dev/null,
  /// and everything else is closed.
  std::vector<std::pair<int, int>> descriptors = {};
};

/// posix_spawn: own process group, all signals at their default and none blocked (a driver started
/// with `&` has SIGINT ignored, and would pass that on).
Result<pid_t> spawn(const SpawnOptions& options);

/// A child of this process. It must be waited for; the destructor does nothing else than forget it.
class Process {
 public:
  Process() = default;
  explicit Process(pid_t pid);

  pid_t pid() const { return pid_; }
  /// Never hits another process that got the same number.
  void signal(int number) const;
  /// Waits at most that long. Empty: it runs still. A child that somebody else has reaped (a user's
  /// `waitpid(-1)`, an ignored SIGCHLD) counts as ended with code 0.
  std::optional<Exit> wait(std::chrono::milliseconds timeout) const;

 private:
  pid_t pid_ = -1;
  Fd pidfd_;
};

/// The names of all threads of this process but the main one, as the kernel has them.
std::vector<std::string> other_threads();

/// The direct children of this process, zombies too.
std::vector<pid_t> children_of_this_process();

/// The text of one environment variable of another process as its memory holds it now; empty when
/// it is not set or not ours to read.
std::string environment_of(pid_t pid, std::string_view name);

/// Kills every process of this user whose variable `name` starts with `prefix`, except this one,
/// and returns how many there were: what a dead zygote leaves behind.
int kill_by_environment(std::string_view name, std::string_view prefix);

}  // namespace troupe::internal
