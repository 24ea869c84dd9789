#include "libactor/internal/channel.hpp"

#include "libactor/clock.hpp"
#include "libactor/internal/basp.hpp"
#include "libactor/internal/socket.hpp"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <fcntl.h>

namespace troupe::internal {
namespace {

Result<Connection> hold(const Fd& fd) {
  Fd copy(::fcntl(fd.value(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error("duplicate a socket");
  return Connection(std::move(copy));
}

/// Takes over the socket; it is cut when the peer publishes nothing in time.
Result<caf::actor> ask(System& system, Socket socket, std::chrono::milliseconds timeout) {
  auto held = hold(socket.fd);
  if (!held) return held.error();
  auto found = published_by(system, std::move(socket), timeout);
  if (!found) held->cut();
  return found;
}

// --- dialling -----------------------------------------------------------------------------------

/// The time that is left for one dial.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds time) : time_(time), end_(clock_.now() + time) {}

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(end_ - clock_.now()),
                    std::chrono::milliseconds(0));
  }
  /// False when nothing has happened on the socket in time.
  bool wait(int socket, short events) const {
    pollfd entry{socket, events, 0};
    for (;;) {
      const int ready = ::poll(&entry, 1, static_cast<int>(left().count()));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }
  Error passed(std::string_view while_doing) const {
    return make_error(Errc::timed_out, "nothing for " + std::to_string(time_.count()) + " ms " +
                                           std::string(while_doing) +
                                           ": is a firewall between, or is it another service?");
  }

 private:
  SystemClock clock_;
  std::chrono::milliseconds time_;
  Clock::Time end_;
};

Result<Fd> connect_tcp(const addrinfo& target, const Deadline& deadline) {
  Fd socket(::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("make a socket");
  int failed = ::connect(socket.value(), target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (failed == EINPROGRESS) {
    if (!deadline.wait(socket.value(), POLLOUT)) return deadline.passed("while connecting");
    socklen_t size = sizeof failed;
    ::getsockopt(socket.value(), SOL_SOCKET, SO_ERROR, &failed, &size);
  }
  if (failed == ECONNREFUSED)
    return make_error(Errc::peer_lost,
                      "nobody listens there: is the address right, and does the "
                      "other side run?");
  if (failed == ENETUNREACH || failed == EHOSTUNREACH)
    return make_error(Errc::peer_lost, "unreachable: no route from this machine");
  if (failed != 0) return make_error(Errc::peer_lost, std::generic_category().message(failed));
  const int on = 1;
  ::setsockopt(socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Result<Fd> connect_tcp(const DialOptions& options, const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (failed != 0)
    return make_error(Errc::not_found, "no such machine: " + std::string(::gai_strerror(failed)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> targets(found, ::freeaddrinfo);
  Result<Fd> socket{make_error(Errc::not_found, "no such machine")};
  for (const addrinfo* target = found; target && !socket; target = target->ai_next)
    socket = connect_tcp(*target, deadline);
  return socket;
}

/// Runs one operation of a session until it is done.
template <class Operation>
Result<void> complete(const Socket& socket, const Deadline& deadline, std::string_view doing,
                      Operation operation) {
  for (;;) {
    const Step step = operation();
    if (step == Step::done) return {};
    if (step == Step::failed) return session_error(socket.session.get());
    if (!deadline.wait(socket.fd.value(), step == Step::wants_read ? POLLIN : POLLOUT))
      return deadline.passed(doing);
  }
}

/// The acceptor's line: empty, or why it does not want us. In TLS 1.3 it judges our certificate
/// after our handshake is done, so this is where its refusal arrives.
Result<void> read_greeting(const Socket& socket, const Deadline& deadline) {
  std::string line;
  for (;;) {
    char c = 0;
    std::size_t moved = 0;
    auto read = complete(socket, deadline, "after the handshake",
                         [&] { return read_some(socket.session.get(), &c, 1, moved); });
    if (!read) return read;
    if (c == '\n') break;
    line += c;
    if (line.size() > kGreetingBytes)
      return make_error(Errc::refused, "it speaks TLS, but is no part of a cluster");
  }
  if (!line.empty()) return make_error(Errc::refused, "it has refused us: " + line);
  return {};
}

Result<void> check_peer(const Peer& peer, const DialOptions& options) {
  if (!options.name.empty() && peer.name != options.name)
    return make_error(Errc::refused,
                      "its name is \"" + peer.name + "\", expected \"" + options.name + "\"");
  if (std::ranges::find(options.roles, peer.role) == options.roles.end())
    return make_error(Errc::refused,
                      "it is a " + std::string(name_of(peer.role)) + ", which nobody dials");
  return {};
}

Result<Socket> dial_tls(const Identity& identity, const DialOptions& options,
                        const Deadline& deadline) {
  auto fd = connect_tcp(options, deadline);
  if (!fd) return fd.error();
  Socket socket{std::move(*fd), nullptr};
  socket.session = begin_session(identity, socket.fd.value(), Side::dial);
  if (!socket.session) return make_error(Errc::io, "no memory for a TLS session");
  ssl_st* session = socket.session.get();
  if (auto done = complete(socket, deadline, "during the handshake",
                           [&] { return step_handshake(session); });
      !done)
    return done.error();
  auto peer = peer_of(session);
  if (!peer) return peer.error();
  if (auto expected = check_peer(*peer, options); !expected) return expected.error();
  if (auto greeted = read_greeting(socket, deadline); !greeted) {
    const std::string fault = identity.own_fault();
    if (fault.empty() || code_of(greeted.error()) == Errc::timed_out) return greeted.error();
    return make_error(Errc::refused, "it has refused us: " + fault);
  }
  return socket;
}

}  // namespace

void Connection::cut() {
  if (duplicate_) ::shutdown(duplicate_.value(), SHUT_RDWR);
  duplicate_.reset();
}

Result<Connection> serve(System& system, Fd own_end, const caf::actor& published) {
  auto held = hold(own_end);
  if (!held) return held;
  if (auto done = publish_over(system, {std::move(own_end), nullptr}, published); !done)
    return done.error();
  return held;
}

Result<caf::actor> connect(System& system, Fd own_end, std::chrono::milliseconds timeout) {
  auto found = ask(system, {std::move(own_end), nullptr}, timeout);
  if (!found) return with_context(found.error(), "connect to the owner");
  return found;
}

Result<caf::actor> dial(System& system, const Identity& identity, const DialOptions& options) {
  const std::string context = "dial " + options.address + " port " + std::to_string(options.port);
  const Deadline deadline(options.deadline);
  auto socket = dial_tls(identity, options, deadline);
  if (!socket) return with_context(socket.error(), context);
  auto found = ask(system, std::move(*socket), deadline.left());
  if (!found) return with_context(found.error(), context);
  return found;
}

}  // namespace troupe::internal
