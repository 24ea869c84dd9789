#include "sgd/internal/leader_exchange.hpp"

#include "sgd/internal/limits.hpp"
#include "sgd/internal/reduce.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;
using Kind = Contribution::Kind;

namespace {

/// All leaders of a world in one thread: what they send lies here until a test delivers it, from
/// one group to another in the order in which it was sent, else in any.
class Table {
 public:
  explicit Table(std::vector<int> rank_counts) {
    for (int group = 0; group < static_cast<int>(rank_counts.size()); ++group) {
      outs_.push_back(std::make_unique<TableOut>(*this, group));
      exchanges_.push_back(std::make_unique<LeaderExchange>(
          Groups{.group = group, .rank_counts = rank_counts}, *outs_.back()));
    }
  }

  LeaderExchange& operator[](int group) { return *exchanges_[static_cast<std::size_t>(group)]; }
  bool is_quiet() const { return lines_.empty(); }
  int joined(int group) const { return outs_[static_cast<std::size_t>(group)]->joined_count; }
  std::size_t most_in_flight() const { return most_in_flight_; }

  void deliver(std::uint64_t which) {
    auto line = std::next(lines_.begin(), static_cast<std::ptrdiff_t>(which % lines_.size()));
    const auto [from, to] = line->first;
    const auto what = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) lines_.erase(line);
    const auto taken = what ? (*this)[to].take(from, *what) : (*this)[to].acknowledged(from);
    CHECK_MESSAGE(taken, (taken ? "" : describe(taken.error())));
  }

 private:
  struct TableOut final : LeaderExchange::Out {
    TableOut(Table& owner, int own_group) : table(owner), group(own_group) {}
    void send(int to_group, const Chunk& chunk) override {
      table.lines_[{group, to_group}].push_back(std::make_unique<Chunk>(chunk));
      auto& in_flight = table.in_flight_[{group, to_group}];
      table.most_in_flight_ = std::max(table.most_in_flight_, ++in_flight);
    }
    void acknowledge(int to_group) override {
      table.lines_[{group, to_group}].push_back(nullptr);
      --table.in_flight_[{to_group, group}];
    }
    void joined(Exchange::Ticket) override { ++joined_count; }

    Table& table;
    int group;
    int joined_count = 0;
  };

  std::map<std::pair<int, int>, std::deque<std::unique_ptr<Chunk>>>
      lines_;  // nullptr: acknowledged
  std::map<std::pair<int, int>, std::size_t> in_flight_;
  std::size_t most_in_flight_ = 0;
  std::vector<std::unique_ptr<TableOut>> outs_;
  std::vector<std::unique_ptr<LeaderExchange>> exchanges_;
};

/// Neighbours first until they are as many as a power of two, then as a tree.
float tree(std::vector<float> values) {
  const std::size_t power = std::bit_floor(values.size());
  for (std::size_t i = 0; values.size() > power; ++i) {
    values[i] += values[i + 1];
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  while (values.size() > 1) {
    for (std::size_t i = 0; i < values.size() / 2; ++i)
      values[i] = values[2 * i] + values[2 * i + 1];
    values.resize(values.size() / 2);
  }
  return values[0];
}

/// One collective: what each leader brings, and what all must have.
struct Example {
  Job job = {};
  std::vector<std::vector<float>> values = {};  // by group
  std::vector<float> after = {};
};

Example random_example(const Groups& groups, std::size_t count, std::mt19937_64& random) {
  const int world_size = groups.world_size();
  Example example;
  constexpr std::array kinds{Kind::reduce, Kind::reduce, Kind::broadcast, Kind::gather};
  example.job.kind = kinds[random() % kinds.size()];
  example.job.root = static_cast<int>(random() % static_cast<std::uint64_t>(world_size));
  if (example.job.kind == Kind::gather)
    count =
        (count / static_cast<std::size_t>(world_size) + 1) * static_cast<std::size_t>(world_size);
  std::normal_distribution<float> normal;
  for (int g = 0; g < groups.count(); ++g) {
    example.values.emplace_back(count);
    for (float& value : example.values.back()) value = normal(random);
  }
  const std::size_t size = 4 * count, group_count = example.values.size();
  const std::size_t part = ((size + group_count - 1) / group_count + 63) / 64 * 64;
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [&](int rank) {
      return example.values[static_cast<std::size_t>(groups.group_of(rank))][i];
    };
    if (example.job.kind == Kind::broadcast) {
      example.after.push_back(of(example.job.root));
    } else if (example.job.kind == Kind::gather) {
      example.after.push_back(
          of(static_cast<int>(i / (count / static_cast<std::size_t>(world_size)))));
    } else {
      std::vector<float> column;
      for (const auto& values : example.values) column.push_back(values[i]);
      if (group_count == 2 || size <= sgd::limits::kDoublingBytes) {
        example.after.push_back(tree(column));
      } else {
        std::ranges::rotate(column, column.begin() + static_cast<std::ptrdiff_t>(4 * i / part));
        float sum = column[0];
        for (std::size_t k = 1; k < column.size(); ++k) sum += column[k];
        example.after.push_back(sum);
      }
    }
  }
  return example;
}

