#include "sgd/internal/epoch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <torch/torch.h>

using namespace troupe;
using namespace troupe::sgd;
using troupe::sgd::internal::EpochPlan;
using troupe::sgd::internal::Share;

namespace {

using Samples = std::vector<std::int64_t>;

Samples to_vector(const torch::Tensor& indices) {
  const auto* first = indices.data_ptr<std::int64_t>();
  return {first, first + indices.size(0)};
}

/// [step][rank]
std::vector<std::vector<Samples>> dealt(std::int64_t size, LoaderOptions options, int world_size,
                                        std::int64_t epoch = 0, Share share = {}) {
  std::vector<std::vector<Samples>> steps;
  share.world_size = world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    share.rank = rank;
    const EpochPlan plan(size, options, share, epoch);
    if (rank == 0) steps.resize(static_cast<std::size_t>(plan.steps()));
    CHECK(plan.steps() == std::ssize(steps));
    for (std::int64_t step = 0; step < plan.steps(); ++step)
      steps[static_cast<std::size_t>(step)].push_back(to_vector(plan.indices(step)));
  }
  return steps;
}

/// In the order of steps and ranks.
Samples flat(const std::vector<std::vector<Samples>>& steps) {
  Samples all;
  for (const auto& step : steps)
    for (const auto& part : step) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Samples numbers(std::int64_t count) {
  Samples all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

}  // namespace

TEST_CASE("epoch_plan: each rank takes its part of every step, and the tail is shared out") {
  const auto steps = dealt(10, {.batch_size = 2, .shuffle = false}, 3);
  CHECK(steps == std::vector<std::vector<Samples>>{{{0, 1}, {2, 3}, {4, 5}}, {{6}, {7}, {8, 9}}});
}

TEST_CASE("epoch_plan: a dropped tail is seen by nobody, a padded one begins again") {
  CHECK(dealt(10, {.batch_size = 2, .shuffle = false, .tail = Tail::drop}, 3) ==
        std::vector<std::vector<Samples>>{{{0, 1}, {2, 3}, {4, 5}}});
  CHECK(dealt(10, {.batch_size = 2, .shuffle = false, .tail = Tail::pad}, 3) ==
        std::vector<std::vector<Samples>>{{{0, 1}, {2, 3}, {4, 5}}, {{6, 7}, {8, 9}, {0, 1}}});
}

TEST_CASE("epoch_plan: several ranks see together what one with the whole batch sees") {
  for (const std::int64_t size : {1, 5, 24, 100, 101}) {
    const auto one = dealt(size, {.batch_size = 12}, 1, 3, {.seed = 5});
    for (const int world_size : {2, 3, 4, 6}) {
      const auto several = dealt(size, {.batch_size = 12 / world_size}, world_size, 3, {.seed = 5});
      REQUIRE(several.size() == one.size());
      for (std::size_t step = 0; step < one.size(); ++step)
        CHECK(flat({several[step]}) == one[step][0]);
    }
  }
}

TEST_CASE("epoch_plan: every sample comes once an epoch, whatever the sizes") {
  for (const std::int64_t size : {0, 1, 2, 5, 7, 64, 65})
    for (const int world_size : {1, 2, 3, 4, 7})
      for (const std::int64_t batch_size : {1, 2, 3, 100}) {
        CAPTURE(size);
        CAPTURE(world_size);
        CAPTURE(batch_size);
        const auto steps = dealt(size, {.batch_size = batch_size}, world_size);
        CHECK(sorted(flat(steps)) == numbers(size));
        for (const auto& step : steps) {
          const auto [least, most] =
              std::minmax_element(step.begin(), step.end(),
                                  [](const auto& a, const auto& b) { return a.size() < b.size(); });
          CHECK(most->size() - least->size() <= 1);
        }
      }
}

TEST_CASE("epoch_plan: an epoch has its own order, and the same one when it is begun again") {
  const auto order = [](std::int64_t epoch, std::uint64_t seed) {
    return flat(dealt(50, {.batch_size = 4}, 2, epoch, {.seed = seed}));
  };
  CHECK(order(0, 1) != order(1, 1));
  CHECK(order(1, 1) != order(2, 1));
  CHECK(order(1, 1) == order(1, 1));
  CHECK(order(1, 1) != order(1, 2));
  CHECK(order(1, 1) != numbers(50));
}

TEST_CASE("epoch_plan: a data set smaller than the group still gives every sample once") {
  const LoaderOptions split{.batch_size = 8, .shuffle = false};
  CHECK(dealt(2, split, 4) == std::vector<std::vector<Samples>>{{{}, {0}, {}, {1}}});
  CHECK(dealt(2, {.batch_size = 8, .shuffle = false, .tail = Tail::pad}, 4) ==
        std::vector<std::vector<Samples>>{{{0}, {1}, {0}, {1}}});
  CHECK(dealt(2, {.batch_size = 8, .tail = Tail::drop}, 4).empty());
}

TEST_CASE("epoch_plan: an empty data set has no steps") {
  for (const auto tail : {Tail::split, Tail::drop, Tail::pad})
    CHECK(dealt(0, {.batch_size = 8, .tail = tail}, 2).empty());
}

TEST_CASE("epoch_plan: unsharded, every rank reads all of it in the same order") {
  const auto steps = dealt(5, {.batch_size = 2, .shard = false}, 3);
  CHECK(steps.size() == 3);
  for (const auto& step : steps) {
    CHECK(step[0] == step[1]);
    CHECK(step[1] == step[2]);
  }
  CHECK(dealt(5, {.batch_size = 2, .shard = false}, 1, 0, {.global_batch = 4}).size() == 3);
}

TEST_CASE("epoch_plan: a global batch that the ranks can't share evenly stays whole") {
  for (const auto tail : {Tail::split, Tail::pad}) {
    const auto steps =
        dealt(14, {.batch_size = 4, .shuffle = false, .tail = tail}, 3, 0, {.global_batch = 5});
    CHECK(steps.size() == 3);
    CHECK(steps[0] == std::vector<Samples>{{0}, {1, 2}, {3, 4}});
  }
  const LoaderOptions padded{.batch_size = 4, .shuffle = false, .tail = Tail::pad};
  CHECK(flat(dealt(14, padded, 3, 0, {.global_batch = 5})).size() == 15);
}

TEST_CASE("epoch_plan: sizes that make no sense are refused with the value") {
  const auto plan = [](LoaderOptions options, Share share = {}) {
    EpochPlan(10, options, share, 0);
  };
  CHECK_THROWS_WITH_AS(plan({.batch_size = 0}),
                       "bad request: batch_size is 0; 1 to 1073741824 are possible", Exception);
  CHECK_THROWS_AS(plan({.batch_size = -1}), Exception);
  CHECK_THROWS_AS(plan({.batch_size = std::int64_t{1} << 60}), Exception);
  CHECK_THROWS_WITH_AS(plan({.batch_size = 1, .prefetch = -1}),
                       "bad request: prefetch is -1; 0 to 1024 are possible", Exception);
  CHECK_THROWS_WITH_AS(plan({.batch_size = 1}, {.global_batch = -3}),
                       "bad request: the global batch size is -3; 1 to 1073741824 are possible",
                       Exception);
}
