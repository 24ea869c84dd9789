#include "tune/internal/wire.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;

namespace {

std::uint64_t bits(const Value& value) { return std::bit_cast<std::uint64_t>(value.as_double()); }

Config sample() {
  return {{"lr", 0.1},
          {"none", {}},
          {"augment", {{"flip", true}, {"crop", Value()}}},
          {"блок/ключ", "値\n\0x"},
          {"list", list({1, 1.0, "text", list({}), list({true, Value()})})},
          {"hidden", std::numeric_limits<std::int64_t>::min()}};
}

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) (text += kDigits[byte >> 4]) += kDigits[byte & 15];
  return text;
}

template <class Decode>
void check_no_damage_crashes(const std::string& bytes, Decode decode) {
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = decode(std::string_view(bytes).substr(0, size));
    CHECK_FALSE(decoded);
    if (!decoded) CHECK(code_of(decoded.error()) == Errc::corrupt);
  }
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    if (const auto decoded = decode(flipped); !decoded)
      CHECK(code_of(decoded.error()) == Errc::corrupt);
  }
}

}  // namespace

TEST_CASE("wire: a config comes back as it went, empty nested ones too") {
  CHECK(*decode_config(encode(sample())) == sample());
  CHECK(*decode_config(encode(Config{})) == Config{});
  Config many;
  for (int i = 0; i < 200; ++i)
    many.set("group" + std::to_string(i % 7) + "/" + std::to_string(i), i);
  CHECK(*decode_config(encode(many)) == many);
}

TEST_CASE("wire: metrics come back as they went, in their order") {
  const Metrics metrics = {{"z", 1}, {"loss", {{"train", 0.5}, {"val", "text"}}}, {"a", list({1})}};
  CHECK(*decode_metrics(encode(metrics)) == metrics);
  CHECK(*decode_metrics(encode(Metrics{})) == Metrics{});
}

TEST_CASE("wire: doubles keep every bit, and an int64 is no double") {
  for (const std::uint64_t pattern :
       {0x0000000000000000ull, 0x8000000000000000ull, 0x0000000000000001ull, 0x7ff0000000000000ull,
        0xfff0000000000000ull, 0x7ff8000000000000ull, 0xfff8dead0000beefull, 0x7ff0000000000001ull,
        0x3fb999999999999aull}) {
    const auto back = decode_config(encode(Config{{"x", std::bit_cast<double>(pattern)}}));
    REQUIRE(back);
    CHECK(bits(back->get<Value>("x")) == pattern);
  }
  CHECK(decode_config(encode(Config{{"x", 1}}))->get<Value>("x").is_int());
  CHECK(decode_config(encode(Config{{"x", 1.0}}))->get<Value>("x").is_double());
}

TEST_CASE("wire: a text with a NUL inside stays whole") {
  const Config config = {{std::string("k\0y", 3), std::string("a\0b", 3)}};
  CHECK(*decode_config(encode(config)) == config);
}

TEST_CASE("wire: golden bytes, which older journals hold") {
  CHECK(hex(encode(Config{{"hidden", 128}, {"lr", 0.1}, {"augment", {}}})) ==
        "000000001200000000000000000002000500000027000000350000000e0000000800000000000200"
        "0d0000003a0000000c00000002000100150000001a000000140000000200010068696464656e0000"
        "0200000000000000800000000000000000000000000000006c720000000000000300000000000000"
        "9a9999999999b93f000000000000000001000000420000006175676d656e7400");
  CHECK(hex(encode(Metrics{{"loss", 0.25}, {"name", "a"}})) ==
        "00000000100000000000000000000100010000002700000008000000000002000d0000002a000000"
        "0c00000002000100150000002a00000014000000020001006c6f7373000000000300000000000000"
        "000000000000d03f00000000000000006e616d650000000004000000000000000000000000000000"
        "01000000120000006100000000000000");
}

TEST_CASE("wire: no truncation or flipped bit crashes, and what is refused is corrupt") {
  check_no_damage_crashes(encode(sample()), decode_config);
  check_no_damage_crashes(encode(Metrics{{"loss", 0.5}, {"list", list({1, "a"})}}), decode_metrics);
}

TEST_CASE("wire: something behind the message is refused") {
  const std::string bytes = encode(sample());
  CHECK(text_of(decode_config(bytes + std::string(8, '\0')).error()) ==
        "there is something behind the message");
}

TEST_CASE("wire: a claimed number of segments is not believed") {
  std::string bytes(64, '\xff');
  CHECK(text_of(decode_config(bytes).error()) == "a message of that many segments is none of ours");
}

TEST_CASE("wire: a metric that is there twice is refused") {
  capnp::MallocMessageBuilder message;
  auto entries = message.initRoot<wire::Metrics>().initEntries(2);
  for (auto entry : entries) entry.setKey("loss");
  const auto words = capnp::messageToFlatArray(message);
  const std::string bytes(words.asChars().begin(), words.asChars().size());
  CHECK(text_of(decode_metrics(bytes).error()) == "a metric is in there twice");
}

TEST_CASE("wire: lists in lists go 30 deep, and 40 deep they are refused") {
  const auto nested = [](int depth) {
    Value value = 1;
    for (int i = 0; i < depth; ++i) value = Value::List{value};
    return Config{{"x", value}};
  };
  CHECK(*decode_config(encode(nested(30))) == nested(30));
  const auto deep = decode_config(encode(nested(40)));
  REQUIRE_FALSE(deep);
  CHECK(code_of(deep.error()) == Errc::corrupt);
}
