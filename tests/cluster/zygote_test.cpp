// Real processes, really killed. This program is its own zygote, worker and driver.
#include "libactor/internal/zygote.hpp"

#include "libactor/internal/zygote_main.hpp"
#include "tests/support/before_tests.hpp"
#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::zygote_event;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = "TROUPE_TEST_MARK";            // in all processes of one test case
constexpr const char* kDriver = "TROUPE_TEST_DRIVER";        // run as this driver
constexpr const char* kNoInit = "TROUPE_TEST_NO_INIT";       // leave main without init
constexpr const char* kThread = "TROUPE_TEST_EARLY_THREAD";  // a thread before init

// --- waiting --------------------------------------------------------------------------------

bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    ::poll(nullptr, 0, 2);
  }
  return true;
}

/// What the worker has written, until it is at least that long or the worker has closed.
std::string read_bytes(const Fd& fd, std::size_t count, std::chrono::milliseconds limit = 10s) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (text.size() < count) {
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{fd.value(), POLLIN, 0};
    if (rest.count() <= 0 || ::poll(&entry, 1, static_cast<int>(rest.count())) <= 0) break;
    char buffer[4096];
    const ssize_t size = ::read(fd.value(), buffer, std::min(sizeof buffer, count - text.size()));
    if (size <= 0) break;
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

void say(const Fd& fd, std::string_view text) {
  static_cast<void>(!::write(fd.value(), text.data(), text.size()));
}

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && pid != ::getpid() && environment_of(pid, kMark) == mark) pids.push_back(pid);
  }
  return pids;
}

