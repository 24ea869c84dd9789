#include "tune/internal/journal.hpp"

#include "libactor/limits.hpp"
#include "tests/tune/internal/some_records.hpp"

#include <doctest/doctest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;

namespace {

using Bytes = std::vector<std::byte>;

/// A file in memory. The operation number `fail_at` (writes, cuts and syncs are counted) fails.
struct FakeFile {
  enum class Failure { refused, short_write, written_and_refused };
  Bytes bytes = {};
  int operation_count = 0;
  int fail_at = -1;
  int fail_count = 1;  ///< and so many from there
  Failure failure = Failure::refused;
};

class FakeDisk final : public JournalDisk {
 public:
  explicit FakeDisk(FakeFile& file) : file_(file) {}

  Result<std::int64_t> size() const override { return std::ssize(file_.bytes); }
  Result<std::int64_t> read(std::int64_t offset, std::span<std::byte> into) const override {
    const auto count = std::min(std::ssize(into), std::ssize(file_.bytes) - offset);
    std::copy_n(file_.bytes.begin() + offset, count, into.begin());
    return std::int64_t{count};
  }
  Result<std::int64_t> write(std::int64_t offset, std::span<const std::byte> bytes) override {
    auto count = std::ssize(bytes);
    const bool fails = now_fails();
    if (fails && file_.failure == FakeFile::Failure::refused) return full();
    if (fails) count = count * 2 / 3;
    file_.bytes.resize(std::max(file_.bytes.size(), static_cast<std::size_t>(offset + count)));
    std::copy_n(bytes.begin(), count, file_.bytes.begin() + offset);
    if (fails && file_.failure == FakeFile::Failure::written_and_refused) return full();
    return std::int64_t{count};
  }
  Result<void> truncate(std::int64_t size) override {
    if (now_fails()) return full();
    file_.bytes.resize(static_cast<std::size_t>(size));
    return {};
  }
  Result<void> sync() override { return now_fails() ? Result<void>(full()) : Result<void>(); }

 private:
  bool now_fails() {
    const int now = file_.operation_count++;
    return file_.fail_at >= 0 && now >= file_.fail_at && now < file_.fail_at + file_.fail_count;
  }
  static Error full() { return make_error(Errc::io, "No space left on device"); }

  FakeFile& file_;
};

Result<Journal> open(FakeFile& file, std::vector<Record>* records = nullptr) {
  return Journal::open(std::make_unique<FakeDisk>(file), [records](const Record& record) {
    if (records) records->push_back(record);
    return Result<void>();
  });
}

struct ReadBack {
  std::vector<Record> records = {};
  JournalEnd end = {};
  Error error = {};
};

ReadBack read_back(const Bytes& bytes) {
  FakeFile file{.bytes = bytes};
  ReadBack back;
  auto end = read_journal(FakeDisk(file), [&](const Record& record) {
    back.records.push_back(record);
    return Result<void>();
  });
  if (end)
    back.end = *end;
  else
    back.error = end.error();
  return back;
}

/// A journal of these records and where each of them ends.
struct Written {
  Bytes bytes = {};
  std::vector<std::size_t> ends = {};
};
Written written(const std::vector<Record>& records) {
  FakeFile file;
  auto journal = open(file);
  REQUIRE(journal);
  Written all{.ends = {file.bytes.size()}};
  for (const auto& record : records) {
    REQUIRE(journal->append(record));
    all.ends.push_back(file.bytes.size());
  }
  all.bytes = file.bytes;
  return all;
}

std::vector<Record> first(const std::vector<Record>& records, std::size_t count) {
  return {records.begin(), records.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("journal: what was appended is read, alone or many at once, over several openings") {
  const auto records = some_records();
  FakeFile file;
  {
    auto journal = open(file);
    REQUIRE(journal);
    CHECK(journal->opened_at().record_count == 0);
    REQUIRE(journal->append(records));
    CHECK(file.operation_count == 2);  // the head, and all records in one write
  }
  std::vector<Record> found;
  auto journal = open(file, &found);
  REQUIRE(journal);
  CHECK((found == records));
  CHECK(journal->opened_at().record_count == std::ssize(records));
  CHECK(journal->opened_at().torn_bytes == 0);
  CHECK(journal->size_bytes() == std::ssize(file.bytes));
  REQUIRE(journal->append(TimeUsed{.seconds = 1}));
  REQUIRE(journal->sync());
  CHECK(read_back(file.bytes).records.size() == records.size() + 1);
}

TEST_CASE("journal: the bytes of version 1 are these for ever") {
  std::ifstream golden(TROUPE_GOLDEN "/journal-1", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(golden)), {});
  const auto now = written(some_records()).bytes;
  CHECK(bytes.size() == now.size());
  CHECK(std::memcmp(bytes.data(), now.data(), std::min(bytes.size(), now.size())) == 0);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  CHECK((read_back({begin, begin + bytes.size()}).records == some_records()));
}

TEST_CASE("journal: cut anywhere, the whole records before are read and writing goes on behind") {
  const std::vector<Record> records = {TrialStarted{.trial = 1}, RunEnded{.why = "a longer text"},
                                       TimeUsed{.seconds = 2}};
  const auto [bytes, ends] = written(records);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    INFO("cut to ", size);
    FakeFile file{.bytes = Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size))};
    // Whole parts: the head is the first, then the records.
    const auto whole =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), size) - ends.begin());
    const auto expected = first(records, whole == 0 ? 0 : whole - 1);
    const auto back = read_back(file.bytes);
    REQUIRE_FALSE(back.error);
    REQUIRE((back.records == expected));
    REQUIRE(back.end.torn_bytes == std::int64_t(size - (whole == 0 ? 0 : ends[whole - 1])));

    auto journal = open(file);
    REQUIRE(journal);
    REQUIRE(journal->append(TimeUsed{.seconds = 3}));
    auto longer = expected;
    longer.push_back(TimeUsed{.seconds = 3});
    REQUIRE((read_back(file.bytes).records == longer));
  }
}