Job job_of(Example& example, int group, Exchange::Ticket ticket) {
  Job job = example.job;
  job.ticket = ticket;
  job.data = std::as_writable_bytes(std::span(example.values[static_cast<std::size_t>(group)]));
  return job;
}

/// A leader of two, alone: what comes to it is made up.
struct Alone final : LeaderExchange::Out {
  void send(int, const Chunk& chunk) override { sent.push_back(chunk); }
  void acknowledge(int) override { ++acknowledged; }
  void joined(Exchange::Ticket) override { ++joined_count; }

  std::vector<Chunk> sent;
  int acknowledged = 0;
  int joined_count = 0;
  std::vector<float> values = {1, 2};
  LeaderExchange exchange{Groups{.group = 0, .rank_counts = {1, 1}}, *this};
  Job job{.data = std::as_writable_bytes(std::span(values))};
};

Chunk chunk_of(std::size_t size_bytes) {
  return {.hop = 1, .bytes = Blob::copy_of(std::string(size_bytes, 0))};
}

std::string said(const Result<void>& taken) { return taken ? "" : describe(taken.error()); }

}  // namespace

TEST_CASE(
    "leader exchange: in whatever order chunks arrive, the bits are those of the stated sum") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Groups groups{.rank_counts = {}};
    const auto group_count = 2 + static_cast<int>(seed % 6);
    for (int g = 0; g < group_count; ++g)
      groups.rank_counts.push_back(1 + static_cast<int>(random() % 3));
    Table table(groups.rank_counts);
    std::vector<Example> examples;
    for (int i = 0; i < 6; ++i)
      examples.push_back(
          random_example(groups, 1 + random() % (random() % 5 == 0 ? 60'000 : 40), random));
    // each group begins its next collective, in one of two channels, or something arrives
    std::vector<std::array<std::size_t, 2>> next(static_cast<std::size_t>(group_count), {0, 0});
    std::size_t left = examples.size() * static_cast<std::size_t>(group_count);
    while (left > 0 || !table.is_quiet()) {
      if (left == 0 || (!table.is_quiet() && random() % 4 != 0)) {
        table.deliver(random());
        continue;
      }
      const auto group = random() % static_cast<std::uint64_t>(group_count);
      const auto channel = random() % 2;
      const std::size_t sequence = next[group][channel];
      if (sequence == examples.size() / 2) continue;
      ++next[group][channel];
      --left;
      Example& one = examples[2 * sequence + channel];
      const auto begun = table[static_cast<int>(group)].begin(
          job_of(one, static_cast<int>(group), {static_cast<std::uint32_t>(channel), sequence}));
      CHECK(said(begun) == "");
    }
    for (const Example& one : examples)
      for (const auto& values : one.values) CHECK((values == one.after));
    for (int g = 0; g < group_count; ++g)
      CHECK(table.joined(g) == static_cast<int>(examples.size()));
    CHECK(table.most_in_flight() <= sgd::limits::kWindow);
  }
}

TEST_CASE(
    "leader exchange: half precision is rounded after each addition, least and greatest are "
    "exact") {
  for (const Reduce reduce : {Reduce::sum, Reduce::average, Reduce::min, Reduce::max}) {
    Table table({1, 1, 1});
    std::vector<std::vector<std::uint16_t>> values{{0x3f80}, {0x3b80}, {0x3b80}};  // 1, 2^-8, 2^-8
    for (int g = 0; g < 3; ++g)
      CHECK(said(table[g].begin({.reduce = reduce,
                                 .dtype = DType::bfloat16,
                                 .data = std::as_writable_bytes(
                                     std::span(values[static_cast<std::size_t>(g)]))})) == "");
    while (!table.is_quiet()) table.deliver(0);
    const std::uint16_t right =
        reduce == Reduce::min ? 0x3b80 : 0x3f80;  // 1 + 2^-8 is rounded to 1
    for (const auto& value : values) CHECK(value[0] == right);
  }
}

TEST_CASE("leader exchange: what no leader sends is an error that says why, not a crash") {
  const auto refused = [](const std::function<void(Chunk&)>& change, int from = 1) {
    Alone alone;
    CHECK(said(alone.exchange.begin(alone.job)) == "");
    Chunk chunk = chunk_of(8);
    change(chunk);
    const std::string error = said(alone.exchange.take(from, chunk));
    CHECK(alone.values == std::vector<float>{1, 2});
    CHECK(error.starts_with("corrupt: a chunk from group "));
    return error;
  };
  CHECK(refused([](Chunk& c) { c.bytes = {}; }).ends_with("it has 0 bytes instead of 8"));
  CHECK(refused([](Chunk& c) { c.bytes = chunk_of(9).bytes; }).ends_with("9 bytes instead of 8"));
  CHECK(refused([](Chunk& c) { c.region = 1; }).ends_with("no region 1"));
  CHECK(refused([](Chunk& c) { c.hop = 0; }).ends_with("nobody waits for it"));
  CHECK(refused([](Chunk&) {}, 0).ends_with("no such group"));
  CHECK(refused([](Chunk&) {}, 2).ends_with("no such group"));
  CHECK(refused([](Chunk&) {}, -1).ends_with("no such group"));
}

TEST_CASE("leader exchange: chunks that come too early are kept, up to the window") {
  Alone alone;
  for (std::uint64_t i = 0; i < sgd::limits::kWindow; ++i) {
    Chunk chunk = chunk_of(8);
    chunk.ticket.sequence = i;
    CHECK(said(alone.exchange.take(1, chunk)) == "");
  }
  CHECK(alone.acknowledged == 0);
  CHECK(said(alone.exchange.take(1, chunk_of(8))).ends_with("more come than are acknowledged"));
  CHECK(said(alone.exchange.begin(alone.job)) == "");
  CHECK(alone.acknowledged == 1);
  CHECK(alone.joined_count == 1);
  CHECK(said(alone.exchange.acknowledged(1)) == "");
  CHECK(said(alone.exchange.acknowledged(1)).starts_with("corrupt: group 1 acknowledges"));
}

TEST_CASE("leader exchange: the same chunk twice is an error") {
  std::vector<float> values(3);
  Alone out;
  LeaderExchange second(Groups{.group = 1, .rank_counts = {1, 1, 1}}, out);
  CHECK(said(second.begin({.data = std::as_writable_bytes(std::span(values))})) == "");
  CHECK(said(second.take(2, chunk_of(12))) == "");  // before that of group 0, and kept
  CHECK(said(second.take(2, chunk_of(12))).ends_with("it came before"));
}