int count_files(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// --- what runs in the zygote and the workers ------------------------------------------------

void note_load(const std::string& word) {
  if (const auto path = parameter("loads"); !path.empty())
    std::ofstream(path, std::ios::app) << word << ' ' << ::getpid() << '\n';
}

std::string shared_data() {
  note_load("shared");
  if (parameter("preload") == "abort") std::abort();
  if (parameter("preload") == "hang") {
    if (::fork() == 0) ::execlp("sleep", "sleep", "600", nullptr);
    ::pause();
  }
  if (parameter("preload") == "thread") std::thread([] { ::pause(); }).detach();
  return "data of " + parameter("who");
}

int failing_data() {
  if (parameter("preload") == "throw") throw std::runtime_error("no folder /data");
  return 1;
}

void pause_forever() {
  for (;;) ::pause();
}

/// Children that are hard to get rid of: ignoring SIGTERM, in sessions of their own, one without an
/// exec, one that is stopped, one whose parent has ended.
void start_grandchildren(const Fd& control) {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  const auto child = [&](const std::function<void()>& body) {
    if (::fork() != 0) return;
    ::setsid();
    body();
    pause_forever();
  };
  child([&] {
    say(control, "1");
    ::execlp("sleep", "sleep", "600", nullptr);
  });
  child([&] { say(control, "2"); });
  child([&] {
    say(control, "3");
    ::raise(SIGSTOP);
  });
  child([&] {
    child([&] { say(control, "4"); });
    ::_exit(0);
  });
  child([&] {
    child([&] { say(control, "5"); });  // a grandchild that becomes an orphan only later
  });
}

std::string disposition(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  return action.sa_handler != SIG_DFL      ? "ignored"
         : ::sigismember(&blocked, number) ? "blocked"
                                           : "default";
}

int worker_body(const WorkerStart& start, Fd control, Fd line) {
  const std::string& what = start.entry;
  if (what == "exit") return std::atoi(start.environment.at("CODE").c_str());
  if (what == "wait") {
    say(control, "r");
    char byte = 0;
    return ::read(control.value(), &byte, 1) == 1 ? 1 : 0;
  }
  if (what == "abort") std::abort();
  if (what == "exit(0)") std::exit(0);
  if (what == "look") {
    say(control, fs::current_path().string() + "|" + std::getenv("TROUPE_LEASE") + "|" +
                     std::getenv("CUDA_VISIBLE_DEVICES") + "|" + std::getenv("OMP_NUM_THREADS") +
                     "|" + (std::getenv("TROUPE_ROLE") ? "role" : "no role") + "|" +
                     (std::getenv("LD_BIND_NOW") ? "bound" : "lazy") + "|" + disposition(SIGINT) +
                     "|" + disposition(SIGCHLD) + "|" +
                     (::getpgrp() == ::getpid() ? "own group" : "group") + "|" +
                     std::to_string(count_files("/proc/self/fd")) + "\n");
    say(line, "L");
    return 0;
  }
  if (what == "preloaded") {
    const std::string data = preloaded<&shared_data>();
    const auto failing = fence(Errc::user_code, [] { return preloaded<&failing_data>(); });
    say(control, data + "|" + (failing ? "fine" : describe(failing.error())) + "\n");
    return 0;
  }
  if (what == "print") {
    const auto bytes = std::atoll(start.environment.at("BYTES").c_str());
    std::string lines;
    for (int i = 0; i < 100; ++i) lines += std::string(99, 'x') + "\n";
    std::printf("first line\n");
    for (long long done = 0; done < bytes; done += 10000) std::fputs(lines.c_str(), stdout);
    std::fprintf(stderr, "to standard error\n");
    std::printf("last line\n");
    std::printf("unfinished");
    std::fflush(stdout);
    ::raise(SIGKILL);
  }
  if (what == "grandchildren" || what == "grandchildren, ends") {
    start_grandchildren(control);
    if (what == "grandchildren") pause_forever();
    return 3;
  }
  if (what == "daemon, ends later") {  // its daemon must live as long as it does
    if (::fork() == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
      say(control, "d");
      char byte = 0;
      const bool told = ::read(line.value(), &byte, 1) == 1;
      say(control, told ? "alive" : "lost");
      pause_forever();
    }
    pause_forever();
  }
  return 99;
}

// --- the owner's side -----------------------------------------------------------------------

/// A driver of a test has its mark from the test.
std::string mark_of(const test::TempFolder& folder) {
  const char* given = std::getenv(kMark);
  return given ? given : folder.path().filename().string();
}

class Owner {
 public:
  explicit Owner(ZygoteOptions options = {}) {
    options.on_event = [this](ZygoteEvent event) {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    };
    options.environment[kMark] = mark;
    zygote = unwrap(Zygote::start(std::move(options)));
  }
  ~Owner() { zygote.reset(); }

  /// Takes the first event of that kind (and lease) out of what has come.
  template <class Event>
  std::optional<Event> wait(std::uint64_t lease = 0, std::chrono::milliseconds limit = 10s) {
    std::unique_lock lock(mutex_);
    std::optional<Event> found;
    changed_.wait_for(lock, limit, [&] {
      const auto at = std::find_if(events_.begin(), events_.end(), [&](const ZygoteEvent& event) {
        const auto* one = std::get_if<Event>(&event);
        if constexpr (requires { one->lease; })
          return one && (lease == 0 || one->lease == lease);
        else
          return one != nullptr;
      });
      if (at == events_.end()) return false;
      found = std::get<Event>(std::move(*at));
      events_.erase(at);
      return true;
    });
    return found;
  }

  /// Starts a worker and returns our end of its control socket.
  Fd start(WorkerStart start, Fd* line = nullptr) {
    auto control = unwrap(socket_pair(SOCK_STREAM));
    auto second = unwrap(socket_pair(SOCK_SEQPACKET));
    if (start.directory.empty()) start.directory = folder.path().string();
    start.id = "a1b2c_0000" + std::to_string(start.lease);
    auto sent = zygote->start_worker(start, std::move(control.second), std::move(second.second));
    if (!sent) throw Exception(sent.error());
    if (line) *line = std::move(second.first);
    return std::move(control.first);
  }

  Exit run(WorkerStart worker) {
    const auto lease = worker.lease;
    const Fd control = start(std::move(worker));
    const auto exited = wait<Exited>(lease);
    if (!exited) throw std::runtime_error("no exit report");
    return exited->exit;
  }

  test::TempFolder folder;
  std::string mark = mark_of(folder);
  std::unique_ptr<Zygote> zygote;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ZygoteEvent> events_;
};

WorkerStart exit_with(std::uint64_t lease, int code) {
  return {.lease = lease, .entry = "exit", .environment = {{"CODE", std::to_string(code)}}};
}

WorkerStart print(std::uint64_t lease, std::int64_t bytes, bool forward_output = false) {
  return {.lease = lease,
          .entry = "print",
          .environment = {{"BYTES", std::to_string(bytes)}},
          .forward_output = forward_output};
}

bool nothing_left(const std::string& mark, std::chrono::milliseconds limit = 2s) {
  const bool none = eventually(limit, [&] { return marked_processes(mark).empty(); });
  for (const pid_t pid : marked_processes(mark)) {
    MESSAGE("left: " << pid << " " << content("/proc/" + std::to_string(pid) + "/cmdline"));
    ::kill(pid, SIGKILL);
  }
  return none;
}

// --- drivers, in processes of their own -----------------------------------------------------

constexpr int kReport = 3;  // the socket to the test

[[noreturn]] void drive_grandchildren() {
  Owner owner;
  std::vector<Fd> controls;
  for (std::uint64_t lease = 1; lease <= 3; ++lease) {
    controls.push_back(owner.start({.lease = lease, .entry = "grandchildren"}));
    if (read_bytes(controls.back(), 5).size() != 5) ::_exit(1);
  }
  say(Fd(kReport), "r");
  pause_forever();
  ::_exit(0);
}

/// A process that the user has forked holds our end of the zygote's socket.
[[noreturn]] void drive_with_fork() {
  Owner owner;
  const Fd control = owner.start({.lease = 1, .entry = "grandchildren"});
  if (read_bytes(control, 5).size() != 5) ::_exit(1);
  const pid_t fork = ::fork();
  if (fork == 0) pause_forever();
  say(Fd(kReport), std::string_view(reinterpret_cast<const char*>(&fork), sizeof fork));
  pause_forever();
  ::_exit(0);
}

[[noreturn]] void drive_preload() {
  set_parameters({{"preload", "hang"}, {"loads", std::getenv("LOADS")}});
  Owner owner;
  const Fd control = owner.start(exit_with(1, 0));
  pause_forever();
  ::_exit(0);
}

[[noreturn]] void drive_until_interrupted() {
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  const Fd report(kReport);
  {
    Owner owner;
    Fd control = owner.start({.lease = 1, .entry = "wait"});
    if (read_bytes(control, 1) != "r") ::_exit(1);
    say(report, "r");
    int number = 0;
    ::sigwait(&interrupt, &number);
    control.reset();
    const auto exited = owner.wait<Exited>(1);
    say(report, exited ? exited->exit.text() : "no exit report");
  }
  ::_exit(0);
}

[[noreturn]] void drive_many() {
  const rlimit few{256, 256};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const Fd report(kReport);
  {
    Owner owner;
    const auto files_of = [](pid_t pid) {
      return count_files("/proc/" + std::to_string(pid) + "/fd");
    };
    const auto run = [&](std::uint64_t first, std::uint64_t last) {
      constexpr std::uint64_t kAtOnce = 4;
      std::map<std::uint64_t, Fd> running;
      for (std::uint64_t lease = first; lease <= last; ++lease) {
        running.emplace(lease, owner.start(exit_with(lease, 5)));
        if (running.size() < kAtOnce) continue;
        const auto exited = owner.wait<Exited>();
        if (!exited || exited->exit != Exit{.code = 5}) ::_exit(1);
        running.erase(exited->lease);
      }
      for (; !running.empty(); running.erase(running.begin()))
        if (!owner.wait<Exited>(running.begin()->first)) ::_exit(2);
    };
    run(1, 100);  // what is made once is there now
    const pid_t zygote = owner.zygote->pid();
    const int before = files_of(zygote), before_here = files_of(::getpid());
    run(101, 100 + std::strtoull(std::getenv("COUNT"), nullptr, 10));
    const bool flat = files_of(zygote) == before && files_of(::getpid()) == before_here;
    const std::string children = content("/proc/" + std::to_string(zygote) + "/task/" +
                                         std::to_string(zygote) + "/children");
    say(report, !flat ? "descriptors grew" : !children.empty() ? "zombies " + children : "flat");
  }
  ::_exit(0);
}

struct Driver {
  explicit Driver(const std::string& name, std::map<std::string, std::string> environment = {}) {
    auto sockets = unwrap(socket_pair(SOCK_STREAM));
    report = std::move(sockets.first);
    environment[kMark] = mark;
    environment[kDriver] = name;
    process = Process(unwrap(spawn({.arguments = {"driver"},
                                    .environment = environment,
                                    .descriptors = {{sockets.second.value(), kReport}}})));
  }
  ~Driver() {
    process.signal(SIGKILL);
    static_cast<void>(process.wait(5s));
  }

  std::string mark = test::TempFolder().path().filename().string();
  Fd report;
  Process process;
};

}  // namespace

