#pragma once

#include "libactor/context.hpp"
#include "sgd/components.hpp"
#include "sgd/data_loader.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <torch/types.h>

namespace troupe::sgd {

namespace internal {
class OperatorDriver;
}

/// Of one batch in its pass.
struct BatchInfo {
  std::int64_t batch_index = 0;  ///< in this call of train or validate, from 0
  std::int64_t global_step =
      0;                   ///< training batches before this one, since the trainer's beginning
  tune::Config info = {};  ///< what `train({.info = …})` was given
};

/// A model's training code: derive, register in `setup`, override what you need to change. One
/// object a rank; everything is called on the rank's own thread, which may block for hours.
///
/// What any member throws ends the step on all ranks at once, and `train()` returns it with the
/// rank's number.
class TrainingOperator {
 public:
  TrainingOperator();
  virtual ~TrainingOperator();
  TrainingOperator(const TrainingOperator&) = delete;
  TrainingOperator& operator=(const TrainingOperator&) = delete;

  /// Builds everything: `register_components`, then `register_data`.
  virtual void setup(const tune::Config& config) = 0;

  /// One pass over the training data, or the number of steps that was asked for. The default calls
  /// `train_batch` for each of `train_batches()` and averages its metrics, weighted by num_samples.
  /// It trains one model; with several, override it. The models are in train mode.
  virtual tune::Metrics train_epoch();
  /// The default: forward, criterion, backward, each optimizer. Returns train_loss and num_samples.
  /// Without num_samples in what it returns, each batch weighs 1.
  virtual tune::Metrics train_batch(const Batch& batch, const BatchInfo& info);
  /// The same over the validation data. The models are in eval mode, and no gradients are kept.
  virtual tune::Metrics validate();
  /// Returns val_loss, num_samples and, where the target is of class numbers, val_accuracy (of the
  /// largest output).
  virtual tune::Metrics validate_batch(const Batch& batch, const BatchInfo& info);

  /// What of your own must survive beside the registered parts. Called on every rank for the
  /// state of that rank.
  virtual void state_dict(CheckpointWriter& out) { (void)out; }
  virtual void load_state_dict(const CheckpointReader& in) { (void)in; }

  // --- for setup ---

  /// Moves models to the device and returns the components. Never wraps: keep your typed members.
  /// Throws `Exception` when something is missing or there twice, with its name.
  Components register_components(Components components);
  void register_data(DataLoader train, DataLoader validation = {});
  void register_data(const Data& data, LoaderOptions options = {});

  // --- for train_epoch and validate ---

  /// The batches of this pass, on the device, the same number on every rank. After each one the
  /// LR schedulers take the step that they are due, and all ranks get rank 0's buffers. A rank that
  /// has no sample for a step gets a batch that it has had before; it counts for nothing.
  class Batches;
  Batches train_batches();
  Batches validation_batches();
  /// Of the batch under way, for the means that the pass returns beside what `train_epoch` or
  /// `validate` returns.
  void add_metrics(const tune::Metrics& metrics);

  // --- for train_batch ---

  /// Half precision as asked for, while the guard lives.
  std::unique_ptr<internal::Autocast> autocast();
  /// loss.backward(), scaled where half precision or `accumulate` wants it. Gradients are averaged
  /// over the ranks when it returns, if this batch is one that ends in a step. (Called directly,
  /// loss.backward() averages them always.)
  void backward(const torch::Tensor& loss);
  /// One optimizer's step: unscales, clips, skips it when a gradient is not finite under loss
  /// scaling; then sets its gradients to zero. Does nothing in a batch that ends in no step.
  void step(torch::optim::Optimizer& optimizer);
  /// Until the returned guard goes, gradients pile up on this rank and are not exchanged.
  class NoSync;
  std::unique_ptr<NoSync> no_sync();

  /// Among the ranks, in place, the same bits on all. Every rank must come.
  void all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::sum);
  void broadcast(torch::Tensor tensor, int root = 0);
  torch::Tensor all_gather(const torch::Tensor& tensor);  ///< [world_size, *]
  void barrier();

  // --- access ---

  const tune::Config& config() const;
  const Context& context() const;
  AnyModel model(std::size_t index = 0) const;
  torch::optim::Optimizer& optimizer(std::size_t index = 0) const;
  AnyCriterion criterion(std::size_t index = 0) const;
  LRScheduler& scheduler(std::size_t index = 0) const;
  torch::Device device() const;
  int rank() const;        ///< world_rank
  int local_rank() const;  ///< on its machine
  int world_size() const;
  std::int64_t global_step() const;
  std::int64_t epoch() const;  ///< started passes over the training data
  bool use_gpu() const;
  bool use_fp16() const;

 private:
  friend class internal::OperatorDriver;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class TrainingOperator::Batches {
 public:
  class Iterator {
   public:
    explicit Iterator(TrainingOperator* owner) : owner_(owner) {}
    const Batch& operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return owner_ != other.owner_; }

   private:
    TrainingOperator* owner_;  ///< null: the end
  };
  explicit Batches(TrainingOperator& owner) : owner_(owner) {}
  Iterator begin();
  Iterator end() { return Iterator(nullptr); }
  const BatchInfo& info() const;  ///< of the batch that is being worked on

 private:
  TrainingOperator& owner_;
};

class TrainingOperator::NoSync {
 public:
  explicit NoSync(TrainingOperator& owner);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  TrainingOperator& owner_;
};

}  // namespace troupe::sgd
