#include "sgd/internal/shared_group.hpp"

#include "sgd/internal/shared_segment.hpp"
#include "tests/suites/exchange_suite.hpp"
#include "tests/support/child.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;
namespace suite = troupe::sgd::internal::test;
using troupe::test::Child;

namespace {

constexpr std::uint64_t kEpoch = 9;
constexpr auto kLimit = 60s;  // nothing here takes so long, unless it hangs

SharedSegment segment_of(int world_size) {
  return unwrap(SharedSegment::create({.world_size = world_size, .epoch = kEpoch}));
}

std::unique_ptr<ExchangeGroup> join(const SharedSegment& segment, int first_rank,
                                    int rank_count = 1) {
  return unwrap(join_shared_group({.path = segment.path(),
                                   .epoch = kEpoch,
                                   .first_rank = first_rank,
                                   .rank_count = rank_count}));
}

/// As if each part lived in a process of its own: it has the memory at another place.
class Parts final : public ExchangeGroup {
 public:
  Parts(int world_size, int ranks_each) : segment_(segment_of(world_size)), each_(ranks_each) {
    for (int rank = 0; rank < world_size; rank += ranks_each)
      parts_.push_back(join(segment_, rank, std::min(ranks_each, world_size - rank)));
  }
  Exchange& exchange(int rank) override {
    return parts_[static_cast<std::size_t>(rank / each_)]->exchange(rank);
  }
  void fail(const Error& error) override { segment_.fail(error); }

 private:
  SharedSegment segment_;
  int each_;
  std::vector<std::unique_ptr<ExchangeGroup>> parts_;
};

/// Counts that forked processes share.
class Counts {
 public:
  Counts()
      : counts_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Counts() { ::munmap(counts_, 4096); }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;
  std::atomic<int>& operator[](int rank) { return counts_[rank]; }