void before_tests(int&, char**) {
  if (std::getenv(kNoInit)) ::_exit(5);
  if (std::getenv(kThread)) {
    std::atomic<bool> named = false;
    std::thread([&] {
      ::prctl(PR_SET_NAME, "early-bird");
      named = true;
      ::pause();
    }).detach();
    while (!named) std::this_thread::yield();
  }
  const ProcessRole role = role_from_environment();
  if (role.kind == ProcessRole::Kind::zygote) zygote_main(role.fd, &worker_body);
  if (role.kind == ProcessRole::Kind::worker) worker_main_from_environment(role.fd, &worker_body);
  const char* driver = std::getenv(kDriver);
  if (!driver) return;
  if (std::string_view(driver) == "grandchildren") drive_grandchildren();
  if (std::string_view(driver) == "with a fork") drive_with_fork();
  if (std::string_view(driver) == "preload") drive_preload();
  if (std::string_view(driver) == "until interrupted") drive_until_interrupted();
  if (std::string_view(driver) == "many") drive_many();
  ::_exit(98);
}

TEST_CASE("zygote: is ready, forks, and reports code or signal, times and memory of each worker") {
  Owner owner;
  const auto ready = owner.wait<Ready>();
  REQUIRE(ready);
  CHECK(ready->pid == owner.zygote->pid());
  CHECK(ready->threads.empty());
  CHECK(owner.run(exit_with(1, 0)) == Exit{.code = 0});
  CHECK(owner.run(exit_with(2, 7)) == Exit{.code = 7});
  CHECK(owner.run({.lease = 3, .entry = "abort"}) == Exit{.signal = SIGABRT});
  CHECK(owner.run({.lease = 4, .entry = "exit(0)"}) == Exit{.code = 0});

  const Fd control = owner.start({.lease = 5, .entry = "wait"});
  const auto started = owner.wait<Started>(5);
  REQUIRE(started);
  REQUIRE(read_bytes(control, 1) == "r");
  owner.zygote->signal(5, SIGTERM, false);
  const auto exited = owner.wait<Exited>(5);
  REQUIRE(exited);
  CHECK(exited->exit == Exit{.signal = SIGTERM});
  CHECK_FALSE(owner.wait<Warned>(0, 0ms));
}

