// How runs end, and that nothing stays: signals, many trials, much output, odd programs.
#include "tests/cluster/faults.hpp"
#include "tests/support/skip.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

using namespace troupe::test;
using namespace troupe::tune::internal;
namespace fs = std::filesystem;

namespace {

const Words kLong{{"num_samples", "2"},
                  {"max_t", "400"},
                  {"step_ms", "10"},
                  {"cpus", "2"},
                  {"checkpoint_freq", "0"}};

bool under_way(const Target& target, std::size_t records = 20) {
  return eventually(30s, [&] {
    return fs::exists(target.run_folder() / "journal") &&
           journal_of(target.run_folder()).size() >= records;
  });
}

std::map<std::uint64_t, std::int64_t> last_iterations(const std::vector<Record>& journal) {
  std::map<std::uint64_t, std::int64_t> last;
  for (const auto& record : journal)
    if (const auto* row = std::get_if<ResultRow>(&record)) last[row->trial] = row->iteration;
  return last;
}

/// Local ports on which one of these processes listens.
std::set<std::string> listening(const std::vector<pid_t>& pids) {
  std::set<std::string> sockets, found;
  for (const pid_t pid : pids) {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      const auto what = fs::read_symlink(entry.path(), gone).string();
      if (what.starts_with("socket:[")) sockets.insert(what.substr(8, what.size() - 9));
    }
  }
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"}) {
    std::ifstream lines(table);
    std::string line, number, local, remote, state, word, inode;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 6; ++i) words >> inode;
      if (sockets.contains(inode)) found.insert(local);
    }
  }
  return found;
}

/// Runs many short trials with few descriptors, and looks at driver and zygote meanwhile.
void check_many(int count) {
  Target target;
  target.start({{"trainable", "function"},
                {"num_samples", std::to_string(count)},
                {"max_t", "1"},
                {"step_ms", "0"},
                {"cpus", "4"}},
               R"(ulimit -n 256; exec "$@")");
  std::size_t driver_early = 0, driver_late = 0, zygote_early = 0, zygote_late = 0;
  const auto done = [&] { return file_count(target.run_folder()); };
  const auto files = [](pid_t pid) {
    return pid > 0 ? file_count("/proc/" + std::to_string(pid) + "/fd") : 0;
  };
  const auto half = static_cast<std::size_t>(count) / 2;
  eventually(600s, [&] {
    const bool late = done() > half;
    auto& driver = late ? driver_late : driver_early;
    auto& zygote = late ? zygote_late : zygote_early;
    driver = std::max(driver, files(target.pid()));
    zygote = std::max(zygote, files(target.zygote()));
    return target.zygote() == 0 && done() > 0;
  });
  CHECK(target.wait() == 0);
  CHECK(driver_early > 0);
  CHECK(driver_late <= driver_early + 4);
  CHECK(zygote_late <= zygote_early + 4);
  CHECK(driver_late < 200);
  CHECK(state_of(target.run_folder()).trials.size() == static_cast<std::size_t>(count));
  CHECK(differences(target.run_folder()) == "");
  CHECK(target.nothing_left());
  CHECK(file_count(target.temp()) == 0);
}

void check_print(int mib) {
  Target target;
  const auto shared = file_count("/dev/shm");
  CHECK(target.run({{"what", "print"}, {"mib", std::to_string(mib)}, {"max_t", "4"}}) == 0);
  CHECK(states(target.run_folder()) == "TERMINATED");
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(target.trials().at(0).folder))
    if (entry.path().filename().string().starts_with("stdout")) bytes += entry.file_size();
  CHECK(bytes > 60u << 20);
  CHECK(bytes < 140u << 20);
  CHECK(differences(target.run_folder()) == "");
  CHECK(target.nothing_left());
  CHECK(file_count(target.temp()) == 0);
  CHECK(file_count("/dev/shm") == shared);
}

}  // namespace

TEST_CASE("faults: SIGINT, SIGTERM and SIGHUP save and end, and resume goes on from there") {
  Target target;
  int number = SIGINT;
  SUBCASE("SIGINT") {}
  SUBCASE("SIGTERM") { number = SIGTERM; }
  SUBCASE("SIGHUP: the terminal is closed") { number = SIGHUP; }
  target.start(kLong);
  REQUIRE(under_way(target));
  target.signal(number);
  CHECK(target.wait() == 130);
  const std::string told = std::string("interrupted by SIG") + ::sigabbrev_np(number);
  CHECK(target.errors().find(told) != std::string::npos);
  CHECK(target.nothing_left());
  CHECK(differences(target.run_folder()) == "");
  const auto before = journal_of(target.run_folder());
  const auto last = last_iterations(before);
  REQUIRE(last.size() == 2);

  target.start(kLong);
  REQUIRE(under_way(target, before.size() + 20));
  target.signal(SIGINT);
  CHECK(target.wait() == 130);
  const auto after = journal_of(target.run_folder());
  std::map<std::uint64_t, std::int64_t> from;
  for (std::size_t i = before.size(); i < after.size(); ++i)
    if (const auto* started = std::get_if<TrialStarted>(&after[i]))
      from[started->trial] = started->from_iteration;
  CHECK(from == last);  // each had saved what it had last reported
  CHECK(differences(target.run_folder()) == "");
}

