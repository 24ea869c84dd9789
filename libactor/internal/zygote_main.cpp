#include "libactor/internal/zygote_main.hpp"

#include "libactor/assert.hpp"
#include "libactor/internal/before_fork.hpp"
#include "libactor/internal/process.hpp"
#include "libactor/internal/worker_output.hpp"
#include "libactor/internal/zygote_protocol.hpp"
#include "libactor/limits.hpp"
#include "libactor/preload.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using namespace zygote_event;

constexpr int kWorkerSocket = 3;                 // in a worker that was started by exec
constexpr std::size_t kPumpBytes = 256 << 10;    // of one pipe, until the others have their turn
constexpr std::size_t kChattyBytes = 32 << 10;   // less than this at a time: rather wait a little
constexpr std::int64_t kForwardBytes = 1 << 20;  // waiting for an owner that does not read
constexpr int kOrdersAtOnce = 32;
constexpr std::size_t kThreadsTold = 64;
constexpr std::size_t kTextBytes = 8 << 10;
constexpr std::chrono::milliseconds kOrphanLook = 100ms;
constexpr std::chrono::milliseconds kPipePause = 1ms;
/// With more than one thread the kernel may give SIGCHLD to another one, where it is lost.
constexpr std::chrono::milliseconds kReapWithThreads = 20ms;

/// What others have written may be longer than a frame.
std::string cut(std::string text) {
  if (text.size() > kTextBytes) text.resize(kTextBytes);
  return text;
}

/// What the worker's own environment and that of its children have more than the zygote's.
std::map<std::string, std::string> environment_for(const WorkerStart& start) {
  auto environment = start.environment;
  environment.emplace("OMP_NUM_THREADS", std::to_string(start.threads));
  if (start.devices) environment.emplace("CUDA_VISIBLE_DEVICES", *start.devices);
  return environment;
}

/// In the worker's process, forked or exec'ed: the common end of both ways.
[[noreturn]] void run_worker(const WorkerStart& start, Fd control, Fd line, WorkerBody body) {
  if (::chdir(start.directory.c_str()) != 0) {
    std::fprintf(stderr, "troupe: change to folder '%s': %s\n", start.directory.c_str(),
                 std::strerror(errno));
    ::_exit(127);
  }
  set_openmp_threads(start.threads);
  ::setvbuf(stdout, nullptr, _IOLBF, 0);  // the last lines of a killed worker are not lost
  const int code = body(start, std::move(control), std::move(line));
  std::fflush(nullptr);
  ::_exit(code);
}

/// Dies with the zygote. The signal follows the thread that has forked us: the zygote's only one.
void die_with(pid_t zygote) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != zygote) ::_exit(127);
}

/// Ends this process when its owner goes away while it is not looking, that is while preload
/// functions run.
class OwnerWatch {
 public:
  OwnerWatch(int socket, int owner) : stop_(::eventfd(0, EFD_CLOEXEC)) {
    const auto watch = [socket, owner, stop = stop_.value()] {
      pollfd entries[] = {{socket, 0, 0}, {owner, POLLIN, 0}, {stop, POLLIN, 0}};
      while (::poll(entries, 3, -1) < 0 && errno == EINTR) {
      }
      if (entries[0].revents == 0 && entries[1].revents == 0) return;
      ::kill(-::getpid(), SIGKILL);  // with what the functions have started
      ::_exit(1);
    };
    // Where no thread can be started, the end waits for the functions.
    static_cast<void>(fence(Errc::io, [&] { thread_ = std::thread(watch); }));
  }
  ~OwnerWatch() {
    ::eventfd_write(stop_.value(), 1);
    if (thread_.joinable()) thread_.join();
  }

 private:
  Fd stop_;
  std::thread thread_;
};

struct Worker {
  pid_t pid = 0;
  std::array<WorkerOutput, 2> outputs;
};

/// What a new worker gets beside its WorkerStart.
struct Inherited {
  std::vector<Fd> sockets = {};  // control and line
  Fd out, error;
};

