#pragma once

#include "sgd/datasets.hpp"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/data/example.h>
#include <torch/types.h>

namespace troupe::sgd {

/// What a loader reads from: samples by number. Called on a thread of the loader's own, one call at
/// a time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// indices: [N], int64, on the CPU.
  virtual Batch batch(const torch::Tensor& indices) = 0;
};

namespace internal {

/// A dataset of torch::data: `get(index)` gives an Example, `size()` an optional.
template <class D>
class TorchDataset final : public Dataset {
 public:
  explicit TorchDataset(D dataset) : dataset_(std::move(dataset)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(*dataset_.size()); }
  Batch batch(const torch::Tensor& indices) override {
    std::vector<torch::Tensor> data, target;
    const auto at = indices.accessor<std::int64_t, 1>();
    for (std::int64_t i = 0; i < at.size(0); ++i) {
      auto example = dataset_.get(static_cast<std::size_t>(at[i]));
      data.push_back(std::move(example.data));
      target.push_back(std::move(example.target));
    }
    return {{torch::stack(data)}, torch::stack(target)};
  }

 private:
  D dataset_;
};

}  // namespace internal

/// Any source of samples, by value. Copies share it.
class AnyDataset {
 public:
  AnyDataset() = default;
  AnyDataset(const Split& split);                                         ///< bytes become [0, 1]
  AnyDataset(std::vector<torch::Tensor> features, torch::Tensor target);  ///< [N, *] each
  AnyDataset(std::shared_ptr<Dataset> dataset) : dataset_(std::move(dataset)) {}
  template <class D>
  requires requires(D d) {
    { d.get(std::size_t{}) } -> std::convertible_to<torch::data::Example<>>;
    d.size();
  }
  AnyDataset(D dataset)
      : dataset_(std::make_shared<internal::TorchDataset<D>>(std::move(dataset))) {}

  explicit operator bool() const { return dataset_ != nullptr; }
  std::int64_t size() const { return dataset_->size(); }
  Batch batch(const torch::Tensor& indices) const { return dataset_->batch(indices); }

 private:
  std::shared_ptr<Dataset> dataset_;
};

/// What happens to the samples at an epoch's end that fill no whole batch on every rank.
enum class Tail : std::uint8_t {
  split,  ///< shared out as evenly as can be: every sample once, batches differ
  drop,
  pad,  ///< filled up with samples from the epoch's beginning, as PyTorch's DistributedSampler does
};

struct LoaderOptions {
  std::int64_t batch_size = 0;  ///< of each rank; 0: the config's "batch_size", else 64
  bool shuffle = true;
  Tail tail = Tail::split;
  bool shard = true;          ///< false: every rank reads all of it
  std::int64_t prefetch = 2;  ///< batches made ahead; 0: none, on the compute thread
};

/// A data set in batches, shared out over the ranks. The order of an epoch follows from seed and
/// epoch alone, and a step's samples from order and step: rank r of W gets the r-th part of the
/// W·batch_size samples of a step. So one rank with W·batch_size sees what W ranks see together.
struct DataLoader {
  AnyDataset dataset = {};
  LoaderOptions options = {};
};

namespace internal {

/// Where in the data a rank is, and who it is among how many.
struct Share {
  int rank = 0;
  int world_size = 1;
  std::int64_t global_batch = 0;  ///< samples of one step of the whole group
  std::uint64_t seed = 0;
};

/// The steps of one epoch and what of them is one rank's: arithmetic only.
class EpochPlan {
 public:
  EpochPlan(std::int64_t dataset_size, const LoaderOptions& options, Share share,
            std::int64_t epoch);
  /// Steps that this rank has: with `shard`, the same on all ranks.
  std::int64_t steps() const { return steps_; }
  /// [n], int64; may be empty in the last step.
  torch::Tensor indices(std::int64_t step) const;

 private:
  Share share_;
  std::int64_t batch_ = 0;
  std::int64_t steps_ = 0;
  bool shard_ = true;
  Tail tail_ = Tail::split;
  torch::Tensor order_;
};

/// The batches of an epoch from a step on, made ahead on a thread of its own whose random numbers
/// follow from seed, rank, epoch and step. What a data set throws comes out of `next`.
class BatchSource {
 public:
  BatchSource(AnyDataset dataset, EpochPlan plan, const LoaderOptions& options, Share share,
              std::int64_t epoch, std::int64_t first_step, std::int64_t end_step,
              torch::Device device);
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  /// The next step's, on the device; a batch without features when this rank has no sample in it.
  /// Call `end_step - first_step` times at most.
  Batch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace internal
}  // namespace troupe::sgd
