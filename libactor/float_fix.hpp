#pragma once

#include <caf/binary_serializer.hpp>

#include <vector>

/// Numbers that arrive bit for bit.
///
/// CAF 0.17 packs floats by arithmetic: `inf` loops for ever, NaN and subnormals change. These
/// members are replaced in `libactor/internal/caf_fixes.cpp`, by the same bytes for ordinary
/// numbers. Include this before any use of `caf::binary_serializer`, or the compiler takes CAF's
/// own.
namespace caf {

template <>
error serializer_impl<std::vector<char>>::apply_impl(float& x);
template <>
error serializer_impl<std::vector<char>>::apply_impl(double& x);

}  // namespace caf
