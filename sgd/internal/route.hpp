#pragma once

#include "sgd/internal/groups.hpp"
#include "sgd/internal/link.hpp"

#include <cstdint>
#include <vector>

/// Which way the bytes of a collective go among the groups. Every group computes the same routes by
/// itself, so a chunk that comes is expected, or it is an error.
namespace troupe::sgd::internal {

/// A stretch of the buffer that travels as one chunk.
struct Region {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  int origin = 0;  ///< the group where its way begins
};

enum class Way : std::uint8_t {
  doubling,  ///< with a group twice as far each time: log2 steps, all bytes in each. What comes
             ///< from a lower group is added on the left, so sums are trees in group order.
  ring,      ///< once around to be added up, beginning at its origin, once more to be known: twice
             ///< the bytes however many groups there are
  chain,     ///< from its origin once around: nothing is added
};

/// One thing that a group does with a region.
struct Hop {
  enum class Kind : std::uint8_t {
    send,
    add_left,   ///< what comes + what is here
    add_right,  ///< what is here + what comes
    copy,
  };
  Kind kind = Kind::send;
  int peer = 0;
  std::uint32_t number = 0;  ///< the same at both ends
};

struct Route {
  Way way = Way::doubling;
  std::vector<Region> regions = {};
};

/// Doubling for a sum up to limits::kDoublingBytes, and for any sum of two groups, where it sends
/// no more than a ring and takes one step; a ring for a larger one. Regions do not split elements.
Route route_of(const Job& job, const Groups& groups);

/// What this group does with a region, in order.
std::vector<Hop> hops_of(Way way, int origin, int group, int group_count);

}  // namespace troupe::sgd::internal
