#include "sgd/internal/exchange.hpp"

#include "sgd/internal/limits.hpp"
#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;
using Kind = Contribution::Kind;

namespace {

/// A group in one thread: notes lie here until a test delivers them, in any order.
class Table {
 public:
  explicit Table(int world_size, std::uint64_t epoch = 5) {
    for (int rank = 0; rank < world_size; ++rank) {
      mails_.emplace_back(*this);
      exchanges_.push_back(std::make_unique<Exchange>(
          Exchange::Place{.rank = rank, .world_size = world_size, .epoch = epoch}, mails_.back()));
    }
  }

  Exchange& operator[](int rank) { return *exchanges_[static_cast<std::size_t>(rank)]; }
  std::size_t on_the_way() const { return way_.size(); }

  /// One of the notes that are on the way.
  void deliver(std::size_t which) {
    const auto [to, note] = way_[which];
    way_.erase(way_.begin() + static_cast<std::ptrdiff_t>(which));
    (*this)[to].deliver(note);
  }
  void deliver_all(std::mt19937_64& random) {
    while (!way_.empty()) deliver(random() % way_.size());
  }
  void deliver_all() {
    while (!way_.empty()) deliver(0);
  }

 private:
  struct TableMail final : Mail {
    explicit TableMail(Table& owner) : table(owner) {}
    void send(int to_rank, const Note& note) override { table.way_.emplace_back(to_rank, note); }
    std::uint64_t address_of(std::span<const std::byte> data) override {
      return std::bit_cast<std::uint64_t>(data.data());
    }
    std::byte* resolve(int, std::uint64_t address, std::uint64_t) override {
      return address == 1 ? nullptr : std::bit_cast<std::byte*>(address);
    }
    std::span<std::byte> allocate(std::size_t size_bytes) override {
      memory_.emplace_back(size_bytes);
      return memory_.back();
    }
    std::shared_ptr<void> memory() override { return nullptr; }

    Table& table;
    std::list<std::vector<std::byte>> memory_;
  };

  std::deque<std::pair<int, Note>> way_;
  std::list<TableMail> mails_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

std::string said(const Result<void>& waited) { return waited ? "" : describe(waited.error()); }

std::span<std::byte> bytes_of_values(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

Contribution sum(std::vector<float>& values) { return {.data = bytes_of_values(values)}; }
Contribution barrier() { return {.kind = Kind::barrier, .dtype = DType::none}; }

/// Both ranks, with the error of each.
std::vector<std::string> run_two(Table& table, const Contribution& first,
                                 const Contribution& second) {
  const auto a = table[0].start(0, first);
  const auto b = table[1].start(0, second);
  table.deliver_all();
  return {said(table[0].wait(a, 1s)), said(table[1].wait(b, 1s))};
}

}  // namespace

TEST_CASE("exchange: in whatever order notes arrive, the bits are those of a plain loop") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const int world_size = 2 + static_cast<int>(random() % 3);
    Table table(world_size);
    constexpr std::uint32_t kChannels = 2;
    for (int rank = 0; rank < world_size; ++rank) table[rank].open_channel("second");
    struct Run {
      test::Example example;
      std::vector<Exchange::Ticket> tickets = {};  // by rank
    };
    std::vector<std::vector<Run>> channels(kChannels);
    for (auto& runs : channels)
      for (int i = 0; i < 3; ++i)
        runs.push_back({test::random_example(world_size, random() % 70, random)});
    // each rank starts its next one in either channel, or a note arrives
    auto unstarted = static_cast<std::size_t>(world_size) * kChannels * 3;
    while (unstarted > 0 || table.on_the_way() > 0) {
      const std::size_t choice = random() % (unstarted + table.on_the_way());
      if (choice >= unstarted) {
        table.deliver(random() % table.on_the_way());
        continue;
      }
      const auto rank = random() % static_cast<std::size_t>(world_size);
      const auto channel = static_cast<std::uint32_t>(random() % kChannels);
      for (Run& run : channels[channel]) {
        if (run.tickets.empty()) run.tickets.resize(static_cast<std::size_t>(world_size), {9, 0});
        if (run.tickets[rank].channel != 9) continue;
        Contribution mine = run.example.contribution;
        mine.data = run.example.before[rank];
        mine.weight = run.example.weights[rank];
        run.tickets[rank] = table[static_cast<int>(rank)].start(channel, mine);
        --unstarted;
        break;
      }
    }
    for (auto& runs : channels)
      for (Run& run : runs)
        for (int rank = 0; rank < world_size; ++rank) {
          const auto index = static_cast<std::size_t>(rank);
          CHECK(said(table[rank].wait(run.tickets[index], 1s)) == "");
          CHECK((run.example.before[index] == run.example.after[index]));
        }
  }
}

