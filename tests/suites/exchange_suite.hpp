#pragma once

#include "sgd/internal/exchange_group.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

/// What every way between ranks must do (`Mail`), with a thread for each rank.
namespace troupe::sgd::internal::test {

using MakeGroup = std::function<std::unique_ptr<ExchangeGroup>(int world_size)>;

/// The ranks of that many, in groups.
using Layout = std::function<std::vector<int>(int world_size)>;
/// One that has a group of several ranks, and three groups where there are four ranks or more.
std::vector<int> two_or_three_groups(int world_size);

/// Call in a test case: each of its sentences is a subcase.
void exchange_suite(const MakeGroup& make, const Layout& layout = {});

/// One collective of all ranks, and what must come out.
struct Example {
  Contribution contribution = {};                   ///< without data and weight
  std::vector<double> weights = {};                 ///< by rank
  std::vector<int> rank_counts = {};                ///< of groups
  std::vector<std::vector<std::byte>> before = {};  ///< by rank
  std::vector<std::vector<std::byte>> after = {};
};

/// Random kind, type, values and weights; `after` is made element by element, in the plainest way.
/// rank_counts: of the groups, if there are several; at most three.
Example random_example(int world_size, std::size_t element_count, std::mt19937_64& random,
                       std::vector<int> rank_counts = {});

/// Does it on one rank, in new memory. Error: that of `wait`, or corrupt when other bits came out.
Result<void> run_example(Exchange& exchange, std::uint32_t channel, const Example& example);

/// float16 and bfloat16 in the plainest way: the nearest of all values, the even one of two.
std::uint16_t round_to_half(DType dtype, float value);
float half_to_float(DType dtype, std::uint16_t bits);

}  // namespace troupe::sgd::internal::test
