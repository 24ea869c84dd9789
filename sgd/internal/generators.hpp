#pragma once

#include <cstdint>
#include <memory>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// Random numbers of this rank alone. LibTorch has one default generator a process, which ranks in
/// threads would share; while a `RankGenerator` is in use on a thread, everything there that would
/// take the default one (dropout, rand, randperm, the initialisation of modules) takes this one,
/// without a change in the user's model. specs: a boxed kernel on a spare dispatch key.
class RankGenerator {
 public:
  /// Not yet in use.
  RankGenerator(std::uint64_t seed, torch::Device device);
  ~RankGenerator();

  /// For the current thread, until the returned guard goes.
  class Use;
  std::unique_ptr<Use> use();

  void seed(std::uint64_t seed);
  torch::Tensor state() const;  ///< bytes, on the CPU
  void set_state(const torch::Tensor& state);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class RankGenerator::Use {
 public:
  explicit Use(std::shared_ptr<Impl> impl);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::shared_ptr<Impl> previous_;
};

/// One seed from several numbers: the run's, the rank's, the epoch's.
std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t rank, std::uint64_t epoch);

}  // namespace troupe::sgd::internal
