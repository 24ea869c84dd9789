#include "libactor/internal/process.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::internal {
namespace {

namespace fs = std::filesystem;

constexpr int kMostPasses = 100;  ///< over all processes, while more are found

Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void send_signal(const Fd& pidfd, int number) {
  ::syscall(SYS_pidfd_send_signal, pidfd.value(), number, nullptr, 0);
}

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return pid;
}

/// The numbers that are names in a folder of /proc.
std::vector<pid_t> pids_in(const char* folder) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (auto pid = parse_pid(at->path().filename().string())) pids.push_back(*pid);
  return pids;
}

/// The fourth field of /proc/pid/stat; the second may hold spaces and brackets.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat");
  const auto bracket = stat.rfind(')');
  if (bracket == std::string::npos || stat.size() < bracket + 4) return -1;
  return static_cast<pid_t>(std::atol(stat.c_str() + bracket + 4));
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string Exit::text() const {
  if (signal == 0) return "exit code " + std::to_string(code);
  const char* name = ::sigdescr_np(signal);
  return "signal " + std::to_string(signal) + (name ? " (" + std::string(name) + ")" : "");
}

Exit exit_of_wait_status(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

Result<pid_t> spawn(const SpawnOptions& options) {
  auto arguments = options.arguments;
  auto environment = merged_environment(options.environment);

  // Descriptors are first moved above all numbers that they may get, or one dup2 could overwrite
  // the source of the next.
  int free_number = 3;
  for (const auto& [here, there] : options.descriptors)
    free_number = std::max(free_number, there + 1);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // What we inherited without close-on-exec goes nowhere; closing what is not open is no error.
  for (int number = 3; number < free_number; ++number)
    ::posix_spawn_file_actions_addclose(&actions, number);
  std::vector<Fd> moved;
  for (const auto& [here, there] : options.descriptors) {
    moved.emplace_back(::fcntl(here, F_DUPFD_CLOEXEC, free_number));
    if (!moved.back()) {
      const Error error = system_error("duplicate a descriptor");
      ::posix_spawn_file_actions_destroy(&actions);
      return error;
    }
    ::posix_spawn_file_actions_adddup2(&actions, moved.back().value(), there);
  }
  for (int number = 3; number < free_number; ++number)
    if (std::none_of(options.descriptors.begin(), options.descriptors.end(),
                     [&](const auto& pair) { return pair.second == number; }))
      ::posix_spawn_file_actions_addclose(&actions, number);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, free_number);

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t signals;
  ::sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  pid_t pid = -1;
  const int code = ::posix_spawn(&pid, options.executable.c_str(), &actions, &attributes,
                                 pointers_to(arguments).data(), pointers_to(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    errno = code;
    return system_error("start " + options.executable);
  }
  return pid;
}

Process::Process(pid_t pid) : pid_(pid), pidfd_(open_pidfd(pid)) {}

void Process::signal(int number) const {
  if (pidfd_) send_signal(pidfd_, number);
}

std::optional<Exit> Process::wait(std::chrono::milliseconds timeout) const {
  if (!pidfd_) return Exit{};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{pidfd_.value(), POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(0, rest.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {};
    break;
  }
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.value()), &info, WEXITED) != 0)
    if (errno != EINTR) return Exit{};
  if (info.si_code == CLD_EXITED) return Exit{.code = info.si_status};
  return Exit{.signal = info.si_status};
}

std::vector<std::string> other_threads() {
  std::vector<std::string> names;
  for (pid_t thread : pids_in("/proc/self/task")) {
    if (thread == ::getpid()) continue;
    std::string name = read_all("/proc/self/task/" + std::to_string(thread) + "/comm");
    if (name.empty()) continue;  // it has just ended
    if (name.back() == '\n') name.pop_back();
    names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  bool listed = true;  // the kernel's own list, where it was built in
  for (pid_t thread : pids_in("/proc/self/task")) {
    std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/children");
    listed = listed && in.is_open();
    for (pid_t child = 0; in >> child;) children.push_back(child);
  }
  if (listed) return children;
  children.clear();
  for (pid_t pid : pids_in("/proc"))
    if (parent_of(pid) == ::getpid()) children.push_back(pid);
  return children;
}

std::string environment_of(pid_t pid, std::string_view name) {
  const std::string all = read_all("/proc/" + std::to_string(pid) + "/environ");
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return {};
}

int kill_by_environment(std::string_view name, std::string_view prefix) {
  // Again until nobody new is found: one that forks while we look is killed, its child is not.
  std::set<pid_t> killed;
  bool found = true;
  for (int pass = 0; found && pass < kMostPasses; ++pass) {
    found = false;
    for (const pid_t pid : pids_in("/proc")) {
      if (pid == ::getpid() || killed.contains(pid)) continue;
      // The descriptor first: if the process ends now, the signal goes nowhere.
      const Fd pidfd = open_pidfd(pid);
      if (!pidfd || !environment_of(pid, name).starts_with(prefix)) continue;
      send_signal(pidfd, SIGKILL);
      killed.insert(pid);
      found = true;
    }
  }
  return static_cast<int>(killed.size());
}

}  // namespace troupe::internal
