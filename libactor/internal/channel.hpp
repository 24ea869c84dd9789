#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/internal/system.hpp"
#include "libactor/result.hpp"

#include <caf/actor.hpp>

#include <chrono>

/// How two processes' actor systems are joined: over one end each of a connected socket, never by a
/// listening port of CAF's.
namespace troupe::internal {

/// The owner's hold on a connection.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd duplicate) : duplicate_(std::move(duplicate)) {}

  /// Ends it for both sides at once, also where a process that the peer has forked still holds the
  /// other end: monitors fire, and nothing of it comes any more.
  void cut();

 private:
  Fd duplicate_;
};

/// Owner's side of a socket pair: the process at the other end, which calls `connect`, gets
/// `published`. Returns at once.
Result<Connection> serve(System& system, Fd own_end, const caf::actor& published);

/// Worker's side of a socket pair: what the owner has published. timed_out, peer_lost.
Result<caf::actor> connect(System& system, Fd own_end, std::chrono::milliseconds timeout);

}  // namespace troupe::internal