TEST_CASE(
    "journal: whichever bit flips, no false record is read, and damage amid records is told") {
  const std::vector<Record> records = {TrialStarted{.trial = 1}, RunEnded{.why = "text"},
                                       TimeUsed{.seconds = 2}};
  const auto [bytes, ends] = written(records);
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    auto flipped = bytes;
    flipped[i / 8] ^= std::byte(1 << i % 8);
    const auto back = read_back(flipped);
    const auto hit =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i / 8) - ends.begin());
    INFO("bit ", i, " in part ", hit);
    if (hit == 0) {  // of the head, its last four bytes say nothing
      REQUIRE(bool(back.error) == (i / 8 < 12));
    } else {
      REQUIRE((back.records == first(records, hit - 1)));
      if (hit == records.size()) {  // the last record looks torn
        REQUIRE_FALSE(back.error);
        REQUIRE(back.end.torn_bytes == std::int64_t(bytes.size() - ends[hit - 1]));
      } else {
        REQUIRE(code_of(back.error) == Errc::corrupt);
        REQUIRE(text_of(back.error).find("byte " + std::to_string(ends[hit - 1]) + ":") !=
                std::string::npos);
      }
    }
  }
}

TEST_CASE("journal: whatever the disk does at whatever moment, nothing acknowledged is lost") {
  using Failure = FakeFile::Failure;
  for (const auto failure :
       {Failure::refused, Failure::short_write, Failure::written_and_refused}) {
    for (int fail_count = 1; fail_count <= 3; ++fail_count) {
      for (int fail_at = 0; fail_at < 12; ++fail_at) {
        INFO("failure ", int(failure), " at ", fail_at, " times ", fail_count);
        FakeFile file{.fail_at = fail_at, .fail_count = fail_count, .failure = failure};
        auto journal = open(file);
        for (int tries = 0; !journal && tries < 5; ++tries) journal = open(file);
        REQUIRE(journal);
        std::vector<Record> acknowledged;
        for (const auto& record : some_records()) {
          int failed_count = 0;
          while (true) {
            const auto appended = journal->append(record);
            if (appended) break;
            CHECK(code_of(appended.error()) == Errc::io);
            REQUIRE(++failed_count <= fail_count);
            // Killed now: what was acknowledged is there, and no damage.
            const auto back = read_back(file.bytes);
            REQUIRE_FALSE(back.error);
            REQUIRE((back.records == acknowledged));
          }
          acknowledged.push_back(record);
          const auto back = read_back(file.bytes);
          REQUIRE_FALSE(back.error);
          REQUIRE(back.end.torn_bytes == 0);
          REQUIRE((back.records == acknowledged));
        }
      }
    }
  }
}