class Server {
 public:
  Server(int socket, WorkerBody body);
  [[noreturn]] void run();

 private:
  void send(const ZygoteNote& note) { outbox_.push(encode(note)); }
  void wait_and_serve();
  void take_orders();
  void handle(SettingsOrder& order, Frame& frame);
  void handle(StartOrder& order, Frame& frame);
  void handle(SignalOrder& order, Frame& frame);

  void prepare();
  WorkerOutput output_of(const WorkerStart& start, const char* file, Fd pipe);
  Result<pid_t> start(const WorkerStart& start, Frame& frame);
  Result<pid_t> fork_worker(const WorkerStart& start, Inherited& inherited);
  Result<pid_t> exec_worker(const WorkerStart& start, Inherited& inherited);
  [[noreturn]] void become_worker(const WorkerStart& start, Inherited& inherited);

  void reap();
  void finish(std::uint64_t lease, int status);
  void kill_orphans();
  std::optional<std::uint64_t> lease_of(pid_t pid) const;
  [[noreturn]] void end();

  WorkerBody body_;
  pid_t pid_ = ::getpid();
  Fd socket_;
  Fd owner_;    // a pidfd: the socket alone is not enough where the owner has forked
  Fd signals_;  // a signalfd for SIGCHLD
  char* lease_variable_;
  std::string name_;
  rlimit usual_files_{};

  bool strict_ = false;
  bool prepared_ = false;
  std::vector<std::string> threads_;
  std::map<std::uint64_t, Worker> workers_;
  std::map<pid_t, std::uint64_t> leases_;  // of the same workers
  bool look_for_orphans_ = false;
  bool pause_pipes_ = false;
  Outbox outbox_;
};

Server::Server(int socket, WorkerBody body)
    : body_(body),
      socket_(socket),
      owner_(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0))),
      lease_variable_(std::getenv(kLeaseVariable)) {
  TROUPE_ASSERT(lease_variable_);
  for (int fd : {STDOUT_FILENO, STDERR_FILENO})  // or a pipe could get one of these numbers
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_WRONLY));
  name_ = std::string_view(lease_variable_).substr(0, std::strcspn(lease_variable_, "."));
  TROUPE_ASSERT(lease_text(name_, 0) == lease_variable_, lease_variable_);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Four descriptors a worker; workers get the usual limit.
  if (::getrlimit(RLIMIT_NOFILE, &usual_files_) == 0) {
    rlimit most = usual_files_;
    most.rlim_cur = most.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &most);
  }
  threads_ = threads_before_fork();
  threads_.resize(std::min(threads_.size(), kThreadsTold));
  send(Ready{.pid = pid_, .threads = threads_});
}

void Server::run() {
  for (;;) {
    const auto sent = outbox_.flush(socket_.value());
    if (!sent || *sent == Transfer::closed) end();
    wait_and_serve();
  }
}

void Server::wait_and_serve() {
  std::vector<pollfd> entries = {
      {socket_.value(), static_cast<short>(POLLIN | (outbox_.empty() ? 0 : POLLOUT)), 0},
      {owner_.value(), POLLIN, 0},
      {signals_.value(), POLLIN, 0},
  };
  const std::size_t first_pipe = entries.size();
  std::vector<std::pair<std::uint64_t, std::size_t>> pipes;  // lease and output of each entry there
  const bool pause = std::exchange(pause_pipes_, false);
  if (!pause)
    for (const auto& [lease, worker] : workers_)
      for (std::size_t i = 0; i < worker.outputs.size(); ++i)
        if (const Fd& fd = worker.outputs[i].pipe()) {
          entries.push_back({fd.value(), POLLIN, 0});
          pipes.emplace_back(lease, i);
        }
  const bool signals_get_lost = !threads_.empty() && !workers_.empty();
  const auto timeout = pause               ? kPipePause
                       : signals_get_lost  ? kReapWithThreads
                       : look_for_orphans_ ? kOrphanLook
                                           : -1ms;
  if (::poll(entries.data(), entries.size(), static_cast<int>(timeout.count())) < 0) return;
  if ((entries[0].revents & (POLLHUP | POLLERR)) != 0 || entries[1].revents != 0) end();
  if (entries[2].revents != 0 || signals_get_lost || (look_for_orphans_ && !pause)) reap();
  if (entries[0].revents != 0) take_orders();

  std::size_t pumped_bytes = 0;
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    const auto [lease, output] = pipes[i];
    const auto at = workers_.find(lease);
    if (entries[first_pipe + i].revents != 0 && at != workers_.end())
      pumped_bytes += at->second.outputs[output].pump(kPumpBytes);
  }
  // Else a worker that prints line by line would have us wake up for each line.
  pause_pipes_ = pumped_bytes > 0 && pumped_bytes < kChattyBytes;
}

