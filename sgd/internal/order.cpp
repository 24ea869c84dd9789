#include "sgd/internal/order.hpp"

#include <numeric>
#include <span>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd::internal {

std::mt19937_64 seeded(std::uint64_t seed, std::uint32_t stream) {
  std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      stream};
  return std::mt19937_64(mixed);
}

std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random()) * bound) >> 64);
}

torch::Tensor shuffled(std::int64_t size, std::int64_t count, std::uint64_t seed,
                       std::int64_t epoch) {
  torch::Tensor all = torch::empty(size, torch::kInt64);
  const std::span order(all.data_ptr<std::int64_t>(), static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random = seeded(seed, static_cast<std::uint32_t>(epoch));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    std::swap(order[i], order[i + below(random, order.size() - i)]);
  return all.narrow(0, 0, count);
}

}  // namespace troupe::sgd::internal
