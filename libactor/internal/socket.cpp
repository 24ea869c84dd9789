#include "libactor/internal/socket.hpp"

#include "libactor/assert.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::internal {

Error system_error(std::string_view what) {
  const int code = errno;
  return make_error(Errc::io, std::string(what) + ": " + std::generic_category().message(code));
}

Result<std::pair<Fd, Fd>> socket_pair(int type) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return system_error("socketpair");
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Result<Transfer> send_frame(int socket, std::string_view bytes, std::span<const Fd> fds) {
  if (bytes.empty() || bytes.size() > limits::kFrameBytes)
    return make_error(Errc::bad_request, "a frame of " + std::to_string(bytes.size()) +
                                             " bytes; it must have 1 to " +
                                             std::to_string(limits::kFrameBytes));
  if (fds.size() > kFrameFds)
    return make_error(Errc::bad_request, std::to_string(fds.size()) +
                                             " descriptors in one frame; at most " +
                                             std::to_string(kFrameFds));
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kFrameFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].value();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  for (;;) {
    // SOCK_SEQPACKET takes a message whole or not at all: there are no short writes.
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Transfer::done;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return Transfer::would_block;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return Transfer::closed;
    return system_error("sendmsg");
  }
}

Result<Transfer> receive_frame(int socket, Frame& frame) {
  frame = {};
  frame.bytes.resize(limits::kFrameBytes);
  iovec part{frame.bytes.data(), frame.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kFrameFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size;
  do size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (size < 0 && errno == EINTR);
  if (size < 0) {
    if (errno == EAGAIN) return Transfer::would_block;
    if (errno == ECONNRESET) return Transfer::closed;
    return system_error("recvmsg");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      frame.fds.emplace_back(fd);
    }
  }
  frame.fds_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return make_error(Errc::corrupt, "a frame of more than " + std::to_string(limits::kFrameBytes) +
                                         " bytes on a socket between processes");
  if (size == 0) return Transfer::closed;
  frame.bytes.resize(static_cast<std::size_t>(size));
  return Transfer::done;
}

Result<Frame> wait_frame(int socket, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    Frame frame;
    auto received = receive_frame(socket, frame);
    if (!received) return received.error();
    if (*received == Transfer::done) return frame;
    if (*received == Transfer::closed)
      return make_error(Errc::peer_lost, "the other process has closed the socket");
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (rest.count() <= 0) return make_error(Errc::timed_out, "no frame on a socket");
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(rest.count())) < 0 && errno != EINTR)
      return system_error("poll");
  }
}

void Outbox::push(std::string bytes, std::vector<Fd> fds) {
  bytes_ += static_cast<std::int64_t>(bytes.size());
  frames_.push_back({.bytes = std::move(bytes), .fds = std::move(fds)});
}

Result<Transfer> Outbox::flush(int socket) {
  while (!frames_.empty()) {
    const Frame& frame = frames_.front();
    auto sent = send_frame(socket, frame.bytes, frame.fds);
    if (!sent || *sent != Transfer::done) return sent;
    bytes_ -= static_cast<std::int64_t>(frame.bytes.size());
    frames_.pop_front();
  }
  return Transfer::done;
}

void Outbox::clear() {
  frames_.clear();
  bytes_ = 0;
}

FrameWriter& FrameWriter::number(std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value) {
  number(value.size());
  bytes_.append(value);
  return *this;
}

std::uint64_t FrameReader::number() {
  if (rest_.size() < 8) {
    good_ = false;
    rest_ = {};
    return 0;
  }
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(rest_[i]);
  rest_.remove_prefix(8);
  return value;
}

std::string FrameReader::text() {
  const std::uint64_t size = number();
  if (size > rest_.size()) {
    good_ = false;
    rest_ = {};
    return {};
  }
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::size_t FrameReader::count() {
  const std::uint64_t value = number();
  if (value > rest_.size() / 8) {
    good_ = false;
    rest_ = {};
    return 0;
  }
  return value;
}

}  // namespace troupe::internal
