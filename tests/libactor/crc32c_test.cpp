#include "libactor/crc32c.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string_view>

using namespace troupe;

namespace {

auto bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("crc32c: gives the check values of RFC 3720") {
  CHECK(crc32c(bytes_of("123456789")) == 0xe3069283);
  CHECK(crc32c(std::array<std::byte, 32>{}) == 0x8a9136aa);
  CHECK(crc32c({}) == 0);
}

TEST_CASE("crc32c: two parts one after the other are the same as the whole") {
  CHECK(crc32c(bytes_of("6789"), crc32c(bytes_of("12345"))) == 0xe3069283);
}
