#pragma once

#include "sgd/data_loader.hpp"

#include <cstdint>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// Who a rank is among how many.
struct Share {
  int rank = 0;
  int world_size = 1;
  std::int64_t global_batch = 0;  ///< samples of one step of the whole group; 0: world_size times
                                  ///< the loader's batch_size
  std::uint64_t seed = 0;
};

/// Throws `Exception` for options that make no sense, with option and value.
void check(const LoaderOptions& options);

/// The steps of one epoch and what of them is one rank's: arithmetic only.
///
/// Step s of the group takes the samples [s·G, s·G + G) of the epoch's order, where G is the global
/// batch, and rank r of W the part [n·r/W, n·(r+1)/W) of these n. In the last step n may be less
/// than G.
class EpochPlan {
 public:
  EpochPlan(std::int64_t dataset_size, const LoaderOptions& options, Share share,
            std::int64_t epoch);

  /// The same on all ranks.
  std::int64_t steps() const { return (padded_ + step_ - 1) / step_; }
  /// [n], int64; with Tail::split it may be empty in the last step.
  torch::Tensor indices(std::int64_t step) const;

 private:
  std::int64_t part_;   ///< this rank's of `parts_`
  std::int64_t parts_;  ///< of a step
  std::int64_t step_;   ///< samples of a step, in all parts together
  torch::Tensor order_;
  std::int64_t padded_;  ///< samples of the epoch; from the order's end on, its beginning again
};

}  // namespace troupe::sgd::internal