TEST_CASE("zygote: a worker has its folder, lease, devices, threads, group, and clean signals") {
  struct sigaction old {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGINT, &ignore, &old) == 0);  // as in a program that a script starts with &
  std::string seen[2], folder[2];
  for (const bool by_exec : {false, true}) {
    CAPTURE(by_exec);
    ZygoteOptions options;
    if (by_exec) options.environment[kThread] = "1";
    Owner owner(std::move(options));
    Fd line;
    const Fd control =
        owner.start({.lease = 0xabcd, .entry = "look", .threads = 3, .devices = "2,5"}, &line);
    seen[by_exec] = read_bytes(control, 4096);
    folder[by_exec] = owner.folder.path().string();
    CHECK(read_bytes(line, 1) == "L");
  }
  ::sigaction(SIGINT, &old, nullptr);
  for (int i = 0; i < 2; ++i) {
    CAPTURE(seen[i]);
    REQUIRE(seen[i].starts_with(folder[i] + "|"));
    seen[i].erase(0, seen[i].find('|') + 17 + 1);
    // Five descriptors beside the one that lists them: 0, 1, 2, control and line.
    CHECK(seen[i] == "000000000000abcd|2,5|3|no role|lazy|default|default|own group|6\n");
  }
}

TEST_CASE("zygote: a start that cannot work is told with its reason, and the next one works") {
  Owner owner;
  const fs::path gone = owner.folder / "gone";
  Fd control = owner.start({.lease = 1, .entry = "wait", .directory = gone.string()});
  const auto failed = owner.wait<StartFailed>(1);
  REQUIRE(failed);
  CHECK(failed->text == "start worker: folder '" + gone.string() + "': No such file or directory");

  const Fd first = owner.start({.lease = 2, .entry = "wait"});
  REQUIRE(owner.wait<Started>(2));
  const Fd second = owner.start({.lease = 2, .entry = "wait"});
  REQUIRE(owner.wait<StartFailed>(2));

  WorkerStart large{.lease = 3, .entry = "exit", .directory = owner.folder.path().string()};
  large.environment["LARGE"] = std::string(limits::kFrameBytes, 'x');
  const auto sent = owner.zygote->start_worker(large, Fd(), Fd());
  REQUIRE_FALSE(sent);
  CHECK(code_of(sent.error()) == Errc::bad_request);
  CHECK(owner.run(exit_with(4, 4)) == Exit{.code = 4});
}

