#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::sgd::internal {

/// What decides in which bucket a gradient travels.
struct Gradient {
  std::int64_t size_bytes = 0;
  int kind = 0;  ///< one a type and device; a bucket holds one kind
};

/// Buckets of indices into `gradients`, filled in `order`. A bucket is closed by the gradient that
/// brings it to its limit, so it may be larger; the first of each kind has a limit of its own, that
/// the exchange may begin early. Buckets come in the order in which they become full.
/// Source: `compute_bucket_assignment_by_size` of PyTorch's c10d.
std::vector<std::vector<std::size_t>> plan_buckets(std::span<const Gradient> gradients,
                                                   std::span<const std::size_t> order,
                                                   std::int64_t first_limit_bytes,
                                                   std::int64_t limit_bytes);

}  // namespace troupe::sgd::internal
