// Workers and zygotes die, by others' hands and by their own.
#include "tests/cluster/faults.hpp"

#include <doctest/doctest.h>

#include <csignal>

using namespace troupe::test;
using namespace troupe::tune::internal;
namespace fs = std::filesystem;

namespace {

pid_t waiting_pid(const Target& target, std::uint64_t trial) {
  const auto text = content(target.trials().at(trial).folder / "waiting");
  return static_cast<pid_t>(std::atoi(text.c_str()));
}

/// How long after `when_ms` the trial's second process was in `setup`.
std::int64_t again_after_ms(const Target& target, std::uint64_t trial, std::int64_t when_ms) {
  const auto traces = target.trials().at(trial);
  REQUIRE(traces.starts.size() == 2);
  return traces.starts[1].second - when_ms;
}

/// That the trial's second process went on from the checkpoint before `iteration`, or from the one
/// before that: the newest goes to the disk while the next step runs.
void check_loaded_before(const Target& target, std::uint64_t trial, std::int64_t iteration) {
  const auto loaded = std::atoll(content(target.trials().at(trial).folder / "loaded").c_str());
  CHECK(loaded >= iteration - 2);
  CHECK(loaded < iteration);
}

std::size_t checkpoint_count(const fs::path& trial_folder) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(trial_folder))
    count += entry.path().filename().string().starts_with("checkpoint_");
  return count;
}

std::size_t start_count(const Target& target) {
  std::size_t count = 0;
  for (const auto& [index, trial] : target.trials()) count += trial.starts.size();
  return count;
}

void check_good_end(const Target& target) {
  const auto state = state_of(target.run_folder());
  for (const auto& [index, trial] : target.trials()) {
    CAPTURE(index);
    // One is kept. The last process of a trial in ERROR may have left one more, which it would go
    // on from.
    const bool failed = state.trials.at(index).state == troupe::tune::TrialState::error;
    CHECK(checkpoint_count(trial.folder) <= (failed ? 2 : 1));
  }
  CHECK(differences(target.run_folder()) == "");
  CHECK(target.nothing_left());
  CHECK(file_count(target.temp()) == 0);
}

/// One of three trials does it once, and then always; one failure is forgiven.
void check_user_failure(const std::string& what, const std::string& sentence) {
  const Words words{{"what", what},       {"at", "3"},           {"who", "1"},
                    {"num_samples", "3"}, {"max_failures", "1"}, {"max_t", "5"},
                    {"memory_mib", "96"}};
  Target once, always;
  CHECK(once.run(words) == 0);
  CHECK(states(once.run_folder()) == "TERMINATED TERMINATED TERMINATED");
  CHECK(state_of(once.run_folder()).trials[1].failure_count == 1);
  check_loaded_before(once, 1, 3);

  auto again = words;
  again["repeat"] = "1";
  CHECK(always.run(again) == 0);
  CHECK(states(always.run_folder()) == "TERMINATED ERROR TERMINATED");
  CHECK(state_of(always.run_folder()).trials[1].failure_count == 2);
  for (const Target* target : {&once, &always}) {
    const auto text = target->trials().at(1).error_text;
    CAPTURE(text);
    CHECK(text.find(sentence) != std::string::npos);
    check_good_end(*target);
  }
}

}  // namespace