TEST_CASE("faults: a second signal leaves at once, and so goes a trial that hears nothing") {
  Target target;
  auto words = kLong;
  words["what"] = "stubborn";
  words["who"] = "0";
  target.start(words);
  REQUIRE(target.wait_for_file(0, "waiting"));
  REQUIRE(target.wait_for_file(1, "starts"));
  target.signal(SIGINT);
  const pid_t hears = target.trials().at(1).starts[0].first;
  REQUIRE(eventually(10s, [&] { return ::kill(hears, 0) != 0; }));
  SUBCASE("twice") {
    target.signal(SIGINT);
    CHECK(target.wait(5s) == -SIGINT);
  }
  SUBCASE("once: it is given 10 s") { CHECK(target.wait(30s) == 130); }
  CHECK(target.nothing_left());
}

TEST_CASE("faults: a driver in the background does not hear Ctrl-C, nor the end of its terminal") {
  Target target;
  auto words = kLong;
  words["max_t"] = "60";
  int number = SIGINT;
  SUBCASE("&") { target.start(words, R"("$@" & wait $!)"); }
  SUBCASE("nohup") {
    number = SIGHUP;
    target.start(words, R"(exec nohup "$@")");
  }
  REQUIRE(under_way(target));
  ::kill(target.driver(), number);
  CHECK(target.wait() == 0);
  CHECK(states(target.run_folder()) == "TERMINATED TERMINATED");
  CHECK(differences(target.run_folder()) == "");
}

TEST_CASE("faults: nothing listens on any port") {
  Target target;
  auto words = kLong;
  words["max_t"] = "50";
  target.start(words);
  REQUIRE(under_way(target));
  CHECK(listening(target.processes()) == std::set<std::string>{});
  CHECK(target.wait() == 0);
}

TEST_CASE("faults: a second run in the same folder is refused with the first one's process") {
  Target target, other;
  target.start(kLong);
  REQUIRE(under_way(target));
  auto words = kLong;
  words["folder"] = target.results().string();
  CHECK(other.run(words) == 1);
  CHECK(other.errors().find("is being written by process " + std::to_string(target.pid())) !=
        std::string::npos);
  target.signal(SIGTERM);
  CHECK(target.wait() == 130);
  CHECK(differences(target.run_folder()) == "");
}

TEST_CASE("faults: programs without a name that begin at once have folders of their own") {
  Target target;
  constexpr const char* kAtOnce =
      R"(for i in 0 1 2 3 4 5 6 7 8 9; do "$@" & all="$all $!"; done
         for one in $all; do wait $one || exit; done)";
  CHECK(target.run({{"name", ""}, {"max_t", "1"}, {"verbose", "0"}}, kAtOnce) == 0);
  CHECK(target.errors() == "");
  CHECK(file_count(target.results()) == 10);
}

TEST_CASE("faults: twice in one program, and a program that never runs, end without a trace") {
  Target target;
  SUBCASE("twice") {
    CHECK(target.run({{"runs", "3"}, {"num_samples", "4"}, {"max_t", "2"}}) == 0);
    for (const char* name : {"run", "run_1", "run_2"}) {
      CHECK(differences(target.results() / name) == "");
      CHECK(state_of(target.results() / name).trials.size() == 4);
    }
  }
  SUBCASE("never") {
    const auto began = now_ms();
    CHECK(target.run({{"no_run", "1"}}) == 0);
    MESSAGE("init and the end: " << now_ms() - began << " ms");
    CHECK(file_count(target.results()) == 0);
  }
  CHECK(target.errors().empty());
  CHECK(target.nothing_left());
  CHECK(file_count(target.temp()) == 0);
}

TEST_CASE("faults: a thread before init makes workers exec'ed, and by --troupe-strict an error") {
  Target target;
  Words words{{"early_thread", "1"}, {"num_samples", "2"}, {"max_t", "3"}};
  SUBCASE("told once, and it works") {
    CHECK(target.run(words) == 0);
    CHECK(states(target.run_folder()) == "TERMINATED TERMINATED");
    CHECK(differences(target.run_folder()) == "");
    CHECK(target.errors().find("1 other thread") != std::string::npos);
  }
  SUBCASE("strict") {
    words["strict"] = "1";
    CHECK(target.run(words) == 1);
    CHECK(target.errors().find("1 other thread") != std::string::npos);
  }
  CHECK(target.nothing_left());
}

TEST_CASE(
    "faults: where memory has few addresses a run ends well, or says that threads lack them") {
#ifdef __SANITIZE_ADDRESS__
  return skip("the sanitizer itself needs all addresses");
#endif
  for (const int kib : {60'000, 90'000, 110'000, 120'000, 140'000, 200'000, 300'000}) {
    CAPTURE(kib);
    Target target;
    const int code = target.run({{"num_samples", "4"}, {"max_t", "2"}, {"cpus", "2"}},
                                "ulimit -v " + std::to_string(kib) + R"(; exec "$@")");
    const auto told = target.errors();
    CAPTURE(told);
    if (code == 0) {
      CHECK(differences(target.run_folder()) == "");
    } else {
      CHECK(code > 0);
      CHECK(
          told.substr(told.rfind('\n', told.size() - 2) + 1).find("see ulimit -u and ulimit -v") !=
          std::string::npos);
    }
    CHECK(target.nothing_left());
  }
}

TEST_CASE("faults: 200 MiB of output leave two log files of bounded size") { check_print(200); }

TEST_CASE("faults: 200 trials in a row with 256 descriptors leave nothing open") {
  check_many(200);
}

TEST_SUITE("slow") {
  TEST_CASE("faults: 2 GiB of output leave two log files of bounded size") { check_print(2048); }
  TEST_CASE("faults: 2,000 trials in a row with 256 descriptors leave nothing open") {
    check_many(2000);
  }
}
