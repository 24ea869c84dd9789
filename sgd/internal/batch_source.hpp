#pragma once

#include "sgd/data_loader.hpp"
#include "sgd/internal/epoch_plan.hpp"

#include <cstdint>
#include <memory>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// The batches of an epoch from a step on, made ahead on a thread of its own.
class BatchSource {
 public:
  struct Range {
    std::int64_t epoch = 0;
    std::int64_t first_step = 0;
    std::int64_t end_step = 0;
  };

  /// prefetch: batches that wait to be taken, at most; 0: no thread, `next` makes them.
  /// Random numbers that the data set draws follow from the share's seed and rank, epoch and step.
  BatchSource(AnyDataset dataset, EpochPlan plan, Share share, Range range, std::int64_t prefetch,
              torch::Device device);
  ~BatchSource();  ///< waits for the data set's call that is under way, if there is one
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  /// The next step's, on the device; without features when this rank has no sample in it. Call it
  /// `end_step - first_step` times at most. Waits as long as the data set takes, as any call of
  /// user code may. Throws what the data set threw, then again.
  Batch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sgd::internal
