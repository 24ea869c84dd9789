#include "libactor/blob.hpp"

#include "libactor/float_fix.hpp"

#include <doctest/doctest.h>
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>

using namespace troupe;

namespace {

caf::execution_unit* const kNoContext = nullptr;

std::vector<char> written(Blob blob) {
  std::vector<char> out;
  caf::binary_serializer sink{kNoContext, out};
  REQUIRE_FALSE(sink(blob));
  return out;
}

}  // namespace

TEST_CASE("blob: copies share the bytes") {
  const Blob blob = Blob::copy_of("weights");
  const Blob copy = blob;
  CHECK(copy.bytes().data() == blob.bytes().data());
  CHECK(copy == Blob::copy_of("weights"));
  CHECK_FALSE(copy == Blob::copy_of("weighs"));
}

TEST_CASE("blob: what is written is read again, nothing included") {
  for (const Blob& sent : {Blob{}, Blob::copy_of(""), Blob::copy_of(std::string(100'000, 'x'))}) {
    const auto bytes = written(sent);
    Blob received = Blob::copy_of("old");
    caf::binary_deserializer source{kNoContext, bytes};
    REQUIRE_FALSE(source(received));
    CHECK(received == sent);
  }
}

TEST_CASE("blob: a size above what has arrived is refused, and the target stays") {
  auto bytes = written(Blob::copy_of(std::string(1000, 'x')));
  bytes.pop_back();
  Blob received = Blob::copy_of("old");
  caf::binary_deserializer source{kNoContext, bytes};
  CHECK(source(received));
  CHECK(received.text() == "old");
}

TEST_CASE("blob: more than one message may hold is an error at the sender") {
  const auto fits = [](std::int64_t size) {
    Blob blob = Blob::make(static_cast<std::size_t>(size), [](std::span<std::byte>) {});
    std::vector<char> out;
    caf::binary_serializer sink{kNoContext, out};
    return !sink(blob);
  };
  CHECK(fits(limits::kMessageBytes));
  CHECK_FALSE(fits(limits::kMessageBytes + 1));
}
