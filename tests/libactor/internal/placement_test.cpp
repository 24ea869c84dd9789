#include "libactor/internal/placement.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <initializer_list>
#include <random>
#include <set>
#include <utility>

using namespace troupe;
using namespace troupe::internal;

namespace {

const Clock::Time kNow{};

struct Head : Placement {
  Head(std::initializer_list<Resources> machines) {
    int next = 0;
    for (const Resources& machine : machines)
      REQUIRE(add_node(NodeId("m" + std::to_string(next++)), machine));
  }
  void ask(const std::string& id, Resources wanted) {
    REQUIRE(request(RequestId(id), wanted, kNow));
  }
  /// "a@m0 b@m1" of the next pump; devices in brackets.
  std::string granted() {
    std::string text;
    for (const Grant& grant : pump()) {
      if (!text.empty()) text += ' ';
      text += grant.request.text() + "@" + grant.node.text();
      if (grant.device_indices.empty()) continue;
      text += '[';
      for (int device : grant.device_indices) text += std::to_string(device);
      text += ']';
    }
    return text;
  }
  void done(const std::string& id) { REQUIRE(release(RequestId(id))); }
  std::string why(const std::string& id) const {
    for (const Pending& pending : this->pending())
      if (pending.request.text() == id) return pending.why;
    return "not pending";
  }
  std::string free_text(std::size_t node = 0) const { return nodes()[node].free.text(); }
};

}  // namespace

TEST_CASE("placement: grants in order of arrival what fits, and gives it back whole") {
  Head head{{.cpus = 2, .memory_bytes = 1000}};
  head.ask("a", {.cpus = 1});
  head.ask("b", {.cpus = 0.5, .memory_bytes = 1000});
  head.ask("c", {.cpus = 1});
  CHECK(head.granted() == "a@m0 b@m0");
  CHECK(head.free_text() == "cpus=0.5");
  head.done("a");
  CHECK(head.granted() == "c@m0");
  head.done("b");
  head.done("c");
  CHECK(head.free_text() == "cpus=2 memory=1000B");
  CHECK_FALSE(head.release(RequestId("c")));
}

TEST_CASE("placement: a pending request says what is short") {
  Head head{{.cpus = 2, .gpus = 2}};
  head.ask("a", {.cpus = 2, .gpus = 0.5});
  head.ask("b", {.cpus = 2});
  head.ask("c", {.cpus = 0, .gpus = 2});
  CHECK(head.granted() == "a@m0[0]");
  CHECK(head.why("b") == "needs cpus=2: 0 of 2 free on this machine");
  CHECK(head.why("c") == "needs gpus=2: 1 of 2 devices free on this machine");
  CHECK(Placement().pending().empty());
}

TEST_CASE(
    "placement: what no machine can grant is told at once, with resource, amount and the most") {
  Head one{{.cpus = 2}};
  CHECK(one.impossible({.gpus = 1})->starts_with("no machine has gpus=1: this machine has 0; "));
  CHECK(one.impossible({.cpus = 3})->starts_with("no machine has cpus=3: this machine has 2; "));
  CHECK(one.impossible({.custom = {{"licences", 1}}})
            ->starts_with("no machine has licences=1: this machine has 0; "));
  CHECK(one.impossible({.memory_bytes = 2048})
            ->starts_with("no machine has memory=2.0KiB: this machine has 0B; "));
  CHECK_FALSE(one.impossible({.cpus = 2}));
  Head two{{.cpus = 8}, {.cpus = 2, .gpus = 4}};
  CHECK(two.impossible({.gpus = 5})
            ->starts_with("no machine has gpus=5: the most that one has is 4; "));
  CHECK(
      two.impossible({.cpus = 8, .gpus = 1})->starts_with("no machine has all of cpus=8 gpus=1, "));
  CHECK_FALSE(Placement().impossible({.cpus = 99}));  // one may still join
}

TEST_CASE("placement: an impossible request holds up nobody, and is granted when a machine joins") {
  Head head{{.cpus = 2}};
  head.ask("big", {.cpus = 4});
  head.ask("small", {.cpus = 1});
  CHECK(head.granted() == "small@m0");
  REQUIRE(head.pending().size() == 1);
  CHECK(head.pending()[0].impossible);
  REQUIRE(head.add_node(NodeId("m1"), {.cpus = 4}));
  CHECK(head.granted() == "big@m1");
}

TEST_CASE("placement: small work that keeps coming does not starve a large request") {
  Head head{{.cpus = 4}};
  for (const char* id : {"a", "b", "c"}) head.ask(id, {.cpus = 1});
  CHECK(head.granted() == "a@m0 b@m0 c@m0");
  head.ask("large", {.cpus = 4});
  for (const char* id : {"d", "e", "f"}) head.ask(id, {.cpus = 1});
  CHECK(head.granted() == "");  // one CPU is free, and kept
  CHECK(head.why("large") == "needs cpus=4: 1 of 4 free on this machine");
  CHECK(head.why("d") == "waits behind large, which is older and needs cpus=4");
  for (const char* id : {"a", "b"}) head.done(id);
  CHECK(head.granted() == "");
  head.done("c");
  CHECK(head.granted() == "large@m0");
  head.done("large");
  CHECK(head.granted() == "d@m0 e@m0 f@m0");
}