TEST_CASE(
    "exchange: to start only sends: nothing is computed until a note is delivered or waited") {
  Table table(2);
  std::vector<float> a{1, 2}, b{10, 20};
  const auto first = table[0].start(0, sum(a));
  table.deliver_all();
  const auto second = table[1].start(0, sum(b));
  CHECK(a == std::vector<float>{1, 2});
  CHECK(b == std::vector<float>{10, 20});
  table.deliver_all();
  CHECK(said(table[0].wait(first, 1s)) == "");
  CHECK(said(table[1].wait(second, 1s)) == "");
  CHECK(a == std::vector<float>{11, 22});
  CHECK(b == std::vector<float>{11, 22});
}

TEST_CASE("exchange: one rank alone sends nothing and changes nothing") {
  Table table(1);
  std::vector<float> values{1, -0.0F};
  const auto before = values;
  CHECK(said(table[0].wait(table[0].start(0, sum(values)), 0ms)) == "");
  CHECK(table.on_the_way() == 0);
  CHECK(std::memcmp(values.data(), before.data(), 8) == 0);
}

TEST_CASE("exchange: whatever differs is told to both ranks in the same words") {
  std::vector<float> a(6), b(6);
  const auto floats = bytes_of_values(a), others = bytes_of_values(b);
  const std::string way_out = "; every rank must call the same collectives in the same order";
  const auto both = [&](const Contribution& first, const Contribution& second) {
    Table table(2);
    const auto errors = run_two(table, first, second);
    CHECK(errors[0] == errors[1]);
    const std::string begin =
        "bad request: ranks do not do the same: number 1 of 'the operator's own calls' is ";
    REQUIRE(errors[0].starts_with(begin));
    REQUIRE(errors[0].ends_with(way_out));
    return errors[0].substr(begin.size(), errors[0].size() - begin.size() - way_out.size());
  };
  CHECK(both({.data = floats}, {.data = others.first(20)}) ==
        "a sum of 6 float32 for rank 0 and a sum of 5 float32 for rank 1");
  CHECK(both({.data = floats}, {.dtype = DType::float64, .data = others}) ==
        "a sum of 6 float32 for rank 0 and a sum of 3 float64 for rank 1");
  CHECK(both({.data = floats}, {.reduce = Reduce::max, .data = others}) ==
        "a sum of 6 float32 for rank 0 and a maximum of 6 float32 for rank 1");
  CHECK(both({.reduce = Reduce::average, .data = floats}, {.kind = Kind::gather, .data = others}) ==
        "an average of 6 float32 for rank 0 and a gathering of 3 float32 for rank 1");
  CHECK(both(barrier(), {.kind = Kind::broadcast, .data = others, .root = 1}) ==
        "a barrier for rank 0 and a broadcast of 6 float32 from rank 1 for rank 1");
}

TEST_CASE("exchange: what has no meaning is refused on all ranks") {
  std::vector<float> a(2), b(2);
  const auto first = bytes_of_values(a), second = bytes_of_values(b);
  Table averages(2);
  for (const auto& error :
       run_two(averages, {.reduce = Reduce::average, .dtype = DType::int64, .data = first},
               {.reduce = Reduce::average, .dtype = DType::int64, .data = second}))
    CHECK(error ==
          "bad request: there is no such thing as an average of 1 int64 (number 1 of 'the "
          "operator's own calls'): convert the tensor first");
  Table roots(2);
  for (const auto& error : run_two(roots, {.kind = Kind::broadcast, .data = first, .root = 2},
                                   {.kind = Kind::broadcast, .data = second, .root = 2}))
    CHECK(error ==
          "bad request: a broadcast of 2 float32 from rank 2 (number 1 of 'the operator's own "
          "calls'): there is no such rank, the group has 2");
}

TEST_CASE("exchange: after a failure everything gets its error, and nothing is sent any more") {
  Table table(2);
  std::vector<float> values{1};
  int told = 0;
  table[0].on_failure([&](const Error&) { ++told; });
  const auto begun = table[0].start(0, sum(values));
  table.deliver_all();
  table[0].fail(make_error(Errc::user_code, "rank 1: bad batch"));
  table[0].fail(make_error(Errc::io, "later"));
  CHECK(said(table[0].wait(begun, 1h)) == "user code: rank 1: bad batch");
  const auto late = table[0].start(0, sum(values));
  CHECK(table.on_the_way() == 0);
  CHECK(said(table[0].wait(late, 1h)) == "user code: rank 1: bad batch");
  CHECK(told == 0);  // it was told, it did not notice
}

