#pragma once

#include "libactor/internal/process.hpp"
#include "libactor/internal/socket.hpp"
#include "libactor/internal/worker_start.hpp"
#include "libactor/preload.hpp"
#include "libactor/result.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <sys/types.h>

namespace troupe::internal {

/// What a zygote tells its owner.
namespace zygote_event {

/// It has reached `init` and takes workers. Threads: those beside the main one, which make it exec
/// workers instead of forking them.
struct Ready {
  pid_t pid = 0;
  std::vector<std::string> threads = {};
};
/// To be logged once: a preload that failed, threads that prevent forking. Says the way out.
struct Warned {
  std::string text = {};
};
struct Started {
  std::uint64_t lease = 0;
  pid_t pid = 0;
};
struct StartFailed {
  std::uint64_t lease = 0;
  /// Another try would fail too. Else the system could not: a folder that is away, a full table of
  /// processes or descriptors.
  bool hopeless = false;
  std::string text = {};
};
/// The worker has ended and is reaped; its group and what it left behind were sent SIGKILL, its
/// output is in the files.
struct Exited {
  std::uint64_t lease = 0;
  Exit exit = {};
};
/// Whole lines, each with its line end; long ones come in pieces. Only with
/// `WorkerStart::forward_output`.
struct Output {
  std::uint64_t lease = 0;
  std::string lines = {};
};
/// The zygote has ended, and so has every worker of it and everything that those started. The last
/// event.
struct Lost {
  std::string text = {};
};

}  // namespace zygote_event

using ZygoteEvent = std::variant<zygote_event::Ready, zygote_event::Warned, zygote_event::Started,
                                 zygote_event::StartFailed, zygote_event::Exited,
                                 zygote_event::Output, zygote_event::Lost>;

struct ZygoteOptions {
  std::string executable = "/proc/self/exe";
  std::string name = "troupe-zygote";  ///< argv[0], for `ps`
  bool strict = false;  ///< threads before the fork fail every start instead of one warning
  /// Added to the zygote's environment, for tests.
  std::map<std::string, std::string> environment = {};
  /// Called on the zygote's reader thread, one at a time; must not destroy the Zygote.
  std::function<void(ZygoteEvent)> on_event = {};
};

/// The owner's handle on its zygote: the user's binary, stopped inside `init()`, that forks workers
/// and reaps them. Everything is asked without waiting, from any thread, and answered by events.
class Zygote {
 public:
  /// Returns when the exec has worked; `Ready` follows after 0.3 s for a program with LibTorch.
  static Result<std::unique_ptr<Zygote>> start(ZygoteOptions options);
  /// Kills all workers and what they started, and waits until the zygote has done so.
  ~Zygote();
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  /// Answered by Started, then Exited; or by StartFailed. The lease must not be 0 and must not have
  /// been used before. bad_request: what is to be sent is longer than a frame.
  Result<void> start_worker(const WorkerStart& start, Fd control, Fd line);
  /// To the worker, or to its whole group. Goes nowhere when the lease has ended.
  void signal(std::uint64_t lease, int number, bool group);
  /// What `parameter` reads in preload functions, and in workers that are started from now on.
  Result<void> set_parameters(const Parameters& parameters);
  pid_t pid() const;

 private:
  struct Impl;
  explicit Zygote(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::internal