TEST_CASE("placement: later work goes ahead where it can't delay the oldest") {
  Head head{{.cpus = 4, .gpus = 1}};
  head.ask("a", {.cpus = 1, .gpus = 1});
  CHECK(head.granted() == "a@m0[0]");
  head.ask("oldest", {.cpus = 2, .gpus = 1});  // short of a device, not of CPUs
  head.ask("fits_beside", {.cpus = 1});
  head.ask("would_delay", {.cpus = 1});
  CHECK(head.granted() == "fits_beside@m0");
  head.done("a");
  CHECK(head.granted() == "oldest@m0[0] would_delay@m0");
}

TEST_CASE(
    "placement: only one machine is set aside; it stays the same until the oldest has started") {
  Head head{{.cpus = 4}, {.cpus = 4}};
  head.ask("a", {.cpus = 3});
  head.ask("b", {.cpus = 2});
  CHECK(head.granted() == "a@m0 b@m1");
  head.ask("large", {.cpus = 4});  // nearest: m1
  head.ask("c", {.cpus = 1});
  head.ask("d", {.cpus = 1});
  CHECK(head.granted() == "c@m0");
  head.done("a");  // now m0 is nearer, but m1 is set aside
  CHECK(head.granted() == "d@m0");
  head.done("b");
  CHECK(head.granted() == "large@m1");
}

TEST_CASE("placement: the oldest takes another machine that is free first") {
  Head head{{.cpus = 4}, {.cpus = 4}};
  head.ask("a", {.cpus = 3});
  head.ask("b", {.cpus = 2});
  CHECK(head.granted() == "a@m0 b@m1");
  head.ask("large", {.cpus = 4});
  CHECK(head.granted() == "");
  head.done("a");
  CHECK(head.granted() == "large@m0");
}

TEST_CASE("placement: a cancelled oldest request frees what was kept for it") {
  Head head{{.cpus = 2}};
  head.ask("a", {.cpus = 1});
  CHECK(head.granted() == "a@m0");
  head.ask("large", {.cpus = 2});
  head.ask("b", {.cpus = 1});
  CHECK(head.granted() == "");
  CHECK(head.cancel(RequestId("large")));
  CHECK_FALSE(head.cancel(RequestId("large")));
  CHECK_FALSE(head.cancel(RequestId("a")));  // granted: to be released
  CHECK(head.granted() == "b@m0");
}

TEST_CASE("placement: GPUs are counted device by device") {
  Head head{{.cpus = 8, .gpus = 2}};
  head.ask("a", {.cpus = 0, .gpus = 0.5});
  head.ask("b", {.cpus = 0, .gpus = 0.6});
  CHECK(head.granted() == "a@m0[0] b@m0[1]");
  head.ask("c", {.cpus = 0, .gpus = 0.6});
  CHECK(head.granted() == "");  // 0.5 + 0.4 are free, but on two devices
  CHECK(head.why("c") == "needs gpus=0.6: no device has that much free on this machine");
  head.ask("d", {.cpus = 0, .gpus = 0.4});
  CHECK(head.granted() == "");  // would take from what c needs
  head.done("a");
  CHECK(head.granted() == "c@m0[0] d@m0[0]");
}

TEST_CASE("placement: a fraction goes to the fullest device, so that whole ones stay whole") {
  Head head{{.gpus = 2}};
  head.ask("a", {.cpus = 0, .gpus = 0.3});
  head.ask("b", {.cpus = 0, .gpus = 0.3});
  head.ask("c", {.cpus = 0, .gpus = 1});
  CHECK(head.granted() == "a@m0[0] b@m0[0] c@m0[1]");
}

TEST_CASE("placement: 8 devices and gpus = 1 give exactly 8 at once, each another device") {
  Head head{{.cpus = 100, .gpus = 8}};
  for (int i = 0; i < 20; ++i) head.ask(std::to_string(i), {.gpus = 1});
  std::set<int> devices;
  const auto grants = head.pump();
  CHECK(grants.size() == 8);
  for (const Grant& grant : grants) {
    REQUIRE(grant.device_indices.size() == 1);
    devices.insert(grant.device_indices[0]);
  }
  CHECK(devices.size() == 8);
  CHECK(head.pump().empty());
}

TEST_CASE("placement: work without GPUs goes first where there are none") {
  Head head{{.cpus = 1, .gpus = 1}, {.cpus = 1}};
  head.ask("a", {.cpus = 1});
  head.ask("b", {.cpus = 1});
  CHECK(head.granted() == "a@m1 b@m0");
}