TEST_CASE("journal: a failed sync is told") {
  FakeFile file{.fail_at = 1};
  auto journal = open(file);
  REQUIRE(journal);
  CHECK(code_of(journal->sync().error()) == Errc::io);
  CHECK(journal->sync());
}

TEST_CASE("journal: a record that is too large is refused, and none of its batch is written") {
  FakeFile file;
  auto journal = open(file);
  REQUIRE(journal);
  const auto before = file.bytes;
  const Record batch[] = {
      TimeUsed{}, RunEnded{.why = std::string(std::size_t(limits::kJournalRecordBytes), 'x')}};
  const auto appended = journal->append(batch);
  REQUIRE_FALSE(appended);
  CHECK(code_of(appended.error()) == Errc::bad_request);
  CHECK(file.bytes == before);
  REQUIRE(journal->append(
      RunEnded{.why = std::string(std::size_t(limits::kJournalRecordBytes) - 1000, 'x')}));
  CHECK(read_back(file.bytes).records.size() == 1);
}

TEST_CASE("journal: another kind of file, and another version, are refused") {
  const std::string text = "training_iteration,loss\n1,0.5\n";
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  const auto foreign = read_back({begin, begin + text.size()});
  CHECK(code_of(foreign.error) == Errc::corrupt);
  CHECK(text_of(foreign.error) ==
        "journal, byte 0: this is no journal: its first bytes are others. Move it away, or give "
        "this run another name");

  auto bytes = written({TimeUsed{}}).bytes;
  bytes[8] = std::byte(2);
  const auto newer = read_back(bytes);
  CHECK(code_of(newer.error) == Errc::refused);
  CHECK(text_of(newer.error).find("its version is 2") != std::string::npos);
}

TEST_CASE("journal: a valid sum over bytes that are no record is corrupt, with its offset") {
  auto [bytes, ends] = written({TimeUsed{}, TimeUsed{}});
  const auto payload = ends[1] + 8;
  bytes[payload] = std::byte(7);  // more segments than one
  const auto size = bytes.size() - payload;
  const auto sum = static_cast<std::uint32_t>(XXH3_64bits_withSeed(&bytes[payload], size, size));
  std::memcpy(&bytes[ends[1] + 4], &sum, sizeof(sum));
  const auto back = read_back(bytes);
  CHECK(back.records.size() == 1);
  CHECK(code_of(back.error) == Errc::corrupt);
  CHECK(text_of(back.error).find("journal, byte " + std::to_string(ends[1])) == 0);
}

TEST_CASE("journal: an error of the reader ends the reading, with the record's offset") {
  FakeFile file{.bytes = written({TimeUsed{}, TimeUsed{}}).bytes};
  int count = 0;
  const auto end = read_journal(FakeDisk(file), [&](const Record&) {
    return ++count == 2 ? Result<void>(make_error(Errc::bad_request, "no")) : Result<void>();
  });
  REQUIRE_FALSE(end);
  CHECK(describe(end.error()).find("bad request: journal, byte ") == 0);
}

TEST_CASE("journal: megabytes of journal come back whole through the reader's window") {
  std::mt19937_64 random(3);
  std::vector<Record> records;
  for (int i = 0; i < 3000; ++i) {
    const auto size = random() % 100 == 0 ? random() % 3'000'000 : random() % 700;
    records.push_back(
        ResultRow{.trial = std::uint64_t(i), .row = std::string(size, char('a' + i % 26))});
  }
  FakeFile file;
  auto journal = open(file);
  REQUIRE(journal);
  REQUIRE(journal->append(records));
  REQUIRE(file.bytes.size() > 20'000'000);
  CHECK((read_back(file.bytes).records == records));
}

TEST_CASE("journal: a tail that looks like a record at every word is judged in bounded time") {
  auto bytes = written({TimeUsed{}}).bytes;
  for (int i = 0; i < 4'000'000; ++i) {  // 32 MB of plausible lengths
    const std::uint32_t head[] = {8'000'000, 0};
    const auto* raw = reinterpret_cast<const std::byte*>(head);
    bytes.insert(bytes.end(), raw, raw + sizeof(head));
  }
  CHECK(code_of(read_back(bytes).error) == Errc::corrupt);
}
