#pragma once

#include "libactor/checkpoint.hpp"

#include <map>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// LibTorch's types that we can write down and add up, and our names for them.
const std::map<torch::ScalarType, DType>& dtypes();

/// DType::none when it is none of them.
DType dtype_of(torch::ScalarType type);

}  // namespace troupe::sgd::internal