TEST_CASE("placement: wrong amounts and ids that are taken are refused") {
  Head head{{.cpus = 1}};
  CHECK_FALSE(head.request(RequestId("a"), {.gpus = 1.5}, kNow));
  head.ask("a", {});
  CHECK_FALSE(head.request(RequestId("a"), {}, kNow));
  CHECK(head.granted() == "a@m0");
  CHECK_FALSE(head.request(RequestId("a"), {}, kNow));
  CHECK_FALSE(head.add_node(NodeId("m0"), {}));
  CHECK_FALSE(head.add_node(NodeId("m1"), {.gpus = 0.5}));
}

TEST_CASE(
    "placement: whatever comes and goes, grants and what is free make the whole, and nobody "
    "starves") {
  const char* given = std::getenv("TROUPE_SEED");
  const std::uint64_t first_seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  for (std::uint64_t seed = first_seed; seed < first_seed + 8; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto up_to = [&random](int n) { return static_cast<int>(random() % (n + 1)); };
    Head head{{.cpus = 4, .gpus = 2, .memory_bytes = 100},
              {.cpus = 2.5, .custom = {{"disk", 1}}},
              {.cpus = 8, .gpus = 4, .memory_bytes = 50}};
    std::map<std::string, Grant> running;
    std::deque<std::string> waiting;  // possible ones, oldest first
    int next = 0;

    const auto check = [&] {
      for (const auto& node : head.nodes()) {
        Amount cpus = node.free.cpus, disk, gpus = *node.free.gpus;
        if (node.free.custom.count("disk") != 0) disk = node.free.custom.at("disk");
        std::int64_t memory = node.free.memory_bytes;
        REQUIRE(std::min({cpus, disk, gpus}) >= Amount());
        REQUIRE(memory >= 0);
        std::map<int, Amount> devices;
        for (const auto& [id, grant] : running) {
          if (grant.node != node.id) continue;
          cpus = cpus + grant.resources.cpus;
          memory += grant.resources.memory_bytes;
          if (grant.resources.custom.count("disk") != 0)
            disk = disk + grant.resources.custom.at("disk");
          for (int device : grant.device_indices)
            devices[device] = devices[device] + std::min(*grant.resources.gpus, Amount(1));
        }
        for (const auto& [device, used] : devices) {
          REQUIRE(used <= Amount(1));
          gpus = gpus + used;
        }
        REQUIRE(cpus == node.total.cpus);
        REQUIRE(gpus == *node.total.gpus);
        REQUIRE(memory == node.total.memory_bytes);
        if (node.total.custom.count("disk") != 0) REQUIRE(disk == Amount(1));
      }
    };

    for (int step = 0; step < 500; ++step) {
      const int what = up_to(9);
      if (what < 5 && head.pending().size() < 12) {
        const std::string id = std::to_string(next++);
        Resources wanted{.cpus = up_to(16) * 0.5};
        if (up_to(2) == 0) wanted.gpus = up_to(1) == 0 ? Amount(up_to(4)) : Amount(up_to(10) * 0.1);
        if (up_to(3) == 0) wanted.memory_bytes = up_to(100);
        if (up_to(9) == 0) wanted.custom["disk"] = up_to(1) * 0.5;
        head.ask(id, wanted);
        if (!head.impossible(wanted))
          waiting.push_back(id);
        else if (up_to(1) == 0)
          REQUIRE(head.cancel(RequestId(id)));
      } else if (what < 9 && !running.empty()) {
        const auto victim = std::next(running.begin(), up_to(static_cast<int>(running.size()) - 1));
        head.done(victim->first);
        running.erase(victim);
      } else if (what == 9 && !waiting.empty() && up_to(3) == 0) {
        const auto victim = waiting.begin() + up_to(static_cast<int>(waiting.size()) - 1);
        REQUIRE(head.cancel(RequestId(*victim)));
        waiting.erase(victim);
      }
      for (Grant& grant : head.pump()) {
        const std::string id = grant.request.text();
        std::erase(waiting, id);
        REQUIRE(running.emplace(id, std::move(grant)).second);
      }
      check();
      REQUIRE(head.pending().size() >= waiting.size());
    }
    // All that can run does, once what runs ends, and nothing is left taken.
    for (int round = 0; !running.empty() || !waiting.empty(); ++round) {
      REQUIRE(round < 10'000);
      // The oldest starts as soon as the machines are empty, whatever came after it.
      const std::string oldest = waiting.empty() ? "" : waiting.front();
      for (const auto& [id, grant] : std::exchange(running, {})) head.done(id);
      for (Grant& grant : head.pump()) {
        std::erase(waiting, grant.request.text());
        running.emplace(grant.request.text(), std::move(grant));
      }
      if (!oldest.empty()) REQUIRE(running.count(oldest) == 1);
      check();
    }
    for (const auto& node : head.nodes()) CHECK(node.free == node.total);
    for (const auto& pending : head.pending()) CHECK(pending.impossible);
  }
}
