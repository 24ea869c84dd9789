#include "sgd/internal/bucket_plan.hpp"

#include "sgd/ddp_options.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;
using sgd::internal::Gradient;
using sgd::internal::plan_buckets;

namespace {

using Plan = std::vector<std::vector<std::size_t>>;

std::vector<std::int64_t> bytes(const std::vector<Gradient>& gradients, const Plan& plan) {
  std::vector<std::int64_t> sums;
  for (const auto& bucket : plan) {
    sums.push_back(0);
    for (const std::size_t index : bucket) sums.back() += gradients[index].size_bytes;
  }
  return sums;
}

}  // namespace

TEST_CASE("bucket plan: the limits are 1 MiB for the first bucket and 25 MiB for the others") {
  CHECK(sgd::DdpOptions{}.first_bucket_bytes == 1024 * 1024);
  CHECK(sgd::DdpOptions{}.bucket_bytes == 25 * 1024 * 1024);
}

TEST_CASE("bucket plan: a bucket is closed by the gradient that brings it to its limit") {
  std::vector<Gradient> layers;  // six of 600 x 600, bias before weight
  for (int i = 0; i < 6; ++i) {
    layers.push_back({.size_bytes = 600 * 4});
    layers.push_back({.size_bytes = 600 * 600 * 4});
  }
  const std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  CHECK(bytes(layers, plan_buckets(layers, order, 1 << 20, 3 << 20)) ==
        std::vector<std::int64_t>{1'442'400, 4'327'200, 2'884'800});
}

TEST_CASE("bucket plan: a first limit above the other one counts for nothing") {
  const std::vector<Gradient> gradients{{.size_bytes = 10}, {.size_bytes = 10}};
  CHECK(plan_buckets(gradients, std::vector<std::size_t>{0, 1}, 100, 5) == Plan{{0}, {1}});
}

TEST_CASE("bucket plan: a bucket holds one kind, and what is full first goes first") {
  const std::vector<Gradient> gradients{{.size_bytes = 4, .kind = 0},
                                        {.size_bytes = 8, .kind = 1},
                                        {.size_bytes = 4, .kind = 0},
                                        {.size_bytes = 100, .kind = 1},
                                        {.size_bytes = 4, .kind = 0}};
  CHECK(plan_buckets(gradients, std::vector<std::size_t>{0, 1, 2, 3, 4}, 16, 64) ==
        Plan{{1, 3}, {0, 2, 4}});
  CHECK(plan_buckets(gradients, std::vector<std::size_t>{4, 3, 2, 1, 0}, 8, 64) ==
        Plan{{3}, {4, 2}, {1}, {0}});
}
