#pragma once

#include "libactor/blob.hpp"
#include "libactor/result.hpp"
#include "sgd/internal/groups.hpp"
#include "sgd/internal/link.hpp"
#include "sgd/internal/route.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace troupe::sgd::internal {

/// A region as it is sent from one leader to another.
struct Chunk {
  Exchange::Ticket ticket = {};
  std::uint32_t region = 0;
  std::uint32_t hop = 0;
  Blob bytes = {};
};

/// The leader's part in what the groups join. Knows no thread, socket or clock: chunks and
/// acknowledgements in, the same and `joined` out. Any number of collectives go on at once.
///
/// At most limits::kWindow chunks are on the way to a peer and not acknowledged. A chunk is
/// acknowledged when its collective has begun here, which needs no other chunk: so windows never
/// wait for each other in a circle.
class LeaderExchange {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(int to_group, const Chunk& chunk) = 0;
    virtual void acknowledge(int to_group) = 0;
    virtual void joined(Exchange::Ticket ticket) = 0;
  };

  /// `out` must outlive it, and must not call it back before it returns.
  LeaderExchange(Groups groups, Out& out);

  // corrupt: what no leader of the same world sends; nothing more should be taken from that one
  Result<void> begin(const Job& job);
  /// Chunks of a peer come in the order in which it sent them.
  Result<void> take(int from_group, Chunk chunk);
  Result<void> acknowledged(int from_group);

 private:
  using Id = std::pair<std::uint32_t, std::uint64_t>;
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // region, hop
  struct Active {
    Job job = {};
    Route route = {};
    std::vector<std::vector<Hop>> hops = {};  // by origin
    std::vector<std::size_t> next = {};       // by region: in its hops
    std::vector<bool> is_ready = {};          // by region: it waits to be sent
    std::map<Key, Blob> arrived = {};
    std::size_t regions_left = 0;
  };
  struct Ready {
    Id id = {};
    std::uint32_t region = 0;
  };
  struct Peer {
    std::size_t in_flight = 0;
    std::deque<Ready> ready = {};
    std::vector<Chunk> early = {};  // of collectives that have not begun here
  };

  static Id id_of(Exchange::Ticket ticket) { return {ticket.channel, ticket.sequence}; }
  static const std::vector<Hop>& hops(const Active& active, std::uint32_t region);
  Result<void> keep(Active& active, int from_group, Chunk chunk);
  void advance(Id id, std::uint32_t region);
  void flush(int to_group);

  Groups groups_;
  Out& out_;
  std::vector<Peer> peers_;  // by group
  std::map<Id, Active> active_;
};

}  // namespace troupe::sgd::internal
