#include "sgd/internal/leader_exchange.hpp"

#include "libactor/assert.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace troupe::sgd::internal {
namespace {

Error broken(int from_group, const std::string& why) {
  return make_error(Errc::corrupt, "a chunk from group " + std::to_string(from_group) +
                                       " to the exchange can't be: " + why);
}

/// `here` becomes what the hop makes of it and of what has come.
void apply(const Job& job, Hop::Kind kind, std::span<std::byte> here, const Blob& came) {
  const std::byte* other = came.bytes().data();
  if (kind == Hop::Kind::copy) {
    std::memcpy(here.data(), other, here.size());
    return;
  }
  std::array<const std::byte*, 2> from{here.data(), other};
  if (kind == Hop::Kind::add_left) std::swap(from[0], from[1]);
  const std::array<std::byte*, 1> to{here.data()};
  constexpr std::array<double, 2> kFactors{1, 1};
  // the shares are in already
  const Reduce reduce = job.reduce == Reduce::average ? Reduce::sum : job.reduce;
  reduce_slice(job.dtype, reduce, from, kFactors, to, here.size() / bytes_of(job.dtype));
}

}  // namespace

LeaderExchange::LeaderExchange(Groups groups, Out& out) : groups_(std::move(groups)), out_(out) {
  TROUPE_ASSERT(groups_.count() >= 2, groups_.count());
  peers_.resize(static_cast<std::size_t>(groups_.count()));
}

const std::vector<Hop>& LeaderExchange::hops(const Active& active, std::uint32_t region) {
  return active.hops[static_cast<std::size_t>(active.route.regions[region].origin)];
}

Result<void> LeaderExchange::begin(const Job& job) {
  const Id id = id_of(job.ticket);
  const auto [place, is_new] = active_.emplace(id, Active{.job = job});
  TROUPE_ASSERT(is_new && !job.data.empty(), id.first, id.second);
  Active& active = place->second;
  active.route = route_of(job, groups_);
  for (int origin = 0; origin < groups_.count(); ++origin)
    active.hops.push_back(hops_of(active.route.way, origin, groups_.group, groups_.count()));
  const std::size_t count = active.route.regions.size();
  active.next.resize(count);
  active.is_ready.resize(count);
  active.regions_left = count;
  for (int group = 0; group < groups_.count(); ++group) {
    auto& early = peers_[static_cast<std::size_t>(group)].early;
    const auto mine = std::stable_partition(
        early.begin(), early.end(), [&](const Chunk& chunk) { return id_of(chunk.ticket) != id; });
    for (auto chunk = mine; chunk != early.end(); ++chunk)
      if (auto kept = keep(active, group, std::move(*chunk)); !kept) return kept;
    early.erase(mine, early.end());
  }
  for (std::uint32_t region = 0; region < count; ++region) advance(id, region);
  return {};
}

Result<void> LeaderExchange::take(int from_group, Chunk chunk) {
  if (from_group < 0 || from_group >= groups_.count() || from_group == groups_.group)
    return broken(from_group, "there is no such group");
  const Id id = id_of(chunk.ticket);
  const auto found = active_.find(id);
  if (found == active_.end()) {
    auto& early = peers_[static_cast<std::size_t>(from_group)].early;
    if (early.size() >= limits::kWindow)
      return broken(from_group, "more come than are acknowledged");
    early.push_back(std::move(chunk));
    return {};
  }
  const std::uint32_t region = chunk.region;
  if (auto kept = keep(found->second, from_group, std::move(chunk)); !kept) return kept;
  advance(id, region);
  return {};
}

Result<void> LeaderExchange::keep(Active& active, int from_group, Chunk chunk) {
  if (chunk.region >= active.route.regions.size())
    return broken(from_group, "its collective has no region " + std::to_string(chunk.region));
  const auto& way = hops(active, chunk.region);
  const auto hop = std::find_if(way.begin(), way.end(), [&](const Hop& one) {
    return one.number == chunk.hop && one.kind != Hop::Kind::send && one.peer == from_group;
  });
  const auto index = static_cast<std::size_t>(hop - way.begin());
  if (hop == way.end() || index < active.next[chunk.region])
    return broken(from_group, "nobody waits for it");
  const std::uint64_t size = active.route.regions[chunk.region].size_bytes;
  if (chunk.bytes.size() != size)
    return broken(from_group, "it has " + std::to_string(chunk.bytes.size()) +
                                  " bytes instead of " + std::to_string(size));
  if (!active.arrived.emplace(Key(chunk.region, chunk.hop), std::move(chunk.bytes)).second)
    return broken(from_group, "it came before");
  out_.acknowledge(from_group);
  return {};
}

Result<void> LeaderExchange::acknowledged(int from_group) {
  if (from_group < 0 || from_group >= groups_.count() ||
      peers_[static_cast<std::size_t>(from_group)].in_flight == 0)
    return make_error(Errc::corrupt, "group " + std::to_string(from_group) +
                                         " acknowledges a chunk that it was not sent");
  --peers_[static_cast<std::size_t>(from_group)].in_flight;
  flush(from_group);
  return {};
}

/// Goes on with a region until something must come or be sent first. The collective may be over
/// after this.
void LeaderExchange::advance(Id id, std::uint32_t region) {
  Active& active = active_.at(id);
  const auto& way = hops(active, region);
  const Region& where = active.route.regions[region];
  if (active.is_ready[region]) return;
  std::size_t& next = active.next[region];
  for (; next < way.size(); ++next) {
    const Hop& hop = way[next];
    if (hop.kind == Hop::Kind::send) {
      peers_[static_cast<std::size_t>(hop.peer)].ready.push_back({id, region});
      active.is_ready[region] = true;
      return flush(hop.peer);  // which comes back here
    }
    const auto came = active.arrived.find({region, hop.number});
    if (came == active.arrived.end()) return;
    apply(active.job, hop.kind, active.job.data.subspan(where.begin, where.size_bytes),
          came->second);
    active.arrived.erase(came);
  }
  if (--active.regions_left > 0) return;
  active_.erase(id);
  out_.joined({id.first, id.second});
}

void LeaderExchange::flush(int to_group) {
  Peer& peer = peers_[static_cast<std::size_t>(to_group)];
  while (peer.in_flight < limits::kWindow && !peer.ready.empty()) {
    const Ready ready = peer.ready.front();
    peer.ready.pop_front();
    Active& active = active_.at(ready.id);
    const Region& where = active.route.regions[ready.region];
    std::size_t& next = active.next[ready.region];
    out_.send(to_group,
              {.ticket = active.job.ticket,
               .region = ready.region,
               .hop = hops(active, ready.region)[next].number,
               .bytes = Blob::copy_of(active.job.data.subspan(where.begin, where.size_bytes))});
    ++peer.in_flight;
    active.is_ready[ready.region] = false;
    ++next;
    advance(ready.id, ready.region);
  }
}

}  // namespace troupe::sgd::internal
