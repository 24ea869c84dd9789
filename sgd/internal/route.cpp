#include "sgd/internal/route.hpp"

#include "libactor/limits.hpp"
#include "sgd/internal/limits.hpp"

#include <algorithm>
#include <bit>

namespace troupe::sgd::internal {
namespace {

constexpr std::uint64_t kLineBytes = 64;  // a multiple of every element

std::uint64_t whole_lines(std::uint64_t size_bytes) {
  return (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// A buffer of one chunk would be encrypted, sent and added up one after the other.
std::uint64_t chunk_bytes(std::uint64_t size_bytes) {
  return std::clamp(whole_lines(size_bytes / 4), std::uint64_t{limits::kLeastChunkBytes},
                    std::uint64_t{troupe::limits::kChunkBytes});
}

void cut(std::vector<Region>& regions, std::uint64_t begin, std::uint64_t end, int origin) {
  const std::uint64_t chunk = chunk_bytes(end - begin);
  for (; begin < end; begin += chunk)
    regions.push_back({begin, std::min(chunk, end - begin), origin});
}

std::vector<Hop> doubling(int group, int group_count) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(group_count)));
  const int pairs = group_count - power;  // the first ones begin as pairs, and count as one each
  const auto last = static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(power)));
  if (group < 2 * pairs && group % 2 == 0)
    return {{Hop::Kind::send, group + 1, 0}, {Hop::Kind::copy, group + 1, last}};
  std::vector<Hop> hops;
  if (group < 2 * pairs) hops.push_back({Hop::Kind::add_left, group - 1, 0});
  const int place = group < 2 * pairs ? group / 2 : group - pairs;
  std::uint32_t number = 1;
  for (int distance = 1; distance < power; distance *= 2, ++number) {
    const int other = place ^ distance;
    const int peer = other < pairs ? 2 * other + 1 : other + pairs;
    hops.push_back({Hop::Kind::send, peer, number});
    hops.push_back({peer < group ? Hop::Kind::add_left : Hop::Kind::add_right, peer, number});
  }
  if (group < 2 * pairs) hops.push_back({Hop::Kind::send, group - 1, last});
  return hops;
}

/// Hop i goes from the i-th group after the origin to the next one; the first `adding` ones add.
std::vector<Hop> around(int origin, int group, int group_count, int hop_count, int adding) {
  const int place = (group - origin + group_count) % group_count;
  const int previous = (group + group_count - 1) % group_count;
  std::vector<Hop> hops;
  for (int i = 0; i < hop_count; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    if ((i + 1) % group_count == place)
      hops.push_back({i < adding ? Hop::Kind::add_left : Hop::Kind::copy, previous, number});
    if (i % group_count == place)
      hops.push_back({Hop::Kind::send, (group + 1) % group_count, number});
  }
  return hops;
}

}  // namespace

Route route_of(const Job& job, const Groups& groups) {
  const std::uint64_t size = job.data.size();
  const auto count = static_cast<std::uint64_t>(groups.count());
  Route route;
  switch (job.kind) {
    case Contribution::Kind::barrier: return route;
    case Contribution::Kind::broadcast:
      route.way = Way::chain;
      cut(route.regions, 0, size, groups.group_of(job.root));
      return route;
    case Contribution::Kind::gather: {
      const std::uint64_t part = size / static_cast<std::uint64_t>(groups.world_size());
      route.way = Way::chain;
      for (int g = 0; g < groups.count(); ++g)
        cut(route.regions, part * static_cast<std::uint64_t>(groups.first_rank(g)),
            part * static_cast<std::uint64_t>(groups.first_rank(g + 1)), g);
      return route;
    }
    case Contribution::Kind::reduce: break;
  }
  if (count == 2 || size <= limits::kDoublingBytes) {
    cut(route.regions, 0, size, 0);
    return route;
  }
  route.way = Way::ring;
  const std::uint64_t part = whole_lines((size + count - 1) / count);
  for (std::uint64_t g = 0; g < count; ++g)
    cut(route.regions, std::min(size, g * part), std::min(size, (g + 1) * part),
        static_cast<int>(g));
  return route;
}

std::vector<Hop> hops_of(Way way, int origin, int group, int group_count) {
  switch (way) {
    case Way::doubling: return doubling(group, group_count);
    case Way::ring:
      return around(origin, group, group_count, 2 * (group_count - 1), group_count - 1);
    case Way::chain: return around(origin, group, group_count, group_count - 1, 0);
  }
  return {};
}

}  // namespace troupe::sgd::internal
