#include "libactor/internal/acceptor.hpp"

#include "libactor/clock.hpp"
#include "libactor/internal/basp.hpp"
#include "libactor/internal/socket.hpp"
#include "libactor/limits.hpp"
#include "libactor/log.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <thread>

namespace troupe::internal {
namespace {

/// A connection that has proved nothing yet.
struct Stranger {
  Socket socket = {};
  std::string address = {};
  std::string port = {};
  Clock::Time deadline = {};
  short waits_for = POLLIN;
};

bool out_of_descriptors(int code) {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

}  // namespace

/// One thread that never blocks in one connection: silence of a thousand strangers delays nobody.
class Acceptor::Loop {
 public:
  Loop(System& system, Identity identity, caf::actor published, ListenOptions options, Fd listener,
       Fd wake, std::uint16_t port)
      : system_(system),
        identity_(std::move(identity)),
        published_(std::move(published)),
        options_(std::move(options)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        thread_([this] { run(); }) {}

  ~Loop() {
    const std::uint64_t one = 1;
    while (::write(wake_.value(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }

  std::uint16_t port() const { return port_; }

 private:
  enum class Progress { waits, leaves };

  void run() {
    for (;;) {
      std::vector<pollfd> entries{{wake_.value(), POLLIN, 0}};
      const bool accepting = clock_.now() >= accept_again_;
      entries.push_back({accepting ? listener_.value() : -1, POLLIN, 0});
      for (const Stranger& s : strangers_) entries.push_back({s.socket.fd.value(), s.waits_for, 0});
      ::poll(entries.data(), entries.size(), milliseconds_to_next(accepting));
      if (entries[0].revents) return;
      step_strangers(entries);
      drop_late();
      if (entries[1].revents) accept_all();
    }
  }

  int milliseconds_to_next(bool accepting) const {
    Clock::Time next = Clock::Time::max();
    if (!accepting) next = accept_again_;
    if (!strangers_.empty()) next = std::min(next, strangers_.front().deadline);
    if (next == Clock::Time::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock_.now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }

  void step_strangers(const std::vector<pollfd>& entries) {
    std::deque<Stranger> rest;
    for (std::size_t i = 0; i < strangers_.size(); ++i) {
      Stranger& s = strangers_[i];
      if (entries[i + 2].revents == 0 || step(s) == Progress::waits) rest.push_back(std::move(s));
    }
    strangers_ = std::move(rest);
  }

  Progress step(Stranger& s) {
    switch (step_handshake(s.socket.session.get())) {
      case Step::wants_read: s.waits_for = POLLIN; return Progress::waits;
      case Step::wants_write: s.waits_for = POLLOUT; return Progress::waits;
      case Step::failed: refuse(s, session_error(s.socket.session.get())); break;
      case Step::done: judge(s); break;
    }
    return Progress::leaves;
  }

  void judge(Stranger& s) {
    auto peer = peer_of(s.socket.session.get());
    if (!peer) return refuse(s, peer.error());
    const std::string who = std::string(name_of(peer->role)) + " " + peer->name;
    if (std::ranges::find(options_.allowed, peer->role) == options_.allowed.end()) {
      greet(s, "a " + std::string(name_of(peer->role)) + " may not connect here");
      return refuse(s, make_error(Errc::refused, who + " may not connect here"));
    }
    if (!greet(s, "")) return refuse(s, session_error(s.socket.session.get()));
    log_info("peer connected: peer=" + who + " address=" + s.address + " port=" + s.port);
    if (auto done = publish_over(system_, std::move(s.socket), published_); !done)
      log_error("peer not served: peer=" + who + " reason=" + text_of(done.error()));
  }

  /// A line fits into an empty socket buffer, so it is written at once or never.
  static bool greet(Stranger& s, std::string line) {
    line += '\n';
    std::size_t moved = 0;
    return write_some(s.socket.session.get(), line.data(), line.size(), moved) == Step::done;
  }

  /// What a stranger is and has is for the operator; noise and silence are not.
  static void refuse(const Stranger& s, const Error& reason) {
    const std::string line = "connection refused: address=" + s.address + " port=" + s.port +
                             " reason=" + text_of(reason);
    if (code_of(reason) == Errc::refused)
      log_warn(line);
    else
      log_debug(line);
  }

  void drop_late() {
    while (!strangers_.empty() && strangers_.front().deadline <= clock_.now())
      drop(strangers_.begin(), "it has not finished the handshake in time");
  }

  void drop(std::deque<Stranger>::iterator s, const char* why) {
    refuse(*s, make_error(Errc::timed_out, why));
    strangers_.erase(s);
  }

  void accept_all() {
    for (;;) {
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      Fd fd(::accept4(listener_.value(), reinterpret_cast<sockaddr*>(&from), &size,
                      SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        admit(std::move(fd), from, size);
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (!out_of_descriptors(errno)) return;
      if (strangers_.empty()) {  // those that we have are authenticated: wait for one to go
        accept_again_ = clock_.now() + limits::kAcceptPause;
        log_warn("no descriptor for a new connection: raise ulimit -n");
        return;
      }
      drop(strangers_.begin(), "no descriptors left");
    }
  }

  void admit(Fd fd, const sockaddr_storage& from, socklen_t size) {
    char address[NI_MAXHOST] = "unknown";
    char port[NI_MAXSERV] = "0";
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&from), size, address, sizeof address, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    const int on = 1;
    ::setsockopt(fd.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    make_room(address);
    Session session = begin_session(identity_, fd.value(), Side::accept);
    if (!session) return;
    strangers_.push_back({.socket = {std::move(fd), std::move(session)},
                          .address = address,
                          .port = port,
                          .deadline = clock_.now() + options_.deadline});
  }

  /// The oldest goes: who means it is through in milliseconds, so a flood from one address throws
  /// out itself.
  void make_room(const std::string& address) {
    std::map<std::string, int> counts;
    for (const Stranger& s : strangers_) ++counts[s.address];
    std::string crowded = address;
    if (counts[address] < limits::kConnectionsPerAddress) {
      if (strangers_.size() < limits::kConnections) return;
      crowded = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
    }
    const auto oldest = std::ranges::find(strangers_, crowded, &Stranger::address);
    if (oldest != strangers_.end()) drop(oldest, "too many connections that prove nothing");
  }

  System& system_;
  const Identity identity_;
  const caf::actor published_;
  const ListenOptions options_;
  const Fd listener_;
  const Fd wake_;
  const std::uint16_t port_;
  const SystemClock clock_;
  std::deque<Stranger> strangers_;  // in order of arrival, so of deadline
  Clock::Time accept_again_{};
  std::thread thread_;  // last: it uses the others
};

namespace {

Result<Fd> listen_at(const ListenOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (::getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints,
                    &found) != 0)
    return make_error(Errc::bad_request, "give the address as a number, such as 127.0.0.1");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> target(found, ::freeaddrinfo);
  Fd listener(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return system_error("make a socket");
  const int on = 1;
  ::setsockopt(listener.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.value(), target->ai_addr, target->ai_addrlen) != 0)
    return system_error("take the port");
  if (::listen(listener.value(), SOMAXCONN) != 0) return system_error("listen");
  return listener;
}

std::uint16_t port_of(const Fd& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(socket.value(), reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::listen(System& system, const Identity& identity,
                                                   const caf::actor& published,
                                                   ListenOptions options) {
  auto listener = listen_at(options);
  if (!listener)
    return with_context(listener.error(),
                        "listen at " + options.address + " port " + std::to_string(options.port));
  Fd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake) return system_error("make an eventfd");
  const std::uint16_t port = port_of(*listener);
  return std::unique_ptr<Acceptor>(
      new Acceptor(std::make_unique<Loop>(system, identity, published, std::move(options),
                                          std::move(*listener), std::move(wake), port)));
}

Acceptor::Acceptor(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Acceptor::~Acceptor() = default;

std::uint16_t Acceptor::port() const { return loop_->port(); }

}  // namespace troupe::internal