TEST_CASE("zygote: a signal to a lease that has ended goes nowhere, one to a group to all of it") {
  Owner owner;
  CHECK(owner.run(exit_with(1, 0)) == Exit{});
  const Fd control = owner.start({.lease = 2, .entry = "wait"});
  REQUIRE(read_bytes(control, 1) == "r");
  for (const std::uint64_t lease : {0, 1, 77}) owner.zygote->signal(lease, SIGKILL, true);
  owner.zygote->signal(2, 0, false);
  CHECK_FALSE(owner.wait<Exited>(0, 50ms));
  owner.zygote->signal(2, SIGKILL, true);
  CHECK(owner.wait<Exited>(2)->exit == Exit{.signal = SIGKILL});
}

TEST_CASE("zygote: a killed worker's children are gone, however they hide, before 2 s") {
  Owner owner;
  const Fd kept = owner.start({.lease = 9, .entry = "wait"});
  REQUIRE(read_bytes(kept, 1) == "r");
  const auto others = marked_processes(owner.mark).size();
  SUBCASE("killed") {
    const Fd control = owner.start({.lease = 1, .entry = "grandchildren"});
    REQUIRE(read_bytes(control, 5).size() == 5);
    const auto started = owner.wait<Started>(1);
    REQUIRE(started);
    CHECK(marked_processes(owner.mark).size() >= others + 6);
    ::kill(started->pid, SIGKILL);
    CHECK(owner.wait<Exited>(1, 2s)->exit == Exit{.signal = SIGKILL});
  }
  SUBCASE("ended by itself, while its children hold its output") {
    const Fd control = owner.start({.lease = 1, .entry = "grandchildren, ends"});
    const auto exited = owner.wait<Exited>(1, 2s);
    REQUIRE(exited);
    CHECK(exited->exit == Exit{.code = 3});
  }
  CHECK(eventually(2s, [&] { return marked_processes(owner.mark).size() <= others; }));
  CHECK(owner.wait<Exited>(9, 0ms) == std::nullopt);
  owner.zygote.reset();
  CHECK(nothing_left(owner.mark));
}

TEST_CASE("zygote: the daemon of a worker that lives is left alone when another worker ends") {
  Owner owner;
  Fd line;
  const Fd control = owner.start({.lease = 1, .entry = "daemon, ends later"}, &line);
  REQUIRE(read_bytes(control, 1) == "d");
  CHECK(owner.run(exit_with(2, 0)) == Exit{});
  say(line, "?");
  CHECK(read_bytes(control, 5) == "alive");
  owner.zygote->signal(1, SIGKILL, false);
  REQUIRE(owner.wait<Exited>(1));
  CHECK(read_bytes(control, 1).empty());  // the daemon had the last copy of the other end
}

