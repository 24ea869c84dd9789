#pragma once

#include "libactor/fd.hpp"
#include "libactor/limits.hpp"
#include "libactor/result.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::internal {

/// io: "what: the system's sentence for errno".
Error system_error(std::string_view what);

/// A pair of connected Unix sockets, close-on-exec. type: SOCK_STREAM or SOCK_SEQPACKET.
Result<std::pair<Fd, Fd>> socket_pair(int type);

/// One message on a SOCK_SEQPACKET socket, at most limits::kFrameBytes, with the descriptors that
/// travelled with it.
struct Frame {
  std::string bytes = {};
  std::vector<Fd> fds = {};
  /// The sender gave descriptors that this process had no room for; the rest was closed.
  bool fds_lost = false;
};

inline constexpr std::size_t kFrameFds = 4;

/// What became of one try to send or receive on a socket that must not block.
enum class Transfer : std::uint8_t { done, would_block, closed };

/// Sends one frame without waiting and without SIGPIPE. bad_request: empty, longer than
/// limits::kFrameBytes, or more than kFrameFds descriptors.
Result<Transfer> send_frame(int socket, std::string_view bytes, std::span<const Fd> fds = {});

/// Receives one frame without waiting; its descriptors are close-on-exec. An empty frame is
/// `closed`, as the end of the stream is: neither side sends one. corrupt: longer than the limit.
Result<Transfer> receive_frame(int socket, Frame& frame);

/// Waits for a frame at most that long. peer_lost: closed; timed_out.
Result<Frame> wait_frame(int socket, std::chrono::milliseconds timeout);

/// Frames that wait until the socket takes them. Not thread-safe.
class Outbox {
 public:
  void push(std::string bytes, std::vector<Fd> fds = {});
  /// Sends what the socket takes now.
  Result<Transfer> flush(int socket);
  bool empty() const { return frames_.empty(); }
  std::int64_t bytes() const { return bytes_; }
  void clear();

 private:
  std::deque<Frame> frames_;
  std::int64_t bytes_ = 0;
};

/// Puts numbers (little-endian, fixed width) and texts (length, bytes) one after another.
class FrameWriter {
 public:
  FrameWriter& number(std::uint64_t value);
  FrameWriter& text(std::string_view value);
  template <class Map>
  FrameWriter& texts_by_name(const Map& map) {
    number(map.size());
    for (const auto& [name, value] : map) text(name).text(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what FrameWriter wrote. After the first read past the end everything is 0 or empty, and
/// `complete` is false: check once, at the end.
class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : rest_(bytes) {}
  std::uint64_t number();
  std::string text();
  /// A count of things that take at least 8 bytes each: never more than the frame can hold.
  std::size_t count();
  template <class Map>
  Map texts_by_name() {
    Map map;
    for (std::size_t left = count(); left > 0; --left) {
      std::string name = text();
      map[std::move(name)] = text();
    }
    return map;
  }
  /// All was there, and nothing is left.
  bool complete() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace troupe::internal