 private:
  std::atomic<int>* counts_;
};

std::span<float> floats(std::span<std::byte> data) {
  return {std::bit_cast<float*>(data.data()), data.size() / sizeof(float)};
}

/// Sums without end, counted, until there is an error; 0 when it is `expected` and all were right.
int sum_until(const SharedSegment& segment, int rank, std::size_t count, Counts& rounds,
              const std::string& expected, std::chrono::milliseconds limit = kLimit) {
  const auto group = join(segment, rank);
  Exchange& exchange = group->exchange(rank);
  const auto data = exchange.mail().allocate(count * sizeof(float));
  if (data.empty()) return 1;
  for (;;) {
    std::fill(floats(data).begin(), floats(data).end(), static_cast<float>(rank + 1));
    const auto waited = exchange.wait(exchange.start(0, {.data = data}), limit);
    if (!waited) return describe(waited.error()).starts_with(expected) ? 0 : 2;
    const int ranks = exchange.place().world_size;
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    if (!std::all_of(floats(data).begin(), floats(data).end(), [&](float x) { return x == sum; }))
      return 3;
    ++rounds[rank];
  }
}

/// Three processes add up; in the middle rank 1 gets `signal`. How each of the others ends.
std::vector<int> disturb(int signal, int round,
                         const std::function<void(const SharedSegment&)>& then,
                         const std::string& expected, std::chrono::milliseconds limit = kLimit) {
  const auto segment = segment_of(3);
  Counts rounds;
  const std::size_t count = round % 3 == 0 ? 4 : 100'000;
  std::list<Child> children;
  for (int rank = 0; rank < 3; ++rank)
    children.emplace_back(
        [&, rank] { return sum_until(segment, rank, count, rounds, expected, limit); });
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (rounds[0] < 3 * round && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  CHECK(rounds[0] >= 3 * round);
  std::next(children.begin())->kill(signal);
  then(segment);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int> ends{children.front().wait(), children.back().wait()};
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  return ends;
}

}  // namespace

TEST_CASE("shared group: processes of one rank exchange as every mail must") {
  suite::exchange_suite([](int world_size) { return std::make_unique<Parts>(world_size, 1); });
}

TEST_CASE("shared group: processes of several ranks exchange as every mail must") {
  suite::exchange_suite([](int world_size) { return std::make_unique<Parts>(world_size, 2); });
}

TEST_CASE("shared group: who can't be in it is told why") {
  const auto segment = segment_of(2);
  const auto error_of = [&](std::uint64_t epoch, int first_rank, int rank_count) {
    const auto joined = join_shared_group({segment.path(), epoch, first_rank, rank_count});
    return joined ? "" : describe(joined.error());
  };
  CHECK(error_of(kEpoch + 1, 0, 1).ends_with("it is of epoch 9, not 10"));
  CHECK(error_of(kEpoch, 0, 3).ends_with("it has 2 ranks"));
  CHECK(error_of(kEpoch, 2, 1).ends_with("it has 2 ranks"));
  CHECK(error_of(kEpoch, -1, 1).ends_with("it has 2 ranks"));
  const auto joined = join(segment, 1);
  CHECK(error_of(kEpoch, 0, 2).ends_with("rank 1 has joined before"));
}

TEST_CASE("shared group: a rank may run ahead by more notes than a ring holds") {
  constexpr int kAhead = 10 * static_cast<int>(sgd::limits::kRingNotes);
  Parts group(2, 1);
  const auto run = [&group](int rank) {
    Exchange& exchange = group.exchange(rank);
    std::vector<Exchange::Ticket> tickets;
    std::vector<std::span<std::byte>> data;
    for (int i = 0; i < kAhead; ++i) {
      data.push_back(exchange.mail().allocate(64));
      floats(data.back())[0] = static_cast<float>(i);
      tickets.push_back(exchange.start(0, {.data = data.back()}));
    }
    bool right = true;
    for (std::size_t i = 0; i < tickets.size(); ++i)
      right = exchange.wait(tickets[i], kLimit) && floats(data[i])[0] == float(2 * i) && right;
    return right;
  };
  bool right = false;
  std::thread ahead([&] { right = run(0); });
  while (group.exchange(0).missing().collective.empty()) std::this_thread::yield();
  CHECK(run(1));
  ahead.join();
  CHECK(right);
}

TEST_CASE("shared group: what lies in the memory may be rubbish, and does no harm") {
  std::atomic<int> errors = 0;
  for (std::uint64_t round = 0; round < 40; ++round) {
    CAPTURE(round);
    const auto segment = segment_of(2);
    const std::uint64_t control_bytes = segment.address_of(segment.allocate(64));
    const int fd = ::open(segment.path().c_str(), O_RDWR | O_CLOEXEC);
    auto* control = static_cast<std::uint8_t*>(
        ::mmap(nullptr, control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    REQUIRE(control != MAP_FAILED);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const auto group = join(segment, rank);
        Exchange& exchange = group->exchange(rank);
        const auto data = exchange.mail().allocate(4000);
        std::mt19937_64 random(round);
        for (int i = 0; i < 50; ++i) {
          if (rank == 0 && i == 20) {
            // errors take most of it; bells and rings lie at the end
            const std::uint64_t begin =
                round % 4 == 0 ? random() % 256 : control_bytes - random() % 16384;
            const std::uint64_t end = std::min(control_bytes, begin + (1 << (round % 17)));
            for (std::uint64_t at = begin; at < end; ++at)
              control[at] = static_cast<std::uint8_t>(random());
          }
          if (!exchange.wait(exchange.start(0, {.data = data}), 100ms)) {
            ++errors;
            break;
          }
        }
      });
    for (auto& rank : ranks) rank.join();
    ::munmap(control, control_bytes);
    ::close(fd);
  }
  CHECK(errors > 0);
}

TEST_CASE("shared group: real processes compute the bits of a plain loop") {
  for (const int world_size : {2, 3, 4}) {
    CAPTURE(world_size);
    std::mt19937_64 random(static_cast<std::uint64_t>(world_size));
    std::vector<suite::Example> examples;
    for (const std::size_t count : {0, 1, 17, 1000, 100'001})
      for (int i = 0; i < 4; ++i)
        examples.push_back(suite::random_example(world_size, count, random));
    const auto segment = segment_of(world_size);
    std::list<Child> children;
    for (int rank = 0; rank < world_size; ++rank)
      children.emplace_back([&, rank] {
        const auto group = join(segment, rank);
        for (const auto& example : examples)
          if (!suite::run_example(group->exchange(rank), 0, example)) return 1;
        return 0;
      });
    for (auto& child : children) CHECK(child.wait() == 0);
    CHECK(!segment.failure());
  }
}

TEST_CASE("shared group: a process is killed, wherever it is: the others get the trainer's error") {
  const auto lost = make_error(Errc::peer_lost, "rank 1 is lost: signal 9");
  for (int round = 0; round < 9; ++round) {
    CAPTURE(round);
    const auto ends = disturb(
        SIGKILL, round, [&](const SharedSegment& segment) { segment.fail(lost); }, describe(lost));
    CHECK(ends == std::vector{0, 0});
  }
}

TEST_CASE(
    "shared group: a process stands still: the others get the trainer's error, or their own") {
  const auto stuck = make_error(Errc::timed_out, "rank 1 does not answer");
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    auto ends = disturb(
        SIGSTOP, round, [&](const SharedSegment& segment) { segment.fail(stuck); },
        describe(stuck));
    CHECK(ends == std::vector{0, 0});
    ends = disturb(
        SIGSTOP, round, [](const SharedSegment&) {}, "timed out: rank ", 1s);
    CHECK(ends == std::vector{0, 0});
  }
}

TEST_CASE("shared group: a rank's error ends the ranks of all processes") {
  const auto segment = segment_of(2);
  Counts rounds;
  Child other([&] { return sum_until(segment, 1, 100, rounds, "user code: NaN"); });
  {
    const auto group = join(segment, 0);
    group->fail(make_error(Errc::user_code, "NaN"));
    CHECK(describe(group->exchange(0).failure()) == "user code: NaN");
  }
  CHECK(other.wait() == 0);
}
