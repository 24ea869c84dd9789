#include "sgd/internal/shared_segment.hpp"

#include "tests/support/temp_folder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;

namespace {

SharedSegment made(int world_size = 2) {
  return unwrap(
      SharedSegment::create({.world_size = world_size, .epoch = 5, .memory_bytes = 1 << 20}));
}

Errc open_error(const std::string& path) {
  const auto opened = SharedSegment::open(path);
  REQUIRE(!opened);
  return code_of(opened.error());
}

/// Takes the next note, however long that may be off. False: no bell has rung in that time.
bool await_note(const SharedSegment& segment, int rank, NoteReader& reader, Note& note) {
  for (;;) {
    const std::uint32_t seen = segment.bell(rank);
    if (reader.unread() > 0) {
      note = reader.take();
      return true;
    }
    if (!segment.wait_for_bell(rank, seen, 20s)) return false;
  }
}

}  // namespace

TEST_CASE("shared segment: by its path others reach the same memory, and nothing is left of it") {
  std::string path;
  std::span<std::byte> data;
  std::shared_ptr<void> memory;
  {
    const auto segment = made();
    path = segment.path();
    const auto other = unwrap(SharedSegment::open(path));
    CHECK(other.world_size() == 2);
    CHECK(other.epoch() == 5);
    data = segment.allocate(100);
    REQUIRE(data.size() == 100);
    const std::uint64_t address = segment.address_of(data);
    std::byte* there = other.resolve(address, 100);
    REQUIRE(there != nullptr);
    CHECK(there != data.data());
    data[99] = std::byte{7};
    CHECK(there[99] == std::byte{7});
    CHECK(other.claim(1));
    CHECK(!segment.claim(1));
    CHECK(segment.claim(0));
    memory = segment.memory();
  }
  CHECK(data[99] == std::byte{7});  // who holds the memory has it
  memory.reset();
  CHECK(open_error(path) == Errc::not_found);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    CHECK(line.find("troupe_group") == std::string::npos);
}

