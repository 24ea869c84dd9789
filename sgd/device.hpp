#pragma once

#include "libactor/context.hpp"

#include <string>

#include <torch/types.h>

namespace troupe::sgd {

/// Where to compute: the first GPU that this process was granted, else the CPU.
torch::Device device();

/// Makes what follows repeatable: seeds LibTorch's generators from the trial's seed, and sets
/// LibTorch's threads to the granted ones (sums differ in their last bits with the number of
/// threads). Call first in `setup`. Logs `blas_warning` once a process.
void seed_everything(const Context& context);

/// A sentence when LibTorch computes with the reference BLAS, 14 to 28 times slower than OpenBLAS;
/// else empty.
std::string blas_warning();

}  // namespace troupe::sgd
