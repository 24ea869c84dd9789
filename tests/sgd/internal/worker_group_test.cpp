#include "sgd/internal/worker_group.hpp"

#include "sgd/internal/limits.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::sgd;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;

namespace {

/// The core with the processes that its commands want, in virtual time.
struct Scene {
  explicit Scene(GroupSpec spec) : core(spec) {}

  WorkerGroup core;
  Clock::Time now = {};
  std::set<int> asked, alive;
  std::vector<FormProcess> forms;
  std::vector<int> running;
  std::optional<FinishCall> finished;
  std::vector<std::string> told;

  void carry_out() {
    for (const auto& command : core.take_commands()) {
      if (const auto* start = std::get_if<StartProcess>(&command)) asked.insert(start->process);
      if (const auto* form = std::get_if<FormProcess>(&command)) forms.push_back(*form);
      if (const auto* run = std::get_if<RunCall>(&command)) running.push_back(run->process);
      if (const auto* end = std::get_if<EndProcess>(&command)) {
        asked.erase(end->process);
        alive.erase(end->process);
        std::erase(running, end->process);
      }
      if (const auto* finish = std::get_if<FinishCall>(&command)) finished = *finish;
      if (const auto* tell = std::get_if<Tell>(&command)) told.push_back(tell->sentence);
    }
  }
  void call(std::uint64_t id, int retries = 3) {
    finished.reset();
    core.call({.id = id}, retries, now);
    carry_out();
  }
  void hello(int process) {
    asked.erase(process);
    alive.insert(process);
    core.on_hello(process, now);
    carry_out();
  }
  void hello_all() {
    for (const int process : std::set(asked)) hello(process);
  }
  void form_all() {
    const auto now_formed = std::exchange(forms, {});
    for (const auto& form : now_formed) core.on_formed({form.member.epoch, form.process}, now);
    carry_out();
  }
  void done(int process, std::uint64_t id) {
    std::erase(running, process);
    core.on_done({core.epoch(), id, process, {"{\"from\":" + std::to_string(process) + "}"}});
    carry_out();
  }
  void up(std::uint64_t id, int retries = 3) {
    call(id, retries);
    hello_all();
    form_all();
  }
  void ended(int process, const std::string& cause) {
    alive.erase(process);
    core.on_ended(process, cause, now);
    carry_out();
  }
  void tick(Clock::Time::duration later) {
    now += later;
    for (const int process : alive)
      core.on_status({.process = process, .epoch = core.epoch(), .ranks = ranks[process]}, now);
    core.on_tick(now);
    carry_out();
  }
  std::map<int, std::vector<RankStatus>> ranks;
  Errc code() const { return finished ? code_of(finished->error) : Errc{}; }
  std::string text() const { return finished ? text_of(finished->error) : ""; }
};

}  // namespace

TEST_CASE("worker_group: a call ends when every process has answered, in rank order") {
  Scene s({.num_workers = 5, .ranks_per_process = 2});
  s.call(1);
  CHECK(s.asked == std::set{0, 1, 2});
  s.hello(2);
  s.hello(0);
  CHECK(s.forms.empty());
  s.hello(1);
  REQUIRE(s.forms.size() == 3);
  CHECK(s.forms[2].member.first_rank == 4);
  CHECK(s.forms[2].member.rank_count == 1);
  CHECK(s.forms[0].member.world_size == 5);
  s.form_all();
  CHECK(s.running.size() == 3);
  s.done(2, 1);
  s.done(0, 1);
  CHECK_FALSE(s.finished);
  s.done(1, 1);
  REQUIRE(s.finished);
  CHECK_FALSE(s.finished->error);
  CHECK(s.finished->metrics ==
        std::vector<std::string>{"{\"from\":0}", "{\"from\":1}", "{\"from\":2}"});
  s.call(2);
  CHECK(s.running.size() == 3);  // the group stays
}

TEST_CASE("worker_group: a lost process begins everything anew, and the call goes on") {
  Scene s({.num_workers = 4, .ranks_per_process = 2});
  s.up(7, 1);
  const auto before = s.core.epoch();
  s.ended(1, "killed by signal 9 (SIGKILL)");
  CHECK(s.alive.empty());
  CHECK(s.asked == std::set{0, 1});
  CHECK(s.told.back().find("ranks 2 to 3: killed by signal 9") == 0);
  CHECK(s.core.epoch() == before + 1);
  s.hello_all();
  s.form_all();
  s.done(0, 7);
  s.done(1, 7);
  REQUIRE(s.finished);
  CHECK_FALSE(s.finished->error);
}

TEST_CASE("worker_group: what a process of an earlier epoch still says is not heard") {
  Scene s({.num_workers = 2, .ranks_per_process = 1});
  s.up(1);
  const auto old = s.core.epoch();
  s.ended(0, "gone");
  s.hello_all();
  s.form_all();
  s.core.on_done({old, 1, 1, {"{}"}});
  s.core.on_failed({.epoch = old, .process = 1, .rank = 1, .text = "late"}, s.now);
  s.carry_out();
  CHECK_FALSE(s.finished);
  CHECK(s.running.size() == 2);
}

TEST_CASE("worker_group: without retries a lost process is the call's error, with its ranks") {
  Scene s({.num_workers = 3, .ranks_per_process = 1});
  s.up(1, 0);
  s.ended(2, "killed by signal 9 (SIGKILL)");
  CHECK(s.code() == Errc::peer_lost);
  CHECK(s.text() == "rank 2: killed by signal 9 (SIGKILL)");
  s.up(2, 0);  // and the trainer is of use
  CHECK(s.running.size() == 3);
}

