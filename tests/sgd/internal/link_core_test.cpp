#include "sgd/internal/link_core.hpp"

#include "sgd/internal/limits.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;
using Kind = Contribution::Kind;

namespace {

/// The link of group 1 of three with two ranks each, whose leader has no other ranks to talk to.
struct Bench final : Mail, Link, LinkCore::Post {
  void send(int, const Note& note) override { notes.push_back(note); }
  std::uint64_t address_of(std::span<const std::byte>) override { return 1; }
  std::byte* resolve(int, std::uint64_t, std::uint64_t) override { return nullptr; }
  std::span<std::byte> allocate(std::size_t) override { return {}; }
  std::shared_ptr<void> memory() override { return nullptr; }

  void open(Exchange&, std::function<void(const Error&)>) override {}
  void close() override {}
  void publish(const Note&) override {}
  void begin(const Job&) override {}
  void fail(const Error&) override {}

  void chunk(int, const Chunk&) override {}
  void acknowledge(int) override {}
  void error(int to_group, const Error& error) override {
    told.push_back(std::to_string(to_group) + ": " + describe(error));
  }

  Bench()
      : exchange({.rank = 2, .world_size = 6, .epoch = 5, .first_rank = 2, .rank_count = 2}, *this,
                 this),
        core(Groups{.group = 1, .rank_counts = {2, 2, 2}}, 5, *this) {}
  void open() {
    core.open(exchange, [this](const Error& error) { failed.push_back(describe(error)); });
  }

  std::vector<Note> notes;
  std::vector<std::string> told, failed;
  Exchange exchange;
  LinkCore core;
};

Note piece_of(int rank, std::uint64_t epoch = 5) {
  return {.collective = Kind::barrier, .from = rank, .epoch = epoch};
}

}  // namespace

TEST_CASE("link core: what comes before the group has begun is kept for it") {
  Bench bench;
  bench.core.on_note(0, piece_of(1));
  bench.core.on_note(0, piece_of(0, 4));  // of an epoch that is over
  CHECK(bench.notes.empty());
  bench.open();
  REQUIRE(bench.notes.size() == 1);  // the leader passes it on to its group
  CHECK(bench.notes[0].from == 1);
  bench.core.on_note(2, piece_of(4));
  CHECK(bench.notes.size() == 2);
  CHECK(bench.failed.empty());
}

TEST_CASE(
    "link core: a group can't speak for the ranks of another, and all are told which it was") {
  for (const int rank : {-1, 1, 2, 3, 6}) {
    CAPTURE(rank);
    Bench bench;
    bench.open();
    bench.core.on_note(2, piece_of(rank));
    CHECK(bench.notes.empty());
    const std::string sentence = "corrupt: ranks 4 to 5: a note that is no piece of them";
    CHECK(bench.failed == std::vector{sentence});
    CHECK(bench.told == std::vector{"0: " + sentence, "2: " + sentence});
  }
  Bench bench;
  bench.open();
  Note done = piece_of(4);
  done.kind = Note::Kind::done;
  bench.core.on_note(2, done);
  CHECK(bench.failed.size() == 1);
}

TEST_CASE("link core: a lost group ends the exchange, and is named by its ranks") {
  Bench bench;
  bench.core.on_lost(2, "no connection");
  bench.core.on_lost(0, "no connection");
  bench.core.on_error(0, 5, make_error(Errc::io, "later"));
  CHECK(bench.failed.empty());
  bench.open();
  CHECK(bench.failed ==
        std::vector<std::string>{"peer lost: ranks 4 to 5 are lost: no connection"});
  CHECK(bench.told.empty());  // the others see it themselves
}

TEST_CASE("link core: an error of another group ends this one; one of another epoch does not") {
  Bench bench;
  bench.open();
  bench.core.on_error(0, 4, make_error(Errc::io, "old"));
  CHECK(bench.failed.empty());
  bench.core.on_error(0, 5, make_error(Errc::user_code, "rank 1: bad batch"));
  CHECK(bench.failed == std::vector<std::string>{"user code: rank 1: bad batch"});
  CHECK(bench.told.empty());
  bench.core.on_chunk(0, 5, {});  // nothing is looked at any more
  bench.core.on_acknowledged(0, 5);
  CHECK(bench.failed.size() == 1);
}

TEST_CASE("link core: a chunk or an acknowledgement that can't be ends the exchange") {
  Bench bench;
  bench.open();
  bench.core.on_acknowledged(0, 4);
  CHECK(bench.failed.empty());
  bench.core.on_acknowledged(0, 5);
  CHECK(bench.failed == std::vector<std::string>{"corrupt: ranks 0 to 1: group 0 acknowledges a "
                                                 "chunk that it was not sent"});
}