TEST_CASE("zygote: SIGKILL of the zygote ends all that it had started, and the owner is told") {
  Owner owner;
  std::vector<Fd> controls;
  for (std::uint64_t lease = 1; lease <= 2; ++lease) {
    controls.push_back(owner.start({.lease = lease, .entry = "grandchildren"}));
    REQUIRE(read_bytes(controls.back(), 5).size() == 5);
  }
  ::kill(owner.zygote->pid(), SIGKILL);
  const auto lost = owner.wait<Lost>(0, 2s);
  REQUIRE(lost);
  CHECK(lost->text == "the zygote is lost: signal 9 (Killed)");
  CHECK(nothing_left(owner.mark, 0ms));  // already, when the owner hears of it
  CHECK(owner.zygote->start_worker(exit_with(5, 0), Fd(), Fd()));  // harmless
}

TEST_CASE("zygote: SIGKILL of the driver leaves no process") {
  Driver driver("grandchildren");
  REQUIRE(read_bytes(driver.report, 1, 20s) == "r");
  CHECK(marked_processes(driver.mark).size() >= 20);
  driver.process.signal(SIGKILL);
  CHECK(nothing_left(driver.mark));
}

TEST_CASE("zygote: SIGKILL of the driver while a preload function runs leaves no process") {
  test::TempFolder folder;
  Driver driver("preload", {{"LOADS", (folder / "loads").string()}});
  REQUIRE(eventually(10s, [&] { return !content(folder / "loads").empty(); }));
  driver.process.signal(SIGKILL);
  CHECK(nothing_left(driver.mark));
}

TEST_CASE("zygote: a process that the driver has forked does not keep a killed driver's workers") {
  Driver driver("with a fork");
  pid_t fork = 0;
  const std::string told = read_bytes(driver.report, sizeof fork);
  REQUIRE(told.size() == sizeof fork);
  std::memcpy(&fork, told.data(), sizeof fork);
  driver.process.signal(SIGKILL);
  CHECK(eventually(2s, [&] { return marked_processes(driver.mark) == std::vector<pid_t>{fork}; }));
  ::kill(fork, SIGKILL);
  CHECK(nothing_left(driver.mark));
}

TEST_CASE("zygote: one that does not answer any more is killed, and all it had started" *
          doctest::test_suite("slow")) {
  Owner owner;
  const Fd control = owner.start({.lease = 1, .entry = "grandchildren"});
  REQUIRE(read_bytes(control, 5).size() == 5);
  ::kill(owner.zygote->pid(), SIGSTOP);
  owner.zygote.reset();
  CHECK(nothing_left(owner.mark, 0ms));
}

TEST_CASE("zygote: SIGINT to the driver's process group does not reach the workers") {
  Driver driver("until interrupted");
  REQUIRE(read_bytes(driver.report, 1) == "r");
  ::kill(-driver.process.pid(), SIGINT);
  CHECK(read_bytes(driver.report, 100) == "exit code 0");
  CHECK(nothing_left(driver.mark));
}

/// How a driver with `ulimit -n 256` ends after so many workers.
std::string after_workers(int count, std::chrono::milliseconds limit) {
  Driver driver("many", {{"COUNT", std::to_string(count)}});
  const std::string result = read_bytes(driver.report, 100, limit);
  CHECK(nothing_left(driver.mark));
  return result;
}

TEST_CASE("zygote: 200 workers in a row with ulimit -n 256 leave no descriptor and no zombie") {
  CHECK(after_workers(200, 50s) == "flat");
}

TEST_CASE("zygote: 2,000 workers in a row with ulimit -n 256 leave no descriptor and no zombie" *
          doctest::test_suite("slow")) {
  CHECK(after_workers(2000, 500s) == "flat");
}