TEST_CASE("worker_group: what user code throws ends the call at once and is not tried again") {
  Scene s({.num_workers = 2});
  s.up(1, 3);
  s.core.on_failed({.epoch = s.core.epoch(),
                    .process = 0,
                    .rank = 1,
                    .text = "bad batch",
                    .code = static_cast<std::uint8_t>(Errc::user_code)},
                   s.now);
  s.carry_out();
  CHECK(s.code() == Errc::user_code);
  CHECK(s.text() == "rank 1: bad batch");
  CHECK(s.alive.empty());
}

TEST_CASE("worker_group: a process that is lost between calls costs nothing") {
  Scene s({.num_workers = 2});
  s.up(1);
  s.done(0, 1);
  s.ended(0, "gone");
  CHECK(s.asked.empty());
  s.up(2, 0);
  s.done(0, 2);
  REQUIRE(s.finished);
  CHECK_FALSE(s.finished->error);
}

TEST_CASE("worker_group: a process that does not answer is given up in bounded time") {
  Scene s({.num_workers = 2, .ranks_per_process = 1});
  s.up(1, 0);
  s.alive.erase(1);  // stopped: it says nothing any more
  s.tick(limits::kSilent / 2);
  CHECK_FALSE(s.finished);
  s.tick(limits::kSilent / 2);
  CHECK(s.code() == Errc::peer_lost);
  CHECK(s.text().find("rank 1: their process does not answer") == 0);
}

TEST_CASE("worker_group: a group that does not come together ends with why it waits") {
  Scene s({.num_workers = 2, .ranks_per_process = 1});
  s.call(1);
  s.hello(0);
  s.core.on_waiting(1, "1 CPU is wanted, none is free");
  s.tick(limits::kStart);
  CHECK(s.code() == Errc::out_of_resources);
  CHECK(s.text().find("rank 1 waits: 1 CPU is wanted") == 0);
  CHECK(s.asked.empty());
  CHECK(s.alive.empty());
}

TEST_CASE("worker_group: with min_workers a smaller group begins, and grows when elastic") {
  for (const bool elastic : {false, true}) {
    Scene s({.num_workers = 3, .ranks_per_process = 1, .min_workers = 2, .elastic = elastic});
    s.call(1);
    s.hello(0);
    s.tick(limits::kGather);
    CHECK(s.forms.empty());  // one is too few
    s.hello(2);
    s.tick(limits::kStatus);
    REQUIRE(s.forms.size() == 2);
    CHECK(s.forms[1].process == 2);
    CHECK(s.forms[1].member.first_rank == 1);
    CHECK(s.forms[1].member.world_size == 2);
    CHECK(s.asked.empty());
    s.form_all();
    s.done(0, 1);
    s.done(2, 1);
    REQUIRE(s.finished);
    s.call(2);
    CHECK((s.asked.size() == 3) == elastic);
  }
}

TEST_CASE("worker_group: ranks that only wait for each other are told so and ended") {
  Scene s({.num_workers = 2});
  s.up(1);
  s.ranks[0] = {{.rank = 0, .doing = "exchange", .collective = "gradients of net", .missing = {1}},
                {.rank = 1, .doing = "user", .collective = "all_reduce", .missing = {0}}};
  s.tick(limits::kStatus);
  s.tick(limits::kStuck / 2);
  CHECK_FALSE(s.finished);
  s.tick(limits::kStuck / 2);
  CHECK(s.code() == Errc::user_code);
  CHECK(s.text().find("rank 0 waits in gradients of net for rank 1; rank 1 waits in all_reduce for "
                      "rank 0") != std::string::npos);
}

TEST_CASE("worker_group: a rank that has ended the call while another waits for it is told") {
  Scene s({.num_workers = 2});
  s.up(1);
  s.ranks[0] = {{.rank = 0, .doing = "exchange", .collective = "gradients of net", .missing = {1}},
                {.rank = 1, .doing = "idle"}};
  s.tick(limits::kStatus);
  s.tick(limits::kStuck);
  CHECK(s.code() == Errc::user_code);
  CHECK(s.text().find("rank 1 has ended this call") != std::string::npos);
}

TEST_CASE("worker_group: a rank that computes while others wait is slow, said once, and no error") {
  Scene s({.num_workers = 2});
  s.up(1);
  s.ranks[0] = {{.rank = 0,
                 .doing = "exchange",
                 .collective = "gradients of net",
                 .missing = {1},
                 .waiting_ms = limits::kSlow.count() + 100},
                {.rank = 1, .doing = "forward", .batch = 17}};
  for (int i = 0; i < 100; ++i) s.tick(limits::kStatus);
  CHECK_FALSE(s.finished);
  REQUIRE(s.told.size() == 1);
  CHECK(s.told[0] ==
        "rank 0 has waited 5.1 s in gradients of net for rank 1, which is in forward of batch 17");
}

TEST_CASE("worker_group: shut down ends the processes and the call") {
  Scene s({.num_workers = 2});
  s.up(1);
  s.core.shut_down();
  s.carry_out();
  CHECK(s.code() == Errc::cancelled);
  CHECK(s.alive.empty());
}
