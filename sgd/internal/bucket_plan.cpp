#include "sgd/internal/bucket_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::sgd::internal {

std::vector<std::vector<std::size_t>> plan_buckets(std::span<const Gradient> gradients,
                                                   std::span<const std::size_t> order,
                                                   std::int64_t first_limit_bytes,
                                                   std::int64_t limit_bytes) {
  struct Bucket {
    std::vector<std::size_t> members = {};
    std::int64_t size_bytes = 0;
    std::size_t full_at = 0;  // the place in `order` of its last member
  };
  struct Kind {
    Bucket open = {};
    std::int64_t limit_bytes = 0;
  };
  std::map<int, Kind> kinds;
  std::vector<Bucket> closed;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const Gradient& gradient = gradients[order[place]];
    const std::int64_t first = std::min(first_limit_bytes, limit_bytes);
    auto& kind = kinds.try_emplace(gradient.kind, Kind{.limit_bytes = first}).first->second;
    kind.open.members.push_back(order[place]);
    kind.open.size_bytes += gradient.size_bytes;
    kind.open.full_at = place;
    if (kind.open.size_bytes < kind.limit_bytes) continue;
    closed.push_back(std::exchange(kind.open, {}));
    kind.limit_bytes = limit_bytes;
  }
  for (auto& [id, kind] : kinds)
    if (!kind.open.members.empty()) closed.push_back(std::move(kind.open));
  std::ranges::sort(closed, {}, &Bucket::full_at);
  std::vector<std::vector<std::size_t>> buckets;
  for (auto& bucket : closed) buckets.push_back(std::move(bucket.members));
  return buckets;
}

}  // namespace troupe::sgd::internal
