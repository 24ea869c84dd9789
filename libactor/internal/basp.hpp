#pragma once

#include "libactor/fd.hpp"
#include "libactor/internal/system.hpp"
#include "libactor/internal/tls.hpp"
#include "libactor/result.hpp"

#include <caf/actor.hpp>

#include <chrono>

/// Handing a connected socket to CAF's protocol between processes. BASP does not care who has made
/// a socket; so nothing of CAF's ever listens or dials.
namespace troupe::internal {

/// A connected socket, with the TLS session that was made over it; without one, an end of a pair.
struct Socket {
  Fd fd = {};
  Session session = {};
};

/// The peer gets `published`, and a proxy for every actor that it is told of.
Result<void> publish_over(System& system, Socket socket, const caf::actor& published);

/// What the peer has published. timed_out, peer_lost.
Result<caf::actor> published_by(System& system, Socket socket, std::chrono::milliseconds timeout);

}  // namespace troupe::internal
