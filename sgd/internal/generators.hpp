#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

namespace troupe::sgd::internal {

/// Random numbers of this rank alone. LibTorch has one default generator a process, which ranks in
/// threads would share; while a `RankGenerator` is in use on a thread, everything there that would
/// take the CPU's default one (dropout, rand, randperm, the initialisation of modules, data
/// samplers) takes this one, without a change in the user's model. Generators that the user passes
/// are left alone. `torch::manual_seed` does not reach it: that seeds the default one.
///
/// On a GPU the rank's generator is that GPU's default one, since some kernels there take no other:
/// two ranks on one GPU draw from the same numbers.
class RankGenerator {
 public:
  /// Not yet in use.
  RankGenerator(std::uint64_t seed, torch::Device device);
  ~RankGenerator();

  /// For the current thread and the autograd threads that work for it, until the returned guard
  /// goes, on the same thread. The one in use before is then in use again.
  class Use;
  std::unique_ptr<Use> use();

  void seed(std::uint64_t seed);
  torch::Tensor state() const;  ///< bytes, on the CPU; for `set_state` on the same kind of device
  void set_state(const torch::Tensor& state);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class RankGenerator::Use {
 public:
  explicit Use(std::shared_ptr<Impl> impl);

 private:
  c10::DebugInfoGuard generator_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

/// One seed from several numbers: the run's, the rank's, the epoch's.
std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t rank, std::uint64_t epoch);

}  // namespace troupe::sgd::internal
