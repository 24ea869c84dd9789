#include "sgd/internal/peer_link.hpp"

#include "libactor/internal/system.hpp"
#include "sgd/internal/comm_actor.hpp"
#include "sgd/internal/local_group.hpp"
#include "tests/suites/exchange_suite.hpp"
#include "tests/support/child.hpp"

#include <doctest/doctest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;
using std::chrono::steady_clock;
using Kind = Contribution::Kind;
using troupe::test::Child;
namespace suite = troupe::sgd::internal::test;

namespace {

constexpr auto kLimit = 30s;

std::string said(const Result<void>& waited) { return waited ? "" : describe(waited.error()); }

/// What one group's process has: its links, its ranks.
struct Member {
  Member(std::vector<int> rank_counts, int group, const PeerCredentials& own,
         std::uint64_t epoch = 1)
      : groups{.group = group, .rank_counts = std::move(rank_counts)} {
    auto made = PeerLink::listen({.groups = groups, .epoch = epoch, .credentials = own});
    if (made) link = std::move(*made);
  }
  std::string join(const std::vector<PeerAddress>& addresses, std::chrono::milliseconds limit) {
    auto joined = link->join(addresses, limit);
    if (!joined) return describe(joined.error());
    ranks = std::make_unique<LocalGroup>(groups, 1, comm_actors(system.actors()), *link);
    return "";
  }

  Groups groups;
  troupe::internal::System system{{.threads = 1}};
  std::unique_ptr<PeerLink> link;
  std::unique_ptr<LocalGroup> ranks;
};

/// A world whose groups are all in this process, each with systems of its own.
class World final : public ExchangeGroup {
 public:
  explicit World(const std::vector<int>& rank_counts) {
    const auto credentials = make_link_credentials(rank_counts);
    REQUIRE(credentials);
    std::vector<PeerAddress> addresses;
    for (std::size_t group = 0; group < rank_counts.size(); ++group) {
      members_.push_back(
          std::make_unique<Member>(rank_counts, static_cast<int>(group), (*credentials)[group]));
      REQUIRE(members_.back()->link);
      addresses.push_back({"127.0.0.1", members_.back()->link->port()});
    }
    std::vector<std::thread> joining;
    std::vector<std::string> errors(members_.size());
    for (std::size_t group = 0; group < members_.size(); ++group)
      joining.emplace_back(
          [&, group] { errors[group] = members_[group]->join(addresses, kLimit); });
    for (auto& one : joining) one.join();
    for (const auto& error : errors) REQUIRE(error == "");
  }
  Exchange& exchange(int rank) override {
    const auto group = static_cast<std::size_t>(members_[0]->groups.group_of(rank));
    return members_[group]->ranks->exchange(rank);
  }
  void fail(const Error& error) override { members_.back()->ranks->fail(error); }

 private:
  std::vector<std::unique_ptr<Member>> members_;
};

class Alone final : public ExchangeGroup {
 public:
  Exchange& exchange(int rank) override { return group_.exchange(rank); }
  void fail(const Error& error) override { group_.fail(error); }

