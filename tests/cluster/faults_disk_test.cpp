// Disks that are full, folders that are not there.
#include "tests/cluster/faults.hpp"
#include "tests/support/child.hpp"
#include "tests/support/skip.hpp"

#include <doctest/doctest.h>

#include <sched.h>
#include <sys/stat.h>

#include <csignal>

using namespace troupe::test;
using namespace troupe::tune::internal;
namespace fs = std::filesystem;

namespace {

bool can_mount() {
  return in_child([] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0; }) == 0;
}

bool paused(const Target& target, const std::string& why) {
  return eventually(30s, [&] {
    const auto text = target.errors();
    const auto at = text.find("the experiment is paused");
    return at != std::string::npos && text.find(why, at) != std::string::npos;
  });
}

const Words kTrials{{"num_samples", "12"}, {"max_t", "6"}, {"cpus", "2"}};

/// A 1 MiB disk in a namespace of its own, with little left. A driver that is killed or interrupted
/// is started again, on an emptier disk. The results are copied out.
const std::string kSmallDisk = R"(
  exec unshare -Urm sh -c '
    mount -t tmpfs -o size=1m none "$TMPDIR/../results" || exit 77
    head -c 950k /dev/zero >"$TMPDIR/../results/filler"
    "$@"
    code=$?
    if [ $code = 137 ] || [ $code = 130 ]; then
      rm "$TMPDIR/../results/filler"
      "$@"
      code=$?
    fi
    mkdir "$TMPDIR/../copy"
    cp -r "$TMPDIR/../results/." "$TMPDIR/../copy/"
    exit $code' sh "$@")";

}  // namespace

TEST_CASE("faults: a full disk pauses the experiment, and it goes on when there is room") {
  if (!can_mount()) return skip("user namespaces are forbidden");
  Target target;
  target.start(kTrials, kSmallDisk);
  REQUIRE(paused(target, "No space left on device"));
  const auto copied = target.path() / "copy" / "run";
  SUBCASE("room is made") {
    fs::remove("/proc/" + std::to_string(target.driver()) + "/root" +
               (target.results() / "filler").string());
    CHECK(target.wait() == 0);
    CHECK(target.errors().find("the experiment goes on") != std::string::npos);
    CHECK(differences(copied) == "");
    CHECK(state_of(copied).trials.size() == 12);
  }
  SUBCASE("Ctrl-C does not wait for it") {
    ::kill(target.driver(), SIGINT);
    CHECK(target.wait() == 0);
    CHECK(target.errors().find("interrupted by SIGINT") != std::string::npos);
    CHECK(differences(copied) == "");
    CHECK(state_of(copied).trials.size() == 12);
  }
  SUBCASE("the driver is killed meanwhile") {
    ::kill(target.driver(), SIGKILL);
    CHECK(target.wait() == 0);
    CHECK(differences(copied) == "");
    CHECK(state_of(copied).trials.size() == 12);
  }
  CHECK(target.nothing_left());
}

TEST_CASE("faults: a result folder that vanishes pauses the experiment until it is back") {
  Target target;
  auto words = kTrials;
  words["step_ms"] = "40";
  target.start(words);
  const auto away = target.path() / "away";
  REQUIRE(eventually(30s, [&] {
    return target.trials().size() >= 3 && journal_of(target.run_folder()).size() > 15;
  }));
  SUBCASE("the run's folder") {
    fs::rename(target.run_folder(), away);
    REQUIRE(paused(target, "was moved away or removed"));
    CHECK_FALSE(fs::exists(target.run_folder()));  // nobody made it anew
    fs::rename(away, target.run_folder());
    CHECK(target.wait() == 0);
  }
  SUBCASE("the folder above") {
    fs::rename(target.results(), away);
    REQUIRE(paused(target, "was moved away or removed"));
    CHECK_FALSE(fs::exists(target.results()));
    fs::rename(away, target.results());
    CHECK(target.wait() == 0);
  }
  SUBCASE("for ever") {
    fs::rename(target.run_folder(), away);
    REQUIRE(paused(target, "was moved away or removed"));
    target.signal(SIGTERM);
    CHECK(target.wait() == 130);
    CHECK_FALSE(fs::exists(target.run_folder()));
    fs::rename(away, target.run_folder());
    CHECK(target.run(words) == 0);
  }
  CHECK(differences(target.run_folder()) == "");
  CHECK(state_of(target.run_folder()).trials.size() == 12);
  for (const auto& [index, trial] : target.trials()) {
    CAPTURE(trial.error_text);
    CHECK(state_of(target.run_folder()).trials.at(index).state ==
          troupe::tune::TrialState::terminated);
  }
  CHECK(target.nothing_left());
}

TEST_CASE("faults: a result folder that can't be written is told with the way out") {
  Target target;
  SUBCASE("a file in the way") {
    target.start({{"folder", (target.path() / "stdout").string()}});
    CHECK(target.wait() == 1);
    CHECK(target.errors().find("Not a directory; choose another folder by local_dir") !=
          std::string::npos);
  }
  SUBCASE("no permission") {
    ::chmod(target.path().c_str(), 0755);
    ::chmod(target.results().c_str(), 0555);
    const bool root = ::geteuid() == 0;
    target.start({}, root ? R"(exec setpriv --reuid 65534 --clear-groups sh -c '
                                 [ -x "$1" ] || exit 77; exec "$@"' sh "$@")"
                          : R"(exec "$@")");
    const int code = target.wait();
    if (code == 77) return skip("the target can't be started by another user");
    CHECK(code == 1);
    CHECK(target.errors().find("Permission denied; choose another folder by local_dir") !=
          std::string::npos);
  }
  CHECK(target.nothing_left());
}
