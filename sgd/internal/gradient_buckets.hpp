#pragma once

#include "sgd/ddp_options.hpp"
#include "sgd/internal/collectives.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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
class GradientBuckets {
 public:
  GradientBuckets(std::string model_name, torch::nn::Module& model, Collectives& collectives,
                  DdpOptions options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Of this rank's values in the passes that follow: the samples of its batch.
  void set_weight(double samples);
  /// False: gradients pile up here, and the next pass with `true` exchanges the whole pile. Read at
  /// the first gradient of a pass.
  void set_sync(bool sync);
  /// Takes part in the exchange of one pass without a backward of its own, with weight 0: this rank
  /// has no batch left, the others have.
  void shadow();
  /// Rank 0's buffers for all.
  void broadcast_buffers();

  /// For tests and the profile.
  struct Stats {
    std::int64_t passes = 0;       ///< exchanged
    std::int64_t exchange_ns = 0;  ///< from the first bucket's start to the last one's end
    std::int64_t waited_ns = 0;    ///< of these, with backward over: not hidden
  };
  const Stats& stats() const;
  /// Bytes of each bucket as they are now, in the order of their exchange.
  std::vector<std::int64_t> bucket_bytes() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the hooks
};

}  // namespace troupe::sgd::internal