 private:
  troupe::internal::System system_{{.threads = 1}};
  LocalGroup group_{1, 1, comm_actors(system_.actors())};
};

// --- real processes -----------------------------------------------------------------------------

/// The parent's ends of sockets to the processes, over which ports go and lines come.
struct Processes {
  Processes(const std::vector<int>& rank_counts,
            const std::function<std::string(Member&, int fd)>& body) {
    const auto credentials = make_link_credentials(rank_counts);
    REQUIRE(credentials);
    for (std::size_t group = 0; group < rank_counts.size(); ++group) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      children.push_back(std::make_unique<Child>([&]() -> int {
        ::close(ends[0]);
        for (const int fd : fds) ::close(fd);
        Member member(rank_counts, static_cast<int>(group), (*credentials)[group]);
        const std::uint16_t port = member.link ? member.link->port() : 0;
        if (::write(ends[1], &port, sizeof port) != sizeof port) return 2;
        std::vector<std::uint16_t> ports(rank_counts.size());
        const auto size = static_cast<ssize_t>(ports.size() * sizeof port);
        if (::recv(ends[1], ports.data(), ports.size() * sizeof port, MSG_WAITALL) != size)
          return 3;
        std::vector<PeerAddress> addresses;
        for (const auto each : ports) addresses.push_back({"127.0.0.1", each});
        std::string line = member.join(addresses, kLimit);
        if (line.empty()) line = body(member, ends[1]);
        line += '\n';
        return ::write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0
                                                                                               : 4;
      }));
      ::close(ends[1]);
      fds.push_back(ends[0]);
    }
    std::vector<std::uint16_t> ports(fds.size());
    for (std::size_t group = 0; group < fds.size(); ++group)
      REQUIRE(::recv(fds[group], &ports[group], sizeof ports[group], MSG_WAITALL) ==
              sizeof ports[group]);
    for (const int fd : fds)
      REQUIRE(::write(fd, ports.data(), ports.size() * sizeof(std::uint16_t)) > 0);
  }
  ~Processes() {
    for (const int fd : fds) ::close(fd);
  }

  /// The next line of a process; empty when none comes in time.
  std::string line(std::size_t group, std::chrono::milliseconds within = kLimit) const {
    std::string text;
    const auto end = steady_clock::now() + within;
    for (char c = 0; text.empty() || text.back() != '\n'; text += c) {
      pollfd entry{fds[group], POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
      if (left <= 0ms || ::poll(&entry, 1, static_cast<int>(left.count())) != 1 ||
          ::read(fds[group], &c, 1) != 1)
        return text;
    }
    text.pop_back();
    return text;
  }

  std::vector<int> fds;
  std::vector<std::unique_ptr<Child>> children;
};

void say(int fd, const std::string& line) {
  std::ignore = ::write(fd, (line + "\n").data(), line.size() + 1);
}

/// Runs `rank` on a thread for each rank of the group; their answers, which must be the same.
std::string on_ranks(Member& member, const std::function<std::string(Exchange&)>& rank) {
  const int first = member.groups.first_rank(member.groups.group);
  std::vector<std::string> answers(
      static_cast<std::size_t>(member.groups.rank_count(member.groups.group)));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < answers.size(); ++i)
    threads.emplace_back(
        [&, i] { answers[i] = rank(member.ranks->exchange(first + static_cast<int>(i))); });
  for (auto& thread : threads) thread.join();
  for (const auto& answer : answers)
    if (answer != answers[0]) return "ranks of a group differ: " + answers[0] + " and " + answer;
  return answers[0];
}

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  std::uint64_t digest = 1469598103934665603U;
  for (const std::byte byte : bytes)
    digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211U;
  return digest;
}

/// Weighted averages of several sizes; what came out, as one number.
std::string averages(Exchange& exchange) {
  std::string digests;
  std::mt19937 random(static_cast<unsigned>(exchange.place().rank));
  std::normal_distribution<float> normal;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1001}, std::size_t{3'000'001}}) {
    const auto data = exchange.mail().allocate(4 * count);
    auto* values = reinterpret_cast<float*>(data.data());
    for (std::size_t i = 0; i < count; ++i) values[i] = normal(random);
    const auto ticket = exchange.start(
        0, {.reduce = Reduce::average, .data = data, .weight = 1.0 + exchange.place().rank});
    if (auto waited = exchange.wait(ticket, kLimit); !waited) return said(waited);
    digests += std::to_string(digest_of(data)) + " ";
  }
  return digests;
}

}  // namespace

TEST_CASE("peer link: groups whose leaders speak TLS exchange as every mail must") {
  suite::exchange_suite(
      [](int world_size) -> std::unique_ptr<ExchangeGroup> {
        if (world_size == 1) return std::make_unique<Alone>();
        return std::make_unique<World>(suite::two_or_three_groups(world_size));
      },
      suite::two_or_three_groups);
}