TEST_CASE("faults: a worker killed in a step goes on from its checkpoint, free of charge") {
  Target target;
  target.start({{"what", "wait"}, {"at", "5"}, {"who", "0"}, {"num_samples", "2"}, {"max_t", "8"}});
  REQUIRE(target.wait_for_file(0, "waiting"));
  const auto killed = now_ms();
  REQUIRE(::kill(waiting_pid(target, 0), SIGKILL) == 0);
  CHECK(target.wait() == 0);
  const auto again = again_after_ms(target, 0, killed);
  MESSAGE("from kill -9 of a worker to its next setup: " << again << " ms");
  CHECK(again < 5'000);
  CHECK(states(target.run_folder()) == "TERMINATED TERMINATED");
  CHECK(state_of(target.run_folder()).trials[0].failure_count == 0);
  check_loaded_before(target, 0, 5);
  CHECK(target.trials().at(0).error_text.find("signal 9 (SIGKILL)") != std::string::npos);
  CHECK(target.trials().at(1).starts.size() == 1);
  check_good_end(target);
}

TEST_CASE("faults: a worker whose connection is cut leaves, and that is not the user's failure") {
  Target target;
  CHECK(target.run({{"what", "cut"}, {"at", "3"}, {"max_t", "5"}}) == 0);
  CHECK(states(target.run_folder()) == "TERMINATED");
  CHECK(state_of(target.run_folder()).trials[0].failure_count == 0);
  CHECK(target.trials().at(0).error_text.find("lost the connection to its owner") !=
        std::string::npos);
  check_good_end(target);
}

TEST_CASE("faults: when the zygote is killed all its trials go on from their checkpoints") {
  Target target;
  target.start(
      {{"what", "wait"}, {"at", "4"}, {"num_samples", "2"}, {"max_t", "6"}, {"cpus", "2"}});
  REQUIRE(target.wait_for_file(0, "waiting"));
  REQUIRE(target.wait_for_file(1, "waiting"));
  const auto killed = now_ms();
  REQUIRE(::kill(target.zygote(), SIGKILL) == 0);
  CHECK(target.wait() == 0);
  CHECK(states(target.run_folder()) == "TERMINATED TERMINATED");
  for (const std::uint64_t trial : {0, 1}) {
    CAPTURE(trial);
    MESSAGE("from kill -9 of the zygote to the next setup: "
            << again_after_ms(target, trial, killed) << " ms");
    CHECK(state_of(target.run_folder()).trials[trial].failure_count == 0);
    check_loaded_before(target, trial, 4);
    CHECK(target.trials().at(trial).error_text.find("zygote is lost: signal 9") !=
          std::string::npos);
  }
  check_good_end(target);
}

TEST_CASE("faults: zygotes killed at any instant cost no trial and no row") {
  Seeded seeded;
  CAPTURE(seeded.seed());
  Target target;
  target.start({{"num_samples", "40"},
                {"max_t", "3"},
                {"step_ms", "2"},
                {"cpus", "4"},
                {"max_infrastructure_failures", "-1"}});
  for (int kills = 0; kills < 8; ++kills) {
    pid_t zygote = 0;
    if (!eventually(5s, [&] { return (zygote = target.zygote()) > 0 || target.driver() == 0; }) ||
        zygote == 0)
      break;
    // Three in a row that never got ready end the run: every other one has started a trial.
    const auto before = start_count(target);
    if (kills % 2 == 1)
      eventually(30s, [&] { return start_count(target) > before || target.driver() == 0; });
    const auto until = now_ms() + static_cast<std::int64_t>(seeded.below(120));
    eventually(10s, [&] { return now_ms() >= until; });
    ::kill(zygote, SIGKILL);
    eventually(5s, [&] { return target.zygote() != zygote; });
  }
  const int code = target.wait();
  INFO(target.errors());
  CHECK(code == 0);
  for (const auto& trial : state_of(target.run_folder()).trials) {
    CHECK(trial.state == troupe::tune::TrialState::terminated);
    CHECK(trial.failure_count == 0);
  }
  CHECK(state_of(target.run_folder()).trials.size() == 40);
  check_good_end(target);
}

TEST_CASE("faults: what a trial does to itself counts against max_failures, and the others go on") {
  SUBCASE("exception") { check_user_failure("throw", "no such luck"); }
  SUBCASE("abort") { check_user_failure("abort", "abort (signal 6)"); }
  SUBCASE("segmentation fault") {
    check_user_failure("segfault", "segmentation fault (signal 11)");
  }
  SUBCASE("exit") { check_user_failure("exit", "exit(0) in the middle of a step"); }
  SUBCASE("memory") { check_user_failure("oom", "out of memory"); }
}

TEST_CASE("faults: a function trainable that is killed goes on from its checkpoint") {
  Target target;
  target.start({{"trainable", "function"}, {"max_t", "40"}, {"step_ms", "20"}});
  pid_t worker = 0;
  REQUIRE(eventually(30s, [&] {
    const auto trials = target.trials();
    return trials.contains(0) && !trials.at(0).starts.empty() &&
           journal_of(target.run_folder()).size() > 12 && (worker = trials.at(0).starts[0].first);
  }));
  REQUIRE(::kill(worker, SIGKILL) == 0);
  CHECK(target.wait() == 0);
  CHECK(states(target.run_folder()) == "TERMINATED");
  CHECK(target.trials().at(0).starts.size() == 2);
  check_good_end(target);
}

TEST_CASE("faults: grandchildren in sessions of their own go with the trial that dies") {
  Target target;
  CHECK(target.run({{"what", "grandchildren"}, {"max_failures", "1"}, {"max_t", "4"}}) == 0);
  CHECK(states(target.run_folder()) == "TERMINATED");
  CHECK(target.trials().at(0).starts.size() == 2);
  check_good_end(target);
}

TEST_CASE("faults: a trial that ignores SIGTERM and never ends its step is ended by step_timeout") {
  Target target;
  CHECK(target.run({{"what", "stubborn"},
                    {"repeat", "1"},
                    {"who", "0"},
                    {"num_samples", "2"},
                    {"step_timeout_ms", "400"}}) == 0);
  CHECK(states(target.run_folder()) == "ERROR TERMINATED");
  CHECK(target.trials().at(0).error_text.find("longer than step_timeout (0.4") !=
        std::string::npos);
  check_good_end(target);
}
