#pragma once

#include "libactor/checkpoint.hpp"
#include "sgd/data_loader.hpp"
#include "sgd/internal/batch_source.hpp"
#include "sgd/internal/collectives.hpp"
#include "sgd/internal/epoch_plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// A rank's place in one loader: which epoch, which step of it, and the batch that comes next. All
/// ranks of a group are at the same place, also where their own data are at an end.
class DataStream {
 public:
  /// what: "training data", for sentences. collectives: null for a single rank. Throws `Exception`,
  /// on all ranks the same, when the ranks' data don't fit together.
  DataStream(std::string what, DataLoader loader, Share share, torch::Device device,
             Collectives* collectives);

  std::int64_t epoch() const { return epoch_; }  ///< that were started
  std::int64_t step() const { return step_; }    ///< that are done of this one
  std::int64_t steps() const { return steps_; }  ///< of the group, in each epoch
  bool at_end() const { return epoch_ == 0 || step_ >= steps_; }
  std::int64_t global_batch() const;  ///< samples of one step of all ranks that share it out

  void start_epoch();
  /// This rank's of a step in this epoch; 0: it has none.
  std::int64_t samples(std::int64_t step) const;
  /// Of the current step, on the device. For a rank without samples: a small batch of its data that
  /// stands in, so that every rank does the same in every step; it must count for nothing.
  Batch batch();
  /// The step is done.
  void advance() { ++step_; }
  /// The batch of the current step will be asked for again.
  void rewind() { source_.reset(); }

  void save(CheckpointWriter& out, std::string_view name) const;
  /// With another global batch, at the last whole step before the place that was saved.
  void load(const CheckpointReader& in, std::string_view name);

 private:
  void agree(Collectives* collectives);
  EpochPlan plan(std::int64_t epoch, bool shuffle) const;
  void place(std::int64_t epoch, std::int64_t step);
  Batch stand_in() const;

  std::string what_;
  DataLoader loader_;
  Share share_;
  torch::Device device_;
  std::int64_t steps_ = 0;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
  std::optional<EpochPlan> plan_ = {};      ///< of this epoch
  std::optional<BatchSource> source_ = {};  ///< at step_, once a batch was asked for
};

}  // namespace troupe::sgd::internal
