#pragma once

#include "libactor/checkpoint.hpp"
#include "sgd/internal/exchange.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

/// The arithmetic of collectives. The same bits whatever thread, machine or cut into slices it runs
/// on: every element is computed by itself, in rank order, in one fixed precision, without fused
/// multiply-add.
namespace troupe::sgd::internal {

std::string_view name_of(DType dtype);
std::size_t bytes_of(DType dtype);  ///< of an element; 1 for DType::none

/// Not an average of integers, a sum of booleans, the greater of two complex numbers.
bool can_reduce(DType dtype, Reduce reduce);

/// What each rank's values are multiplied by: its share of the sum of `weights`, and exactly 1/n
/// where n ranks have the same weight and the others none. All 0 when all weights are.
std::vector<double> shares(std::span<const double> weights);

/// One slice: Σ factors[r]·from[r], or the least or greatest, in rank order, written to each of
/// `to`, which may be some of `from`. A factor of 0 leaves a rank's values out, NaN and all;
/// factors are cast to the precision of the sum once. Sum: give 1 to all. float16 and bfloat16 are
/// added up in float32 and rounded once, to even. Integers wrap around. NaN is both least and
/// greatest.
void reduce_slice(DType dtype, Reduce reduce, std::span<const std::byte* const> from,
                  std::span<const double> factors, std::span<std::byte* const> to,
                  std::size_t element_count);
/// The same, where the result replaces what is in every buffer.
inline void reduce_slice(DType dtype, Reduce reduce, std::span<std::byte* const> buffers,
                         std::span<const double> factors, std::size_t element_count) {
  reduce_slice(dtype, reduce, buffers, factors, buffers, element_count);
}

}  // namespace troupe::sgd::internal
