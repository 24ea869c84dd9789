#pragma once

#include "sgd/ddp_options.hpp"
#include "sgd/internal/collectives.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace troupe::sgd::internal {

/// Averages the gradients of one model over all ranks while its backward pass runs: hooks on the
/// parameters fill flat buckets, a full bucket starts its exchange, and the end of the backward
/// pass waits for all of them, so that user code after `backward()` sees the averages in `.grad`.
///
/// One object a model and rank, on the rank's compute thread. With one rank it does nothing at all.
/// Construction compares the models of all ranks (names, shapes, types, order), then gives every
/// rank the parameters and buffers of rank 0. Errors (`Exception`, the same sentence on all ranks)
/// name the parameter and the ranks. After it is destroyed no hook is left.
///
/// Between two exchanges all passes count together: a parameter is used when any of them gave it a
/// gradient. One that no rank has used keeps its old gradient, and has none (undefined) when that
/// is zero, so that optimizers leave it alone, although `zero_grad` in C++ never undefines.
/// Parameters may be frozen meanwhile, on all ranks alike; trainable ones may not be added.
///
/// Refused (`Exception` out of `backward()`): sparse gradients, `backward(create_graph = true)`, a
/// backward pass within another one that both reach the model. Gradient penalties by
/// `torch::autograd::grad` work.
class GradientBuckets {
 public:
  GradientBuckets(std::string model_name, torch::nn::Module& model, Collectives& collectives,
                  DdpOptions options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Of this rank's values in the passes that follow: the samples of its batch. 0: they count for
  /// nothing; `by_rank`, to which all others are alike, takes zeros for them.
  void set_weight(double samples);
  /// False: gradients pile up here, and the next pass with `true` exchanges the whole pile. Read at
  /// the first gradient of a pass.
  void set_sync(bool sync);
  /// Takes part in the exchange of one pass without a backward of its own: this rank has no batch
  /// left, the others have. What has piled up here keeps its weight, nothing has weight 0;
  /// `by_rank` it is zeros of full weight, as in PyTorch's DDP.
  void shadow();
  /// Rank 0's buffers for all.
  void broadcast_buffers();

  /// For tests and the profile.
  struct Stats {
    std::int64_t passes = 0;       ///< exchanged
    std::int64_t exchange_ns = 0;  ///< from the first bucket's start until the last one is there
    std::int64_t waited_ns = 0;    ///< of these, with backward over: not hidden
  };
  const Stats& stats() const;
  /// Bytes of the gradients of each bucket as they are now, in the order of their exchange. They
  /// are made in reverse order of registration, and anew when the second pass begins, in the order
  /// in which rank 0's gradients came in the first; not so with find_unused_parameters.
  std::vector<std::int64_t> bucket_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // nullptr with one rank
};

}  // namespace troupe::sgd::internal