void Server::take_orders() {
  for (int i = 0; i < kOrdersAtOnce; ++i) {
    Frame frame;
    const auto received = receive_frame(socket_.value(), frame);
    if (received && *received == Transfer::would_block) return;
    if (!received || *received == Transfer::closed) end();
    auto order = decode_order(frame.bytes);
    if (!order) end();
    std::visit([&](auto& one) { handle(one, frame); }, *order);
  }
}

void Server::handle(SettingsOrder& order, Frame&) {
  strict_ = order.strict;
  set_parameters(std::move(order.parameters));
}

void Server::handle(StartOrder& order, Frame& frame) {
  const std::uint64_t lease = order.start.lease;
  if (auto pid = start(order.start, frame))
    send(Started{.lease = lease, .pid = *pid});
  else
    send(StartFailed{.lease = lease,
                     .hopeless = code_of(pid.error()) != Errc::io,
                     .text = cut("start worker: " + text_of(pid.error()))});
}

void Server::handle(SignalOrder& order, Frame&) {
  // A worker is in the table until it is reaped, so the number is its own.
  const auto at = workers_.find(order.lease);
  if (at != workers_.end()) ::kill(order.group ? -at->second.pid : at->second.pid, order.number);
}

/// Before the first worker: parameters are known by now.
void Server::prepare() {
  if (std::exchange(prepared_, true)) return;
  if (threads_.empty()) {
    OwnerWatch watch(socket_.value(), owner_.value());
    set_openmp_threads(1);  // a team of one starts no thread
    const auto tell = [&](const std::string& name) {
      send(LoadingNote{cut(name)});
      static_cast<void>(outbox_.flush(socket_.value()));
    };
    for (const Error& error : run_preloads(tell)) send(Warned{cut(text_of(error))});
    tell("");
  }
  threads_ = threads_before_fork();
  if (!threads_.empty() && !strict_)
    send(Warned{threads_text(threads_) + "; until then each worker is started by exec, which "
                                         "takes longer and shares no preloaded data"});
  std::fflush(nullptr);        // or each worker would write what is left in our buffers
  ::signal(SIGCHLD, SIG_DFL);  // whatever a preload function has done
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  signals_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
}

Result<pid_t> Server::start(const WorkerStart& start, Frame& frame) {
  if (frame.fds.size() != 2)
    return make_error(Errc::io, "too many open files in the zygote; raise `ulimit -n`");
  if (start.lease == 0 || workers_.contains(start.lease))
    return make_error(Errc::bad_request, "lease " + std::to_string(start.lease) + " is taken");
  struct stat status {};
  if (::stat(start.directory.c_str(), &status) != 0)
    return system_error("folder '" + start.directory + "'");
  if (!S_ISDIR(status.st_mode))
    return make_error(Errc::bad_request, "'" + start.directory + "' is not a folder");
  prepare();
  if (strict_ && !threads_.empty()) return make_error(Errc::refused, threads_text(threads_));

  auto out = output_pipe();
  if (!out) return out.error();
  auto error = output_pipe();
  if (!error) return error.error();
  Inherited inherited{.sockets = std::move(frame.fds),
                      .out = std::move(out->second),
                      .error = std::move(error->second)};
  // In the table before the fork: the child closes all that is in there.
  Worker& worker =
      workers_
          .emplace(start.lease,
                   Worker{.outputs = {output_of(start, "stdout", std::move(out->first)),
                                      output_of(start, "stderr", std::move(error->first))}})
          .first->second;
  auto pid = threads_.empty() ? fork_worker(start, inherited) : exec_worker(start, inherited);
  if (!pid) {
    workers_.erase(start.lease);
    return pid;
  }
  worker.pid = *pid;
  leases_.emplace(*pid, start.lease);
  return pid;
}