TEST_CASE("zygote: 200 MB of output stay within the bound, first to last line of what is kept") {
  Owner owner;
  const Fd control = owner.start(print(1, 200'000'000));
  const auto exited = owner.wait<Exited>(1, 50s);
  REQUIRE(exited);
  CHECK(exited->exit == Exit{.signal = SIGKILL});
  const fs::path out = owner.folder / "stdout";
  CHECK(fs::file_size(out) <= limits::kLogBytes);
  CHECK(fs::file_size(out.string() + ".1") <= limits::kLogBytes);
  CHECK(content(out).ends_with("x\nlast line\nunfinished"));
  CHECK(content(owner.folder / "stderr") == "to standard error\n");
}

TEST_CASE("zygote: forking stays quick while others print without end") {
  Owner owner;
  std::vector<Fd> controls;
  for (std::uint64_t lease = 1; lease <= 2; ++lease)
    controls.push_back(owner.start(print(lease, 1'000'000'000'000)));
  REQUIRE(owner.wait<Started>(2));
  for (std::uint64_t lease = 10; lease < 30; ++lease)
    CHECK(owner.run(exit_with(lease, 2)) == Exit{.code = 2});
  for (std::uint64_t lease = 1; lease <= 2; ++lease) {
    owner.zygote->signal(lease, SIGKILL, true);
    CHECK(owner.wait<Exited>(lease));
  }
}

