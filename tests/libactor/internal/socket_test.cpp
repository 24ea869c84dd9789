#include "libactor/internal/socket.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::internal;
using namespace std::chrono_literals;

namespace {

std::pair<Fd, Fd> frame_pair() { return unwrap(socket_pair(SOCK_SEQPACKET)); }

/// Bytes as a hostile peer would send them.
void send_raw(const Fd& fd, const std::string& bytes) {
  REQUIRE(::send(fd.value(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

}  // namespace

TEST_CASE("socket: a frame arrives whole, with its descriptors, which are close-on-exec") {
  auto [a, b] = frame_pair();
  auto [c, d] = unwrap(socket_pair(SOCK_STREAM));
  std::vector<Fd> given;
  given.push_back(std::move(c));
  REQUIRE(unwrap(send_frame(a.value(), "take this", given)) == Transfer::done);
  auto frame = unwrap(wait_frame(b.value(), 5s));
  CHECK(frame.bytes == "take this");
  REQUIRE(frame.fds.size() == 1);
  CHECK_FALSE(frame.fds_lost);
  CHECK((::fcntl(frame.fds[0].value(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(::write(frame.fds[0].value(), "x", 1) == 1);
  char byte = 0;
  CHECK(::read(d.value(), &byte, 1) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("socket: the longest frame passes, a longer one is refused on both sides") {
  auto [a, b] = frame_pair();
  const std::string longest(limits::kFrameBytes, 'x');
  REQUIRE(unwrap(send_frame(a.value(), longest)) == Transfer::done);
  CHECK(unwrap(wait_frame(b.value(), 5s)).bytes == longest);
  CHECK(code_of(send_frame(a.value(), longest + "x").error()) == Errc::bad_request);
  send_raw(a, longest + "x");
  CHECK(code_of(wait_frame(b.value(), 5s).error()) == Errc::corrupt);
}

TEST_CASE("socket: an empty frame cannot be sent, and counts as the end when it comes") {
  auto [a, b] = frame_pair();
  CHECK(code_of(send_frame(a.value(), "").error()) == Errc::bad_request);
  send_raw(a, "");
  CHECK(code_of(wait_frame(b.value(), 5s).error()) == Errc::peer_lost);
}

TEST_CASE("socket: a closed peer is peer_lost, not a SIGPIPE; a silent one is timed_out") {
  auto [a, b] = frame_pair();
  CHECK(code_of(wait_frame(a.value(), 1ms).error()) == Errc::timed_out);
  b.reset();
  CHECK(unwrap(send_frame(a.value(), "x")) == Transfer::closed);
  CHECK(code_of(wait_frame(a.value(), 5s).error()) == Errc::peer_lost);
}

TEST_CASE("socket: more descriptors than a frame may have are refused") {
  auto [a, b] = frame_pair();
  std::vector<Fd> many;
  for (std::size_t i = 0; i <= kFrameFds; ++i) many.emplace_back(::dup(b.value()));
  CHECK(code_of(send_frame(a.value(), "x", many).error()) == Errc::bad_request);
}

TEST_CASE("outbox: frames wait while the peer does not read, and arrive in order") {
  auto [a, b] = frame_pair();
  Outbox outbox;
  constexpr int kFrames = 1000;
  for (int i = 0; i < kFrames; ++i) outbox.push(std::to_string(i) + std::string(1000, ' '));
  CHECK(unwrap(outbox.flush(a.value())) == Transfer::would_block);
  CHECK_FALSE(outbox.empty());
  for (int i = 0; i < kFrames; ++i) {
    CHECK(std::stoi(unwrap(wait_frame(b.value(), 5s)).bytes) == i);
    static_cast<void>(outbox.flush(a.value()));
  }
  CHECK(outbox.empty());
  CHECK(outbox.bytes() == 0);
}

TEST_CASE("frame: numbers and texts come back, and an incomplete frame is found") {
  const std::string bytes =
      FrameWriter().number(~0ull).text("").text(std::string("a\0b", 3)).number(7).take();
  FrameReader reader(bytes);
  CHECK(reader.number() == ~0ull);
  CHECK(reader.text().empty());
  CHECK(reader.text() == std::string("a\0b", 3));
  CHECK_FALSE(reader.complete());
  CHECK(reader.number() == 7);
  CHECK(reader.complete());
  CHECK(reader.number() == 0);
  CHECK_FALSE(reader.complete());
}

TEST_CASE("frame: a length or count that the frame cannot hold reads as nothing") {
  for (const std::uint64_t hostile :
       {std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const std::string bytes = FrameWriter().number(hostile).take();
    FrameReader text(bytes);
    CHECK(text.text().empty());
    CHECK_FALSE(text.complete());
    FrameReader count(bytes);
    CHECK(count.count() == 0);
    CHECK_FALSE(count.complete());
  }
}
