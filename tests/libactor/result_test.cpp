#include "libactor/result.hpp"

#include <doctest/doctest.h>
#include <caf/sec.hpp>

#include <stdexcept>

using namespace troupe;

TEST_CASE("result: an error keeps its code and sentence, and context grows before the sentence") {
  const Error error = make_error(Errc::corrupt, "checksum differs");
  CHECK(code_of(error) == Errc::corrupt);
  CHECK(text_of(error) == "checksum differs");
  CHECK(describe(with_context(error, "trial a1b2c: load")) ==
        "corrupt: trial a1b2c: load: checksum differs");
}

TEST_CASE("result: CAF's own codes become ours") {
  CHECK(code_of(caf::make_error(caf::sec::request_timeout)) == Errc::timed_out);
  CHECK(code_of(caf::make_error(caf::sec::request_receiver_down)) == Errc::peer_lost);
}

TEST_CASE("fence: whatever is thrown becomes an error of the given code, without frames") {
  const auto thrown = fence(Errc::user_code, []() -> int {
    throw std::runtime_error("shapes differ\nException raised from add at x.cpp:1\nframe #0");
  });
  REQUIRE_FALSE(thrown);
  CHECK(describe(thrown.error()) == "user code: shapes differ");
  CHECK(*fence(Errc::user_code, [] { return 7; }) == 7);
  CHECK(text_of(fence(Errc::user_code, [] { throw 3; }).error()) ==
        "an exception that is not a std::exception");
  CHECK(code_of(fence(Errc::user_code, [] {
                  throw Exception(make_error(Errc::io, "disk"));
                }).error()) == Errc::io);
}

TEST_CASE("unwrap: the value, or an Exception with the whole sentence") {
  CHECK(unwrap(Result<int>{4}) == 4);
  CHECK_THROWS_WITH_AS(unwrap(Result<int>{make_error(Errc::not_found, "no such run")}),
                       "not found: no such run", Exception);
}