TEST_CASE("peer link: two and three processes get the same bits, and again in a second run") {
  for (const auto& rank_counts : {std::vector<int>{1, 1}, {2, 2}, {1, 2, 1}}) {
    std::vector<std::string> runs;
    for (int run = 0; run < 2; ++run) {
      Processes processes(rank_counts,
                          [](Member& member, int) { return on_ranks(member, averages); });
      for (std::size_t group = 0; group < rank_counts.size(); ++group)
        runs.push_back(processes.line(group));
      for (auto& child : processes.children) CHECK(child->wait() == 0);
    }
    for (const auto& digests : runs) CHECK(digests == runs[0]);
    CHECK(runs[0].size() > 6);
    CHECK(runs[0].find("lost") == std::string::npos);
  }
}

TEST_CASE(
    "peer link: one process killed in the middle: the others are told its ranks in two seconds") {
  for (const auto& rank_counts : {std::vector<int>{1, 1}, {1, 2, 1}}) {
    Processes processes(rank_counts, [](Member& member, int fd) {
      return on_ranks(member, [&](Exchange& exchange) -> std::string {
        const auto data = exchange.mail().allocate(std::size_t{8} << 20);
        for (int i = 0;; ++i) {
          if (i == 5 && exchange.place().rank == 0) say(fd, "runs");
          const auto waited = exchange.wait(exchange.start(0, {.data = data}), kLimit);
          if (!waited) return said(waited);
        }
      });
    });
    REQUIRE(processes.line(0) == "runs");
    const std::size_t last = rank_counts.size() - 1;
    processes.children[last]->kill();
    const auto killed = steady_clock::now();
    const std::string rank = last == 1 ? "1" : "3";
    for (std::size_t group = 0; group < last; ++group)
      CHECK(processes.line(group, 2s) ==
            "peer lost: rank " + rank + " is lost: the connection to their process has ended");
    CHECK(steady_clock::now() - killed < 2s);
  }
}

TEST_CASE("peer link: what does not come in time, and who is of another epoch, is told") {
  const auto credentials = make_link_credentials({1, 2});
  REQUIRE(credentials);
  Member first({1, 2}, 0, (*credentials)[0]);
  Member second({1, 2}, 1, (*credentials)[1], 2);
  const std::vector<PeerAddress> addresses{{"127.0.0.1", first.link->port()},
                                           {"127.0.0.1", second.link->port()}};
  CHECK(first.join(addresses, 50ms) ==
        "timed out: ranks 1 to 2: nothing was seen of their process for 50 ms");
  CHECK(second.join(addresses, kLimit).find("it is of epoch 2, not 1") != std::string::npos);
  CHECK(second.join({}, kLimit) == "bad request: 0 addresses for 2 groups");
}

TEST_CASE(
    "peer link: who leaves is missed when the next collective begins, and spoils none before") {
  Processes processes({1, 1}, [](Member& member, int) -> std::string {
    Exchange& exchange = member.ranks->exchange(member.groups.group);
    const Contribution barrier{.kind = Kind::barrier, .dtype = DType::none};
    if (auto waited = exchange.wait(exchange.start(0, barrier), kLimit); !waited)
      return said(waited);
    if (member.groups.group == 1) {
      member.ranks.reset();
      return "left";
    }
    for (;;)  // the first one may have begun before the other left
      if (auto waited = exchange.wait(exchange.start(0, barrier), 100ms); !waited)
        return said(waited);
  });
  CHECK(processes.line(1) == "left");
  const std::string told = processes.line(0);
  CHECK_MESSAGE((told == "peer lost: rank 1 is lost: they have ended" ||
                 told.starts_with("timed out: rank 0 has waited 100 ms")),
                told);
}
