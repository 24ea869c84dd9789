#pragma once

#include "libactor/fd.hpp"
#include "libactor/internal/system.hpp"
#include "libactor/internal/tls.hpp"
#include "libactor/limits.hpp"
#include "libactor/result.hpp"

#include <caf/actor.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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

// --- between machines: TLS over TCP -------------------------------------------------------------

struct DialOptions {
  std::string address = {};  ///< a number or a name
  std::uint16_t port = 0;
  std::string name = {};  ///< that the peer's certificate must have; empty: any
  std::vector<Role> roles = {Role::head, Role::node};
  std::chrono::milliseconds deadline = limits::kHandshake;  ///< a name's look-up comes on top
};

/// What the acceptor at that address has published. Each cause has a sentence of its own.
/// peer_lost: nobody listens, unreachable, or closed; timed_out; refused: no TLS, certificates,
/// name or role, by either side.
Result<caf::actor> dial(System& system, const Identity& identity, const DialOptions& options);

}  // namespace troupe::internal