TEST_CASE("zygote: output is forwarded in whole lines when it is asked for, the rest at the end") {
  Owner owner;
  const Fd control = owner.start(print(1, 100'000, true));
  REQUIRE(owner.wait<Exited>(1));
  std::string lines;
  while (auto output = owner.wait<Output>(1, 0ms)) {
    CHECK(output->lines.ends_with("\n"));
    lines += output->lines;
  }
  const std::string error = "to standard error\n";
  const auto at = lines.find(error);
  REQUIRE(at != std::string::npos);
  lines.erase(at, error.size());
  CHECK(lines == content(owner.folder / "stdout") + "\n");
  CHECK(lines.ends_with("last line\nunfinished\n"));
}

TEST_CASE("zygote: preload functions run once, before the first fork, and know the parameters") {
  test::TempFolder folder;
  set_parameters({{"who", "early"}, {"loads", (folder / "loads").string()}});
  Owner owner;
  set_parameters({});
  REQUIRE(owner.wait<Ready>());
  CHECK(content(folder / "loads").empty());
  for (std::uint64_t lease = 1; lease <= 3; ++lease) {
    const Fd control = owner.start({.lease = lease, .entry = "preloaded"});
    CHECK(read_bytes(control, 4096) == "data of early|fine\n");
  }
  CHECK(content(folder / "loads") == "shared " + std::to_string(owner.zygote->pid()) + "\n");
}

TEST_CASE("zygote: a preload function that throws is told at once, and thrown in the workers") {
  set_parameters({{"preload", "throw"}});
  Owner owner;
  set_parameters({});
  const Fd control = owner.start({.lease = 1, .entry = "preloaded"});
  CHECK(read_bytes(control, 4096) ==
        "data of |user code: preloaded 'failing_data': no folder /data\n");
  const auto warned = owner.wait<Warned>();
  REQUIRE(warned);
  CHECK(warned->text == "preloaded 'failing_data': no folder /data");
}

TEST_CASE("zygote: a preload function that crashes is named") {
  set_parameters({{"preload", "abort"}});
  Owner owner;
  set_parameters({});
  const Fd control = owner.start(exit_with(1, 0));
  const auto lost = owner.wait<Lost>();
  REQUIRE(lost);
  CHECK(lost->text ==
        "the zygote is lost: signal 6 (Aborted) while preloaded<&shared_data>() was loading");
}

TEST_CASE("zygote: ends at once, with what a preload function has started, when it is given up") {
  test::TempFolder folder;
  set_parameters({{"preload", "hang"}, {"loads", (folder / "loads").string()}});
  Owner owner;
  set_parameters({});
  const Fd control = owner.start(exit_with(1, 0));
  REQUIRE(eventually(10s, [&] { return !content(folder / "loads").empty(); }));
  const auto before = std::chrono::steady_clock::now();
  owner.zygote.reset();
  CHECK(std::chrono::steady_clock::now() - before < limits::kShutdown);
  CHECK(nothing_left(owner.mark, 0ms));
}

TEST_CASE("zygote: a main that ends without init is told the way out") {
  ZygoteOptions options;
  options.environment[kNoInit] = "1";
  Owner owner(std::move(options));
  const auto lost = owner.wait<Lost>();
  REQUIRE(lost);
  CHECK(lost->text ==
        "the zygote is lost: exit code 5 before it called troupe::init; init must come first in "
        "main");
}

TEST_CASE("zygote: with a thread before init workers are exec'ed, with one warning that names it") {
  set_parameters({{"who", "exec"}});
  ZygoteOptions options;
  options.environment[kThread] = "1";
  SUBCASE("by default") {
    Owner owner(std::move(options));
    CHECK(owner.wait<Ready>()->threads == std::vector<std::string>{"early-bird"});
    for (std::uint64_t lease = 1; lease <= 2; ++lease) {
      const Fd control = owner.start({.lease = lease, .entry = "preloaded"});
      CHECK(read_bytes(control, 4096) == "data of exec|fine\n");
      CHECK(owner.wait<Exited>(lease)->exit == Exit{});
    }
    CHECK(owner.wait<Warned>()->text.starts_with("1 other thread (early-bird) run"));
    CHECK_FALSE(owner.wait<Warned>(0, 0ms));
    // The same care is taken of what they leave behind.
    const Fd control = owner.start({.lease = 3, .entry = "grandchildren"});
    REQUIRE(read_bytes(control, 5).size() == 5);
    owner.zygote->signal(3, SIGKILL, false);
    REQUIRE(owner.wait<Exited>(3));
    CHECK(eventually(2s, [&] { return marked_processes(owner.mark).size() == 1; }));
  }
  SUBCASE("strict") {
    options.strict = true;
    Owner owner(std::move(options));
    const Fd control = owner.start(exit_with(1, 0));
    CHECK(
        owner.wait<StartFailed>(1)->text.starts_with("start worker: 1 other thread (early-bird)"));
    CHECK_FALSE(owner.wait<Warned>(0, 0ms));
  }
  set_parameters({});
}

TEST_CASE("zygote: SIGKILL of a zygote whose workers were exec'ed ends them too") {
  ZygoteOptions options;
  options.environment[kThread] = "1";
  Owner owner(std::move(options));
  const Fd control = owner.start({.lease = 1, .entry = "grandchildren"});
  REQUIRE(read_bytes(control, 5).size() == 5);
  ::kill(owner.zygote->pid(), SIGKILL);
  REQUIRE(owner.wait<Lost>());
  CHECK(nothing_left(owner.mark, 0ms));
}

TEST_CASE("zygote: a thread that a preload function leaves behind makes workers exec'ed") {
  set_parameters({{"preload", "thread"}});
  Owner owner;
  set_parameters({});
  CHECK(owner.run(exit_with(1, 6)) == Exit{.code = 6});
  CHECK(owner.wait<Warned>());
}

TEST_CASE("zygote: how long a start takes, for the eye") {
  Owner owner;
  REQUIRE(owner.wait<Ready>());
  REQUIRE(owner.run(exit_with(1, 0)) == Exit{});
  std::vector<double> started_ms, ended_ms;
  for (std::uint64_t lease = 2; lease < 102; ++lease) {
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [&] {
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
          .count();
    };
    const Fd control = owner.start({.lease = lease, .entry = "wait"});
    REQUIRE(read_bytes(control, 1) == "r");
    started_ms.push_back(since());
    ::shutdown(control.value(), SHUT_RDWR);
    REQUIRE(owner.wait<Exited>(lease));
    ended_ms.push_back(since());
  }
  std::sort(started_ms.begin(), started_ms.end());
  std::sort(ended_ms.begin(), ended_ms.end());
  std::printf("request to the worker's first byte %.2f ms, to the exit report %.2f ms (medians)\n",
              started_ms[50], ended_ms[50]);
}
