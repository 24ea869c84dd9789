// The driver is killed and goes on; the scheduler alone too.
#include "tests/cluster/faults.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <set>

using namespace troupe::test;
using namespace troupe::tune::internal;
namespace fs = std::filesystem;

namespace {

const Words kSearch{
    {"scheduler", "asha"}, {"num_samples", "10"}, {"max_t", "8"}, {"step_ms", "4"}, {"cpus", "1"}};

std::set<std::uint64_t> ended_trials(const std::vector<Record>& journal) {
  std::set<std::uint64_t> ended;
  for (const auto& record : journal)
    if (const auto* end = std::get_if<TrialEnded>(&record)) ended.insert(end->trial);
  return ended;
}

/// Starts, kills the driver `kills` times at drawn instants, and goes on each time.
void kill_and_go_on(Target& target, const Words& words, Seeded& seeded, int kills,
                    std::uint64_t journal_bytes) {
  std::vector<std::uint64_t> instants;
  for (int i = 0; i < kills; ++i) instants.push_back(seeded.below(journal_bytes));
  std::sort(instants.begin(), instants.end());
  std::int64_t longest_ms = 0;
  for (const auto instant : instants) {
    target.start(words);
    std::error_code none;
    eventually(60s, [&] {
      return fs::file_size(target.run_folder() / "journal", none) >= instant && !none;
    });
    const auto until = now_ms() + static_cast<std::int64_t>(seeded.below(12));
    eventually(1s, [&] { return now_ms() >= until; });
    target.signal(SIGKILL);
    const auto killed = now_ms();
    target.wait();
    REQUIRE(target.nothing_left());
    longest_ms = std::max(longest_ms, now_ms() - killed);
    if (!fs::exists(target.run_folder() / "journal")) continue;

    const auto before = journal_of(target.run_folder());
    const auto ended = ended_trials(before);
    const auto traces = target.trials();
    // The next life is looked at when it has ended; here, what the last one left.
    for (const auto trial : ended) REQUIRE(traces.contains(trial));
    target.start(words);
    REQUIRE(
        eventually(60s, [&] { return journal_of(target.run_folder()).size() > before.size(); }));
    target.signal(SIGKILL);
    target.wait();
    REQUIRE(target.nothing_left());
    const auto after = journal_of(target.run_folder());
    REQUIRE(after.size() > before.size());
    CHECK(std::equal(before.begin(), before.end(), after.begin()));  // nothing acknowledged is lost
    for (const auto trial : ended)
      CHECK(target.trials().at(trial).starts == traces.at(trial).starts);
  }
  MESSAGE("longest until nothing of a killed driver was left: " << longest_ms << " ms");
}

void check_kills(int kills) {
  Seeded seeded;
  CAPTURE(seeded.seed());
  Target undisturbed;
  REQUIRE(undisturbed.run(kSearch) == 0);
  const auto journal_bytes = fs::file_size(undisturbed.run_folder() / "journal");
  Target target;
  kill_and_go_on(target, kSearch, seeded, kills, journal_bytes);
  const auto ended = fs::exists(target.run_folder() / "journal")
                         ? ended_trials(journal_of(target.run_folder()))
                         : std::set<std::uint64_t>{};
  const auto traces = target.trials();
  CHECK(target.run(kSearch) == 0);
  for (const auto trial : ended) CHECK(target.trials().at(trial).starts == traces.at(trial).starts);
  CHECK(differences(target.run_folder()) == "");
  CHECK(unlike_fresh_asha(target.run_folder(), 8) == "");
  CHECK(states(target.run_folder()) == states(undisturbed.run_folder()));
  CHECK(decisions(target.run_folder()) == decisions(undisturbed.run_folder()));
  CHECK(target.nothing_left());
}

}  // namespace

TEST_CASE(
    "faults: a driver killed at any instant leaves nobody, and resume decides as undisturbed") {
  check_kills(3);
}

TEST_CASE(
    "faults: with two slots too, a killed driver loses no row and its rungs are the journal's") {
  Seeded seeded;
  CAPTURE(seeded.seed());
  auto words = kSearch;
  words["cpus"] = "2";
  Target target;
  kill_and_go_on(target, words, seeded, 2, 20'000);
  CHECK(target.run(words) == 0);
  CHECK(differences(target.run_folder()) == "");
  CHECK(unlike_fresh_asha(target.run_folder(), 8) == "");
  CHECK(state_of(target.run_folder()).trials.size() == 10);
  CHECK(target.nothing_left());
}

TEST_CASE("faults: a scheduler that is killed alone comes back with the same rungs") {
  Seeded seeded;
  CAPTURE(seeded.seed());
  Target undisturbed, target;
  REQUIRE(undisturbed.run(kSearch) == 0);
  auto words = kSearch;
  words["kill_scheduler_at"] = std::to_string(1 + seeded.below(25));
  CAPTURE(words["kill_scheduler_at"]);
  CHECK(target.run(words) == 0);
  CHECK(target.errors().find("the scheduler was lost") != std::string::npos);
  CHECK(differences(target.run_folder()) == "");
  CHECK(unlike_fresh_asha(target.run_folder(), 8) == "");
  CHECK(decisions(target.run_folder()) == decisions(undisturbed.run_folder()));
}

TEST_CASE(
    "faults: resume runs trials in ERROR again, from their checkpoints or from the beginning") {
  Target target;
  const Words words{{"what", "throw"}, {"at", "4"}, {"who", "1"}, {"num_samples", "3"}};
  REQUIRE(target.run(words) == 0);
  REQUIRE(states(target.run_folder()) == "TERMINATED ERROR TERMINATED");
  auto again = words;
  SUBCASE("errored_only") { again["resume"] = "errored_only"; }
  SUBCASE("restart_errored") { again["resume"] = "restart_errored"; }
  CHECK(target.run(again) == 0);
  CHECK(states(target.run_folder()) == "TERMINATED TERMINATED TERMINATED");
  CHECK(target.trials().at(0).starts.size() == 1);
  CHECK(target.trials().at(1).starts.size() == 2);
  CHECK(differences(target.run_folder()) == "");
}

TEST_SUITE("slow") {
  TEST_CASE("faults: fifty instants at which the driver is killed") {
    for (int i = 0; i < 5; ++i) check_kills(5);
  }
}
