#include "libactor/internal/caf_fixes.hpp"

#include "libactor/float_fix.hpp"
#include "libactor/limits.hpp"

#include <doctest/doctest.h>
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/detail/get_root_uuid.hpp>
#include <caf/io/basp/header.hpp>
#include <caf/io/basp/instance.hpp>
#include <caf/io/basp/version.hpp>

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

using namespace troupe;
namespace basp = caf::io::basp;

namespace {

caf::execution_unit* const kNoContext = nullptr;

template <class T>
std::vector<char> written(T value) {
  std::vector<char> out;
  caf::binary_serializer sink{kNoContext, out};
  REQUIRE_FALSE(sink(value));
  return out;
}

basp::header handshake(basp::message_type type, std::uint32_t size) {
  return {type, 0, size, type == basp::message_type::server_handshake ? basp::version : 0, 0, 0};
}

}  // namespace

TEST_CASE("caf_fixes: the self-test passes in a program that links the library") {
  const auto tested = internal::caf_fixes_self_test();
  if (!tested) FAIL(describe(tested.error()));
}

TEST_CASE("caf_fixes: every bit pattern of a number arrives, and ordinary ones have CAF's bytes") {
  for (const std::uint64_t bits :
       {0x7FF0000000000000ul, 0xFFF0000000000000ul, 0x7FF8000000000001ul, 0xFFF80000DEADBEEFul,
        0x0000000000000001ul, 0x8000000000000000ul, 0x000FFFFFFFFFFFFFul}) {
    double received = 0;
    const auto sent = written(std::bit_cast<double>(bits));
    caf::binary_deserializer source{kNoContext, sent};
    REQUIRE_FALSE(source(received));
    CHECK(std::bit_cast<std::uint64_t>(received) == bits);
  }
  const auto bytes = written(1.5);
  CHECK(std::vector<char>{0x3F, char(0xF8), 0, 0, 0, 0, 0, 0} == bytes);
}

TEST_CASE("caf_fixes: two processes on one machine never share an identity") {
  CHECK(caf::detail::get_root_uuid().size() == 36);
  CHECK(caf::detail::get_root_uuid() != caf::detail::get_root_uuid());
}

TEST_CASE(
    "caf_fixes: a count above the rest of the message is refused before anything is reserved") {
  const auto count_of = [](std::vector<char> bytes) {
    std::size_t count = 0;
    caf::binary_deserializer source{kNoContext, bytes};
    return source.begin_sequence(count) ? std::optional<std::size_t>{} : count;
  };
  CHECK_FALSE(count_of({char(0xFF), char(0xFF), char(0xFF), char(0xFF), 0x0F, 'a'}));      // 4 GiB
  CHECK_FALSE(count_of({char(0x80), char(0x80), char(0x80), char(0x80), char(0x80), 0}));  // no end
  CHECK_FALSE(count_of({0x03, 'a', 'b'}));
  CHECK(count_of({0x02, 'a', 'b'}) == 2);
}

TEST_CASE("caf_fixes: a BASP header is refused that crashes CAF or claims too much") {
  using enum basp::message_type;
  CHECK_FALSE(basp::valid(handshake(server_handshake, 0)));
  CHECK_FALSE(basp::valid(handshake(client_handshake, 0)));
  CHECK_FALSE(basp::valid(handshake(server_handshake, 1u << 16)));
  CHECK(basp::valid(handshake(server_handshake, 100)));
  CHECK(basp::valid(handshake(client_handshake, 100)));
  CHECK_FALSE(basp::valid({direct_message, 0, 2u << 30, 0, 0, 5}));
  CHECK_FALSE(basp::valid({direct_message, 0, 10, 0, 0, 0}));
  CHECK(basp::valid({direct_message, 0, std::uint32_t(limits::kMessageBytes), 0, 0, 5}));
  CHECK_FALSE(basp::valid({static_cast<basp::message_type>(99), 0, 10, 0, 1, 5}));
}

TEST_CASE("caf_fixes: messages nested in messages are read down to the limit and no deeper") {
  caf::actor_system_config config;
  caf::actor_system system{config};
  const auto depth_read = [&](int depth_sent) {
    caf::message message = caf::make_message(1);
    for (int i = 1; i < depth_sent; ++i)  // an error holds a message
      message = caf::make_message(caf::error{1, caf::atom("test"), message});
    std::vector<char> bytes;
    caf::binary_serializer sink{system, bytes};
    REQUIRE_FALSE(sink(message));
    caf::message received;
    caf::binary_deserializer source{system, bytes};
    std::ignore = source(received);  // CAF leaves the rest out, and tells no error
    int depth = 0;
    for (; !received.empty(); ++depth)
      received = received.match_elements<caf::error>() ? received.get_as<caf::error>(0).context()
                                                       : caf::message{};
    return depth;
  };
  CHECK(depth_read(limits::kMessageDepth) == limits::kMessageDepth);
  CHECK(depth_read(limits::kMessageDepth + 1) == limits::kMessageDepth);
  CHECK(depth_read(2000) == limits::kMessageDepth);
}

TEST_CASE("caf_fixes: a message that is too large or can't be written is not sent in part") {
  const auto size_on_wire = [](std::int64_t payload_size, caf::error result) {
    auto write_payload = caf::make_callback([&](caf::serializer& sink) -> caf::error {
      std::vector<char> payload(static_cast<std::size_t>(payload_size));
      if (auto failed = sink.apply_raw(payload.size(), payload.data())) return failed;
      return result;
    });
    std::vector<char> out{'x'};
    basp::header header{basp::message_type::direct_message, 0, 0, 0, 1, 2};
    basp::instance::write(nullptr, out, header, &write_payload);
    return static_cast<std::int64_t>(out.size()) - 1;
  };
  CHECK(size_on_wire(1000, {}) == 1000 + std::int64_t{basp::header_size});
  CHECK(size_on_wire(1000, caf::make_error(caf::sec::invalid_argument)) == 0);
  CHECK(size_on_wire(limits::kMessageBytes, {}) > limits::kMessageBytes);
  CHECK(size_on_wire(limits::kMessageBytes + (1 << 20), {}) == 0);
}
