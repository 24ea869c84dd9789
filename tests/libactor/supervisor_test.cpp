#include "libactor/supervisor.hpp"

#include <doctest/doctest.h>

#include <csignal>

using namespace troupe;
using namespace std::chrono_literals;
using Kind = Failure::Kind;
using KilledFor = Ending::KilledFor;

TEST_CASE("classify: with a goodbye the body's own word stands, however the process then ended") {
  CHECK(classify({.said_goodbye = true}) == Failure{});
  CHECK(classify({.said_goodbye = true, .reaped = true, .signal = SIGKILL}) == Failure{});
  CHECK(classify({.said_goodbye = true, .goodbye_failure = "shapes differ", .reaped = true}) ==
        Failure{Kind::user, "shapes differ"});
}

TEST_CASE("classify: what we killed fails for our reason, or for none") {
  CHECK(classify({.killed_for = KilledFor::unwanted, .reaped = true, .signal = SIGKILL}) ==
        Failure{});
  CHECK(classify({.killed_for = KilledFor::user,
                  .killed_because = "out of memory: used 512.0MiB of 256.0MiB granted",
                  .reaped = true,
                  .signal = SIGKILL}) ==
        Failure{Kind::user, "out of memory: used 512.0MiB of 256.0MiB granted"});
  CHECK(classify({.killed_for = KilledFor::infrastructure, .killed_because = "machine lost"}) ==
        Failure{Kind::infrastructure, "machine lost"});
}

TEST_CASE("classify: SIGKILL from outside, a lost zygote and a lost owner are infrastructure") {
  CHECK(classify({.reaped = true, .signal = SIGKILL}) ==
        Failure{Kind::infrastructure, "killed by signal 9 (SIGKILL) from outside"});
  CHECK(classify({.reaped = true, .signal = SIGTERM}).text ==
        "killed by signal 15 (SIGTERM) from outside");
  CHECK(classify({}).kind == Kind::infrastructure);
  CHECK(classify({.reaped = true, .exit_code = kOwnerLostExitCode}).kind == Kind::infrastructure);
  CHECK(classify({.reaped = true, .signal = 63}).text == "killed by signal 63 from outside");
}

TEST_CASE("classify: what ends before its body is called is no failure of the user's code") {
  CHECK(classify({.never_began = true, .reaped = true, .exit_code = 127}) ==
        Failure{Kind::infrastructure, "exit(127) before it began; its file stderr may say why"});
  CHECK(classify({.never_began = true, .reaped = true, .signal = SIGSEGV}).kind ==
        Kind::infrastructure);
}

TEST_CASE("classify: crashes, the kernel's out of memory and an exit in mid-step are the user's") {
  CHECK(classify({.reaped = true, .signal = SIGSEGV}) ==
        Failure{Kind::user, "segmentation fault (signal 11)"});
  for (int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGXCPU, SIGPIPE})
    CHECK(classify({.reaped = true, .signal = signal}).kind == Kind::user);
  const Failure oom = classify({.reaped = true, .signal = SIGKILL, .oom_killed = true});
  CHECK(oom.kind == Kind::user);
  CHECK(oom.text.starts_with("out of memory: killed by the kernel (signal 9)"));
  CHECK(classify({.reaped = true, .signal = SIGSEGV, .oom_killed = true}).text ==
        "segmentation fault (signal 11)");
  CHECK(classify({.reaped = true}) == Failure{Kind::user, "exit(0) in the middle of a step"});
  CHECK(classify({.reaped = true, .exit_code = 3}).text == "exit(3) in the middle of a step");
}

TEST_CASE("supervisor: the two kinds have limits of their own") {
  SupervisorPolicy policy({.max_failures = 1, .max_infrastructure_failures = 2});
  CHECK(policy.failed({Kind::user, "a"}).restart);
  CHECK(policy.failed({Kind::infrastructure, "b"}).restart);
  CHECK(policy.failed({Kind::infrastructure, "b"}).restart);
  const auto last = policy.failed({Kind::user, "a"});
  CHECK_FALSE(last.restart);
  CHECK(last.text == "a; failure 2 of its kind, max_failures is 1");
  CHECK_FALSE(policy.failed({Kind::infrastructure, "b"}).restart);
  CHECK(policy.user_failures() == 2);
  CHECK(policy.infrastructure_failures() == 3);
}

TEST_CASE("supervisor: 0 allows no restart, -1 any number, and counts may be brought along") {
  CHECK_FALSE(SupervisorPolicy({.max_failures = 0}).failed({Kind::user, "a"}).restart);
  SupervisorPolicy for_ever({.max_failures = -1});
  for (int i = 0; i < 100; ++i) CHECK(for_ever.failed({Kind::user, "a"}).restart);
  CHECK_FALSE(SupervisorPolicy({.max_failures = 2}, 2).failed({Kind::user, "a"}).restart);
}

TEST_CASE("supervisor: the first restart is immediate, then the wait doubles up to its cap") {
  SupervisorPolicy policy({.max_failures = -1, .back_off = 100ms, .max_back_off = 350ms});
  const auto delay = [&policy] { return policy.failed({Kind::user, "a"}).delay; };
  CHECK(delay() == 0ms);
  CHECK(delay() == 100ms);
  CHECK(delay() == 200ms);
  CHECK(delay() == 350ms);
  for (int i = 0; i < 100; ++i) CHECK(delay() == 350ms);
  policy.progressed();
  CHECK(delay() == 0ms);
}