TEST_CASE("shared segment: memory is zeroed, aligned, each its own, and bounded") {
  const auto segment = made();
  const auto other = unwrap(SharedSegment::open(segment.path()));
  std::set<std::uint64_t> addresses;
  for (const std::size_t size : {1, 64, 65, 4096, 100'000}) {
    const auto data = (size % 2 == 0 ? segment : other).allocate(size);
    REQUIRE(data.size() == size);
    CHECK(std::bit_cast<std::uintptr_t>(data.data()) % 64 == 0);
    CHECK(std::all_of(data.begin(), data.end(), [](std::byte x) { return x == std::byte{0}; }));
    std::fill(data.begin(), data.end(), std::byte{0xff});
    CHECK(addresses.insert((size % 2 == 0 ? segment : other).address_of(data)).second);
  }
  CHECK(segment.allocate(0).empty());
  CHECK(segment.allocate(1 << 20).empty());
  CHECK(segment.allocate(~std::size_t{0}).empty());
  CHECK(segment.allocate(1000).size() == 1000);  // what was refused has taken nothing

  const std::uint64_t first = *addresses.begin(), last = *addresses.rbegin();
  CHECK(segment.resolve(first, 64) != nullptr);
  CHECK(segment.resolve(first - 64, 64) == nullptr);
  CHECK(segment.resolve(0, 64) == nullptr);
  CHECK(segment.resolve(last, 1 << 20) == nullptr);
  CHECK(segment.resolve(last, ~std::uint64_t{0}) == nullptr);
  CHECK(segment.resolve(~std::uint64_t{0}, 2) == nullptr);
  const std::vector<std::byte> elsewhere(64);
  CHECK(segment.address_of(elsewhere) == 0);
}

TEST_CASE("shared segment: the first error stays, in all processes, however many there are") {
  for (int round = 0; round < 20; ++round) {
    const auto segment = made();
    const auto other = unwrap(SharedSegment::open(segment.path()));
    CHECK(!segment.failure());
    std::vector<std::string> said(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < said.size(); ++i)
      threads.emplace_back([&, i] {
        const auto& mine = i % 2 == 0 ? segment : other;
        said[i] = describe(
            mine.fail(make_error(Errc::peer_lost, "rank " + std::to_string(i) + " is lost")));
      });
    for (auto& thread : threads) thread.join();
    for (const auto& sentence : said) CHECK(sentence == said[0]);
    CHECK(said[0].starts_with("peer lost: rank "));
    CHECK(describe(segment.failure()) == said[0]);
    CHECK(describe(other.failure()) == said[0]);
  }
  const auto segment = made();
  segment.fail(make_error(Errc::user_code, std::string(100'000, 'x')));
  CHECK(text_of(segment.failure()) == std::string(sgd::limits::kFailureBytes, 'x'));
}

TEST_CASE("shared segment: a ring keeps the order, and says when it is full") {
  const auto segment = made();
  const auto other = unwrap(SharedSegment::open(segment.path()));
  NoteWriter writer(segment.ring(0, 1));
  NoteReader reader(other.ring(0, 1));
  std::uint64_t written = 0, taken = 0;
  for (int round = 0; round < 10; ++round) {
    while (writer.write({.sequence = written})) ++written;
    CHECK(written - taken == sgd::limits::kRingNotes);
    for (int i = 0; i <= 5 * round; ++i) CHECK(reader.take().sequence == taken++);
  }
  CHECK(reader.unread() == written - taken);
  CHECK(NoteReader(other.ring(1, 0)).unread() == 0);
}

TEST_CASE("shared segment: no ring of a bell is lost") {
  constexpr std::uint64_t kRounds = 100'000;
  const auto here = made();
  const auto there = unwrap(SharedSegment::open(here.path()));
  bool answered = true;
  std::thread answering([&] {
    NoteReader reader(there.ring(0, 1));
    NoteWriter writer(there.ring(1, 0));
    Note note;
    for (std::uint64_t i = 0; i < kRounds && answered; ++i) {
      answered = await_note(there, 1, reader, note) && note.sequence == i && writer.write(note);
      there.ring_bell(0);
    }
  });
  NoteWriter writer(here.ring(0, 1));
  NoteReader reader(here.ring(1, 0));
  bool came = true;
  for (std::uint64_t i = 0; i < kRounds && came; ++i) {
    Note note{.sequence = i};
    came = writer.write(note);
    here.ring_bell(1);
    came = came && await_note(here, 0, reader, note) && note.sequence == i;
  }
  answering.join();
  CHECK(came);
  CHECK(answered);
}

TEST_CASE("shared segment: what is none is refused") {
  CHECK(open_error("/proc/self/fd/9999") == Errc::not_found);
  CHECK(open_error("/dev/null") == Errc::corrupt);
  test::TempFolder folder;
  const auto file = folder.path() / "file";
  std::ofstream(file) << std::string(1 << 20, 'x');
  CHECK(open_error(file) == Errc::corrupt);

  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  for (const bool sealed : {false, true}) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, sealed ? 1 << 20 : 1) == 0);
    if (sealed) REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    CHECK(open_error("/proc/self/fd/" + std::to_string(fd)) == Errc::corrupt);
    ::close(fd);
  }
  CHECK(code_of(SharedSegment::create({.world_size = sgd::limits::kSharedRanks + 1}).error()) ==
        Errc::bad_request);
  const auto huge = SharedSegment::create({.memory_bytes = std::uint64_t{1} << 62});
  CHECK(code_of(huge.error()) == Errc::out_of_resources);
}

TEST_CASE("shared segment: its default size holds what the machine holds, and costs nothing") {
  const auto segment = unwrap(SharedSegment::create({.world_size = 4}));
  CHECK(segment.allocate(std::size_t{64} << 20).size() == std::size_t{64} << 20);
}