WorkerOutput Server::output_of(const WorkerStart& start, const char* file, Fd pipe) {
  WorkerOutput::Forward forward;
  if (start.forward_output)
    forward = [this, lease = start.lease](std::string lines) {
      if (outbox_.bytes() > kForwardBytes) return false;
      send(Output{lease, std::move(lines)});
      return true;
    };
  return WorkerOutput(std::move(pipe), std::filesystem::path(start.directory) / file,
                      std::move(forward));
}

Result<pid_t> Server::fork_worker(const WorkerStart& start, Inherited& inherited) {
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork");
  if (pid == 0) become_worker(start, inherited);
  ::setpgid(pid, pid);  // here too: a signal to the group may come before the child has run
  return pid;
}

void Server::become_worker(const WorkerStart& start, Inherited& inherited) {
  die_with(pid_);
  ::setpgid(0, 0);
  ::dup2(inherited.out.value(), STDOUT_FILENO);
  ::dup2(inherited.error.value(), STDERR_FILENO);
  inherited.out.reset();
  inherited.error.reset();
  socket_.reset();
  owner_.reset();
  signals_.reset();
  workers_.clear();
  // In place, or /proc/pid/environ would show the zygote's lease in children that never exec.
  const std::string lease = lease_text(name_, start.lease);
  std::memcpy(lease_variable_, lease.c_str(), lease.size());
  for (const auto& [name, value] : environment_for(start)) ::setenv(name.c_str(), value.c_str(), 1);
  ::setrlimit(RLIMIT_NOFILE, &usual_files_);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  run_worker(start, std::move(inherited.sockets[0]), std::move(inherited.sockets[1]), body_);
}

Result<pid_t> Server::exec_worker(const WorkerStart& start, Inherited& inherited) {
  auto sockets = socket_pair(SOCK_SEQPACKET);
  if (!sockets) return sockets.error();
  FrameWriter settings, worker;
  settings.number(static_cast<std::uint64_t>(pid_)).texts_by_name(parameters());
  write_worker_start(worker, start);
  for (auto sent : {send_frame(sockets->first.value(), settings.take()),
                    send_frame(sockets->first.value(), worker.take(), inherited.sockets)})
    if (!sent) return sent.error();
  SpawnOptions options;
  options.arguments = {"troupe-worker"};
  options.environment = environment_for(start);
  options.environment[kRoleVariable] = "worker";
  options.environment[kFdVariable] = std::to_string(kWorkerSocket);
  options.environment[kLeaseVariable] = lease_text(name_, start.lease);
  options.descriptors = {{inherited.out.value(), STDOUT_FILENO},
                         {inherited.error.value(), STDERR_FILENO},
                         {sockets->second.value(), kWorkerSocket}};
  return spawn(options);
}

void Server::reap() {
  signalfd_siginfo ignored;
  while (::read(signals_.value(), &ignored, sizeof ignored) > 0) {
  }
  bool look = look_for_orphans_;
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const pid_t pid = info.si_pid;
    const auto at = leases_.find(pid);
    // Before it is reaped: until then nobody else can get the number of its group.
    if (at != leases_.end()) ::kill(-pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    look = true;
    if (at != leases_.end()) finish(at->second, status);
  }
  if (look) kill_orphans();
}