TEST_CASE(
    "exchange: the owner is told once of what a rank notices, before that rank ends its wait") {
  Table table(2);
  std::vector<std::string> told;
  table[0].on_failure([&](const Error& error) {
    told.push_back(describe(error));
    table[0].fail(make_error(Errc::peer_lost, "another rank was quicker"));
  });
  CHECK(said(table[0].wait(table[0].start(0, barrier()), 0ms)) ==
        "peer lost: another rank was quicker");
  CHECK(told == std::vector<std::string>{
                    "timed out: rank 0 has waited 0 ms in a barrier (number 1 of 'the operator's "
                    "own calls') for rank 1, of which nothing was seen"});
}

TEST_CASE("exchange: a time-out names those who have not come, and where they are") {
  Table table(4);
  for (int rank = 0; rank < 4; ++rank) table[rank].open_channel("gradients of net");
  std::vector<float> a(3), c(3), d(3);
  table[1].start(0, barrier());  // took another way
  table[2].start(1, {.reduce = Reduce::average, .data = bytes_of_values(c)});
  const auto mine = table[0].start(1, {.reduce = Reduce::average, .data = bytes_of_values(a)});
  table.deliver_all();
  CHECK(table[0].missing().collective == "");
  CHECK(said(table[0].wait(mine, 10ms)) ==
        "timed out: rank 0 has waited 10 ms in an average of 3 float32 (number 1 of 'gradients of "
        "net') for rank 1, last seen in a barrier (number 1 of 'the operator's own calls') and "
        "rank 3, of which nothing was seen");
}

TEST_CASE(
    "exchange: notes of epochs that are over are dropped, those of later ones kept for them") {
  Table table(2);
  Note early{.collective = Kind::barrier, .from = 1, .epoch = 6};
  Note late = early;
  late.epoch = 4;
  table[0].deliver(early);
  table[0].deliver(late);
  CHECK(said(table[0].wait(table[0].start(0, barrier()), 0ms)).starts_with("timed out"));
  Table next(2, 6);
  for (const Note& note : table[0].take_early()) next[0].deliver(note);
  CHECK(table[0].take_early().empty());
  const auto mine = next[0].start(0, barrier());
  next[1].start(0, barrier());
  while (next.on_the_way() > 0) next.deliver(next.on_the_way() - 1);
  CHECK(said(next[0].wait(mine, 1s)).find("it came before") != std::string::npos);
}

TEST_CASE("exchange: a note that nobody sends is an error, not a crash") {
  std::vector<float> values(4);
  const auto error_of = [&](Note note) {
    Table table(2);
    note.epoch = 5;
    std::ignore = table[0].start(0, sum(values));
    table[0].deliver(note);
    const Error error = table[0].failure();
    return error ? describe(error) : "";
  };
  const Note right{.from = 1, .size_bytes = 16};
  CHECK(error_of({.from = 2}).starts_with("corrupt: a note from rank 2 "));
  CHECK(error_of({.from = -1}).starts_with("corrupt: "));
  CHECK(error_of({.from = 1, .channel = sgd::limits::kChannels}).starts_with("corrupt: "));
  CHECK(error_of({.from = 1, .sequence = sgd::limits::kOpenCollectives}).starts_with("corrupt: "));
  CHECK(error_of({.from = 1, .sequence = ~std::uint64_t{0}}).starts_with("corrupt: "));
  CHECK(error_of({.kind = static_cast<Note::Kind>(7), .from = 1}).starts_with("corrupt: "));
  CHECK(error_of({.collective = static_cast<Kind>(99), .dtype = static_cast<DType>(99), .from = 1})
            .starts_with("bad request: "));
  Note outside = right;
  outside.dtype = DType::float32;
  outside.address = 1;
  CHECK(error_of(outside) == "corrupt: rank 1 has told of a buffer outside of its memory");
  CHECK(error_of({.kind = Note::Kind::done, .from = 1}) == "");  // it may overtake the piece
  Table twice(2);
  twice[0].deliver({.kind = Note::Kind::done, .from = 1, .epoch = 5});
  twice[0].deliver({.kind = Note::Kind::done, .from = 1, .epoch = 5});
  CHECK(describe(twice[0].failure()).find("it came before") != std::string::npos);
}
