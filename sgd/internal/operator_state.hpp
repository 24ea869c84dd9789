#pragma once

#include "sgd/internal/collectives.hpp"
#include "sgd/internal/generators.hpp"
#include "sgd/internal/meters.hpp"
#include "sgd/training_operator.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe::sgd::internal {

/// Who an operator is and what it has, given to it before `setup`. All of it outlives the operator.
struct RankEnvironment {
  const Context* context = nullptr;
  tune::Config config = {};
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  torch::Device device = torch::kCPU;
  bool use_fp16 = false;
  std::uint64_t seed = 0;         ///< of the trainer: the same on all ranks
  std::int64_t global_batch = 0;  ///< samples of a step of the whole group; 0: world_size times the
                                  ///< loader's batch_size
  bool shard_data = true;
  SchedulerStep scheduler_step =
      SchedulerStep::unset;  ///< the trainer's, where Components say none
  Collectives* collectives = nullptr;
  RankGenerator* generator = nullptr;
  /// Called with what the rank does now ("forward", "backward", "exchange", "optimizer", "data",
  /// "validation") and its batch in this call.
  std::function<void(std::string_view doing, std::int64_t batch, std::int64_t batch_count)> doing =
      {};
  /// Between two optimizer steps of the default `train_epoch`, with everything in place for a
  /// snapshot. May throw: the group has failed, or is told to end.
  std::function<void()> step_done = {};
};

/// What `train` and `validate` were asked.
struct PassOptions {
  std::int64_t num_steps = 0;  ///< 0: to the end of the epoch; more than are left: on into the next
  bool profile = false;
  tune::Config info = {};
};

/// What a rank does with its operator: everything that user code must not.
class OperatorDriver {
 public:
  /// Attaches, calls `setup` with the generator seeded alike on all ranks, compares the ranks'
  /// models and data, and gives all rank 0's parameters and buffers. Throws what `setup` throws.
  OperatorDriver(TrainingOperator& op, RankEnvironment environment);
  ~OperatorDriver();

  /// This rank's metrics, with num_samples (the weight for the merge), batch_count and epoch among
  /// them. A pass that was interrupted by a restored snapshot goes on where that stood.
  tune::Metrics train(const PassOptions& options);
  tune::Metrics validate(const PassOptions& options);
  void update_scheduler(double metric);

  /// What is the same on all ranks: models, optimizers, LR schedulers, scaler, place in the data,
  /// counters.
  void save_shared(CheckpointWriter& out);
  void load_shared(const CheckpointReader& in);
  /// What is one rank's: buffers of its models, generator, meters of the pass under way, the user's
  /// state_dict. `out` and `in` are that rank's part of the file.
  void save_own(CheckpointWriter& out);
  void load_own(const CheckpointReader& in);
  /// The same for a rank that has no part of its own: buffers and the user's state of another's.
  void load_like(const CheckpointReader& other);

  /// Whether the pass under way can go on from a snapshot: it is one of the default `train_epoch`.
  bool can_stop_between_steps() const;
  bool has_validation_data() const;
  /// Training samples of a step of the whole group, for a group that must keep it at another size;
  /// 0: no training data.
  std::int64_t global_batch() const;

 private:
  TrainingOperator& op_;
};

}  // namespace troupe::sgd::internal