void Server::finish(std::uint64_t lease, int status) {
  const auto at = workers_.find(lease);
  Worker& worker = at->second;
  for (WorkerOutput& output : worker.outputs) output.finish();
  send(Exited{.lease = lease, .exit = exit_of_wait_status(status)});
  leases_.erase(worker.pid);
  workers_.erase(at);
}

/// Processes whose parent has ended become children of the zygote, the subreaper. Those of an ended
/// worker are killed; their own children then come to us, so there is another look. One that shows
/// no lease (its user has emptied the environment, or it is just between fork and exec) is looked
/// at again too, and killed when no worker is left that it could belong to.
void Server::kill_orphans() {
  look_for_orphans_ = false;
  for (const pid_t child : children_of_this_process()) {
    if (leases_.contains(child)) continue;
    const auto lease = lease_of(child);
    const bool of_ours =
        lease ? *lease == 0 || workers_.contains(*lease) : leases_.contains(::getpgid(child));
    if (of_ours) continue;
    look_for_orphans_ = true;
    if (lease || workers_.empty()) ::kill(child, SIGKILL);
  }
}

std::optional<std::uint64_t> Server::lease_of(pid_t pid) const {
  const std::string text = environment_of(pid, kLeaseVariable);
  const std::string prefix = name_ + ".";
  if (!text.starts_with(prefix)) return {};
  std::uint64_t lease = 0;
  const auto [end, error] =
      std::from_chars(text.data() + prefix.size(), text.data() + text.size(), lease, 16);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return lease;
}

/// The owner is gone, or wants the end. Reaps before it exits: where process 1 reaps late, killed
/// workers would be seen for a while.
void Server::end() {
  const auto deadline = std::chrono::steady_clock::now() + limits::kShutdown;
  for (const auto& [pid, lease] : leases_) ::kill(-pid, SIGKILL);
  for (;;) {
    for (const pid_t child : children_of_this_process()) ::kill(child, SIGKILL);
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) break;
    if (std::chrono::steady_clock::now() > deadline) ::_exit(1);
    ::poll(nullptr, 0, 1);
  }
  for (auto& [lease, worker] : workers_)
    for (WorkerOutput& output : worker.outputs) output.finish();
  ::_exit(0);
}

}  // namespace

ProcessRole role_from_environment() {
  const char* kind = std::getenv(kRoleVariable);
  const char* number = std::getenv(kFdVariable);
  ProcessRole role;
  struct stat status {};
  if (kind && number) {
    role.fd = std::atoi(number);
    // An exported variable that is left over from somewhere comes without the socket.
    if (::fstat(role.fd, &status) == 0 && S_ISSOCK(status.st_mode))
      role.kind = std::string_view(kind) == "zygote"   ? ProcessRole::Kind::zygote
                  : std::string_view(kind) == "worker" ? ProcessRole::Kind::worker
                                                       : ProcessRole::Kind::driver;
  }
  ::unsetenv(kRoleVariable);
  ::unsetenv(kFdVariable);
  if (role.kind == ProcessRole::Kind::driver) return {};
  ::unsetenv("LD_BIND_NOW");
  return role;
}

void zygote_main(int fd, WorkerBody body) { Server(fd, body).run(); }

void worker_main_from_environment(int fd, WorkerBody body) {
  Fd socket(fd);
  const auto settings = wait_frame(fd, limits::kHandshake);
  auto frame = wait_frame(fd, limits::kHandshake);
  socket.reset();
  if (!settings || !frame || frame->fds.size() != 2) ::_exit(127);
  FrameReader in(settings->bytes);
  die_with(static_cast<pid_t>(in.number()));
  set_parameters(in.texts_by_name<Parameters>());
  FrameReader worker(frame->bytes);
  const WorkerStart start = read_worker_start(worker);
  if (!in.complete() || !worker.complete()) ::_exit(127);
  run_worker(start, std::move(frame->fds[0]), std::move(frame->fds[1]), body);
}

}  // namespace troupe::internal
