#include "libactor/internal/checkpoint_format.hpp"

#include "libactor/checkpoint.capnp.h"
#include "libactor/limits.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <random>

using namespace troupe;
using namespace troupe::internal::checkpoint_format;

namespace {

constexpr std::uint64_t kTocOffset = 4096;

/// Decodes a table of contents that carries the right sum.
Result<Contents> decode(std::span<const std::byte> toc) {
  const Frame frame{kTocOffset, toc.size(), {}};
  return decode_contents(toc, encode_footer(frame, toc), frame);
}

/// The sentence with which a table of two blobs "a" and "b" is refused after `change`.
std::string refusal(const std::function<void(CheckpointEntry& a, CheckpointEntry& b)>& change) {
  Contents contents;
  contents.blobs = {{"a", DType::float32, {2, 3}, 64, 24}, {"b", DType::uint8, {10}, 128, 10}};
  change(contents.blobs[0], contents.blobs[1]);
  const auto decoded = decode(*encode_contents(contents));
  if (decoded) return "accepted";
  CHECK(code_of(decoded.error()) == Errc::corrupt);
  return text_of(decoded.error());
}

}  // namespace

TEST_CASE("checkpoint format: a sound table of contents is accepted") {
  CHECK(refusal([](auto&, auto&) {}) == "accepted");
  CHECK(refusal([](auto& a, auto&) { a.shape = {}, a.size = 4; }) == "accepted");
  CHECK(refusal([](auto& a, auto&) { a.shape = {0, 3}, a.size = 0; }) == "accepted");
}

TEST_CASE("checkpoint format: a wrong entry is refused by a sentence that names the blob") {
  using doctest::Contains;
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
  const auto is = [](const std::string& sentence, const char* what) {
    CHECK(sentence.find(what) != std::string::npos);
    CHECK_MESSAGE(sentence.find("blob 'b'") != std::string::npos, sentence);
  };
  is(refusal([](auto&, auto& b) { b.dtype = static_cast<DType>(99); }), "unknown type 99");
  is(refusal([](auto&, auto& b) { b.size = 11; }), "size does not follow");
  is(refusal([](auto&, auto& b) { b.shape = {kHuge, 2}; }), "size does not follow");
  is(refusal([](auto&, auto& b) { b.shape = {0, kHuge, 2}, b.size = 0; }), "size does not follow");
  is(refusal([](auto&, auto& b) { b.shape = {kHuge, kHuge, 4}, b.size = 0; }), "size does not");
  is(refusal([](auto&, auto& b) { b.dtype = DType::none; }), "have a shape");
  is(refusal([](auto&, auto& b) { b.offset = 130; }), "not a multiple of 64");
  is(refusal([](auto&, auto& b) { b.offset = kHuge; }), "outside the file");
  is(refusal([](auto&, auto& b) { b.offset = kTocOffset; }), "outside the file");
  is(refusal([](auto&, auto& b) { b.offset = kTocOffset + 64, b.size = 0, b.shape = {0}; }),
     "outside");
  is(refusal([](auto&, auto& b) { b.dtype = DType::none, b.shape = {}, b.size = ~0ULL; }),
     "outside");
  is(refusal([](auto& a, auto& b) { a.shape = {1}, a.size = 4, b.offset = 64; }), "overlaps");
  is(refusal([](auto& a, auto& b) { a.offset = 128, b.offset = 0; }), "overlaps");
  is(refusal([](auto& a, auto& b) { a.name = b.name; }), "twice");
  is(refusal([](auto& a, auto&) { a.name = "c"; }), "not in order");
}

TEST_CASE("checkpoint format: a name that is empty, too long or holds a NUL is refused") {
  for (const std::string& name : {std::string(), std::string(1025, 'x'), std::string("a\0b", 3)})
    CHECK(refusal([&name](auto& a, auto&) { a.name = name; }).find("name is empty") !=
          std::string::npos);
}

TEST_CASE("checkpoint format: a codec that this build does not know is refused") {
  capnp::MallocMessageBuilder message;
  auto blob = message.initRoot<schema::TableOfContents>().initBlobs(1)[0];
  blob.setName("z");
  blob.setOffset(64);
  blob.setCodec(1);
  const auto flat = capnp::messageToFlatArray(message);
  const auto decoded = decode(std::as_bytes(std::span(flat.begin(), flat.size())));
  REQUIRE_FALSE(decoded);
  CHECK(text_of(decoded.error()).find("blob 'z': unknown codec 1") != std::string::npos);
}

TEST_CASE("checkpoint format: sizes are products that can't overflow") {
  CHECK(bytes_of(DType::float32, std::array<std::uint64_t, 2>{2, 3}) == 24);
  CHECK(bytes_of(DType::complex128, {}) == 16);
  CHECK(bytes_of(DType::int8, std::array<std::uint64_t, 1>{~0ULL}) == std::nullopt);
  CHECK(bytes_of(DType::int8, std::array<std::uint64_t, 2>{1ULL << 32, 1ULL << 32}) ==
        std::nullopt);
}

TEST_CASE("checkpoint format: a header of another version says which one is known") {
  auto header = encode_header({64, 0, {}});
  CHECK(decode_frame(header, encode_footer({64, 0, {}}, {}), 96));
  header[8] = std::byte{2};
  const auto decoded = decode_frame(header, encode_footer({64, 0, {}}, {}), 96);
  REQUIRE_FALSE(decoded);
  CHECK(text_of(decoded.error()).find("checksum") != std::string::npos);
}

TEST_CASE("checkpoint format: a table that claims far more than it is long costs nothing") {
  // The fifth pointer of the root is a list of 2^29 - 1 structs without content.
  std::vector<std::uint64_t> words(8);
  words[0] = std::uint64_t{7} << 32;               // one segment of seven words
  words[1] = std::uint64_t{5} << 48;               // the root: no data, five pointers
  words[6] = 1 | (std::uint64_t{7} << 32);         // a list of structs, no words long …
  words[7] = ((std::uint64_t{1} << 29) - 1) << 2;  // … of so many elements
  CHECK_FALSE(decode(std::as_bytes(std::span(words))));
  words[0] = 0xffffffff;
  CHECK_FALSE(decode(std::as_bytes(std::span(words))));
  words[0] = std::uint64_t{0xffffffff} << 32;
  CHECK_FALSE(decode(std::as_bytes(std::span(words))));
  CHECK_FALSE(decode(std::as_bytes(std::span(words).first(1))));
  CHECK_FALSE(decode({}));
}

TEST_CASE("checkpoint format: thousands of damaged tables with the right sum never crash") {
  Contents contents;
  for (int i = 0; i < 8; ++i)
    contents.blobs.push_back({"blob" + std::to_string(i),
                              DType::uint8,
                              {8, 8},
                              64 + 64U * static_cast<unsigned>(i),
                              64});
  const auto toc = *encode_contents(contents);
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto damaged = toc;
    for (auto flips = random() % 4 + 1; flips > 0; --flips)
      damaged[8 + random() % (damaged.size() - 8)] = static_cast<std::byte>(random());
    const auto decoded = decode(damaged);
    if (!decoded) {
      ++refused;
      continue;
    }
    for (const auto& blob : decoded->blobs) {
      REQUIRE(blob.offset <= kTocOffset);
      REQUIRE(blob.size <= kTocOffset - blob.offset);
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("checkpoint format: a table of contents past the limit is an error of the writer") {
  Contents contents;
  contents.info.config_json.assign(static_cast<std::size_t>(limits::kTocBytes), 'x');
  CHECK(code_of(encode_contents(contents).error()) == Errc::bad_request);
}
