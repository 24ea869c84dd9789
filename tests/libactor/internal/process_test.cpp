#include "libactor/internal/process.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::internal;
using namespace std::chrono_literals;

namespace {

SpawnOptions shell(const std::string& script) {
  return {.executable = "/bin/sh", .arguments = {"sh", "-c", script}};
}

std::string read_until_end(const Fd& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = ::read(fd.value(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  return text;
}

std::pair<Fd, Fd> make_pipe() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

TEST_CASE("process: code or signal of a child are told apart") {
  CHECK(*Process(unwrap(spawn(shell("exit 3")))).wait(5s) == Exit{.code = 3});
  const Process sleeper(unwrap(spawn(shell("exec sleep 60"))));
  CHECK_FALSE(sleeper.wait(1ms));
  sleeper.signal(SIGTERM);
  const auto exit = sleeper.wait(5s);
  REQUIRE(exit);
  CHECK(*exit == Exit{.signal = SIGTERM});
  CHECK(exit->text() == "signal 15 (Terminated)");
  CHECK(Exit{.code = 3}.text() == "exit code 3");
}

TEST_CASE("process: a program that is not there is an error that names it") {
  const auto result = spawn({.executable = "/no/such/program", .arguments = {"x"}});
  REQUIRE_FALSE(result);
  CHECK(text_of(result.error()) == "start /no/such/program: No such file or directory");
}

TEST_CASE("process: a child gets the descriptors it was given, and no other") {
  auto [in, out] = make_pipe();
  auto [in2, out2] = make_pipe();
  // Numbers that cross over: a plain row of dup2 would lose one of them.
  auto options = shell("echo one >&" + std::to_string(in.value()) + "; echo two >&" +
                       std::to_string(out.value()) + "; set -- /proc/$$/fd/*; echo $# >&" +
                       std::to_string(out.value()));
  options.descriptors = {{out.value(), in.value()}, {out2.value(), out.value()}};
  const int leaked = ::fcntl(out.value(), F_DUPFD, 100);  // not close-on-exec
  const Process child(unwrap(spawn(options)));
  ::close(leaked);
  out.reset();
  out2.reset();
  CHECK(child.wait(5s) == Exit{.code = 0});
  CHECK(read_until_end(in) == "one\n");
  CHECK(read_until_end(in2) == "two\n6\n");  // 0 to 2, the two, and the one that lists
}

TEST_CASE("process: a child has its own group, and signals that we ignore are not ignored there") {
  struct sigaction old {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGINT, &ignore, &old) == 0);
  const Process child(unwrap(spawn(shell("kill -INT $$; exit 7"))));
  ::sigaction(SIGINT, &old, nullptr);
  CHECK(::getpgid(child.pid()) == child.pid());
  CHECK(child.wait(5s) == Exit{.signal = SIGINT});
}

TEST_CASE("process: names of the other threads; none when there is one") {
  const auto before = other_threads();
  std::mutex mutex;
  std::condition_variable changed;
  bool named = false, done = false;
  std::thread stray([&] {
    ::prctl(PR_SET_NAME, "stray");
    std::unique_lock lock(mutex);
    named = true;
    changed.notify_all();
    changed.wait(lock, [&] { return done; });
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return named; });
  }
  auto names = other_threads();
  CHECK(names.size() == before.size() + 1);
  CHECK(std::count(names.begin(), names.end(), "stray") == 1);
  {
    std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  stray.join();
}

TEST_CASE("process: children are listed, and found and killed by their environment") {
  auto options = shell("sleep 60 & wait");
  options.environment = {{"TROUPE_TEST_MARK", "a1.17"}};
  const Process marked(unwrap(spawn(options)));
  options.environment = {{"TROUPE_TEST_MARK", "b2.17"}};
  const Process other(unwrap(spawn(options)));
  const auto children = children_of_this_process();
  CHECK(std::count(children.begin(), children.end(), marked.pid()) == 1);
  CHECK(environment_of(marked.pid(), "TROUPE_TEST_MARK") == "a1.17");
  CHECK(environment_of(marked.pid(), "TROUPE_TEST").empty());
  CHECK(kill_by_environment("TROUPE_TEST_MARK", "a1.") >= 1);
  CHECK(marked.wait(5s) == Exit{.signal = SIGKILL});
  CHECK_FALSE(other.wait(0ms));
  CHECK(kill_by_environment("TROUPE_TEST_MARK", "b2.") >= 1);
  CHECK(other.wait(5s) == Exit{.signal = SIGKILL});
}
