#pragma once

#include <cstdint>
#include <random>

#include <torch/types.h>

/// Orders of samples that are the same with every standard library and on every machine.
namespace troupe::sgd::internal {

/// Streams of one seed have nothing in common.
std::mt19937_64 seeded(std::uint64_t seed, std::uint32_t stream);

/// A number below `bound`, of which all are equally likely.
std::uint64_t below(std::mt19937_64& random, std::uint64_t bound);

/// The first `count` numbers of an order of 0 … size - 1 that `seed` and `epoch` decide. [count],
/// int64.
torch::Tensor shuffled(std::int64_t size, std::int64_t count, std::uint64_t seed,
                       std::int64_t epoch);

}  // namespace troupe::sgd::internal
