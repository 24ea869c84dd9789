#include "tune/internal/journal_record.hpp"

#include "tests/tune/internal/some_records.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;

namespace {

std::vector<std::byte> encoded(const Record& record) {
  std::vector<std::byte> bytes;
  append_encoded(record, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("journal_record: every kind comes back as it was") {
  const auto records = some_records();
  CHECK(records.size() == std::variant_size_v<Record>);
  for (std::size_t kind = 0; kind < records.size(); ++kind) {
    CHECK(records[kind].index() == kind);
    const auto bytes = encoded(records[kind]);
    CHECK(bytes.size() % 8 == 0);
    const auto decoded = decode_record(bytes);
    REQUIRE(decoded);
    CHECK((*decoded == records[kind]));
  }
}

TEST_CASE("journal_record: a default of every kind comes back, and so do records of megabytes") {
  const Record large[] = {
      TrialAdded{.id = std::string(3'000'000, 'i'), .config = std::string(1'000'000, '\0')},
      ResultRow{.row = std::string(5'000'001, '\xff')},
      TrialFailed{.text = std::string(1023, 't')}};
  for (const auto& record : large) {
    const auto decoded = decode_record(encoded(record));
    REQUIRE(decoded);
    CHECK((*decoded == record));
  }
  for (const Record& record : {Record(RunBegun{}), Record(TrialAdded{}), Record(RunEnded{})}) {
    const auto decoded = decode_record(encoded(record));
    REQUIRE(decoded);
    CHECK((*decoded == record));
  }
}

TEST_CASE("journal_record: numbers keep their bits") {
  const double odd[] = {-0.0, std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::denorm_min(),
                        std::numeric_limits<double>::quiet_NaN()};
  for (const double value : odd) {
    const auto decoded = decode_record(encoded(TimeUsed{.seconds = value}));
    REQUIRE(decoded);
    CHECK(std::memcmp(&std::get<TimeUsed>(*decoded).seconds, &value, sizeof(value)) == 0);
  }
}

TEST_CASE("journal_record: hostile bytes are refused or read as some record, never more") {
  std::mt19937_64 random(7);
  int refused = 0, read = 0;
  const auto records = some_records();
  for (int round = 0; round < 20000; ++round) {
    auto bytes = encoded(records[random() % records.size()]);
    for (auto hits = 1 + random() % 4; hits > 0; --hits)
      bytes[random() % bytes.size()] = std::byte(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size() / 8 * 8);
    const auto decoded = decode_record(bytes);
    ++(decoded ? read : refused);
    if (!decoded) CHECK(code_of(decoded.error()) == Errc::corrupt);
  }
  CHECK(refused > 1000);
  CHECK(read > 1000);
}

TEST_CASE("journal_record: a kind, a decision or a state that nobody knows is corrupt") {
  auto bytes = encoded(TimeUsed{.seconds = 1});
  const auto refusal = [&] {
    const auto decoded = decode_record(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(code_of(decoded.error()) == Errc::corrupt);
    return text_of(decoded.error());
  };
  // The union's number is a u16 that was 10; nothing else in this message is.
  std::size_t places = 0;
  for (std::size_t i = 16; i + 1 < bytes.size(); i += 2)
    if (bytes[i] == std::byte(10) && bytes[i + 1] == std::byte(0))
      bytes[i] = std::byte(99), ++places;
  REQUIRE(places == 1);
  CHECK(refusal() == "a kind of record that this version does not know");

  bytes = encoded(TrialEnded{.state = static_cast<TrialState>(77)});
  CHECK(refusal() == "a number that stands for no known name");
  bytes = encoded(ResultRow{.decision = static_cast<Decision>(3)});
  CHECK(refusal() == "a number that stands for no known name");
}

TEST_CASE("journal_record: a payload that is not one whole segment is corrupt") {
  const auto whole = encoded(RunEnded{.why = "complete"});
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(decode_record(std::span(whole).first(size)));
  auto longer = whole;
  longer.resize(whole.size() + 8);
  CHECK_FALSE(decode_record(longer));
  auto segments = whole;
  segments[0] = std::byte(1);
  CHECK_FALSE(decode_record(segments));
}
