#pragma once

#include "sgd/datasets.hpp"

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace troupe::sgd {

/// What a loader reads from: samples by number. Called on the loader's own thread, one call at a
/// time; what the loaders of several ranks share must bear calls from each.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// indices: [n], int64, on the CPU, n > 0.
  virtual Batch batch(const torch::Tensor& indices) = 0;
};

namespace internal {

/// A data set of torch::data, with its transforms. When these stack, `get_batch` gives one Example,
/// else one for each sample.
template <class D>
class TorchDataset final : public Dataset {
 public:
  explicit TorchDataset(D dataset) : dataset_(std::move(dataset)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(dataset_.size().value()); }

  Batch batch(const torch::Tensor& indices) override {
    const auto* first = indices.data_ptr<std::int64_t>();
    const std::vector<std::size_t> at(first, first + indices.size(0));
    auto examples = dataset_.get_batch(at);  // tidy: getter: its name in torch::data
    if constexpr (requires { examples.data; }) {
      return one(examples);
    } else {
      Batch batch{{torch::Tensor()}, {}};
      std::vector<torch::Tensor> data, target;
      for (const auto& example : examples) {
        const Batch sample = one(example);
        data.push_back(sample.features[0]);
        if (sample.target.defined()) target.push_back(sample.target);
      }
      batch.features[0] = torch::stack(data);
      if (!target.empty()) batch.target = torch::stack(target);
      return batch;
    }
  }

 private:
  static Batch one(const auto& example) {
    if constexpr (requires { example.target; })
      return {{example.data}, example.target};
    else
      return {{example.data}, {}};
  }

  D dataset_;
};

}  // namespace internal

/// Any source of samples, by value. Copies share it.
class AnyDataset {
 public:
  AnyDataset() = default;
  AnyDataset(Split split);
  /// [N, *] each. Throws `Exception` when they differ in N.
  AnyDataset(std::vector<torch::Tensor> features, torch::Tensor target);
  template <std::derived_from<Dataset> D>
  AnyDataset(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)) {}
  /// A data set of torch::data that knows its size, of Examples of tensors.
  template <class D>
  requires requires(D dataset, std::vector<std::size_t> indices) {
    dataset.get_batch(indices);  // tidy: getter: its name in torch::data
    dataset.size().value();
  }
  AnyDataset(D dataset)
      : dataset_(std::make_shared<internal::TorchDataset<D>>(std::move(dataset))) {}

  explicit operator bool() const { return dataset_ != nullptr; }
  std::int64_t size() const { return dataset_->size(); }
  Batch batch(const torch::Tensor& indices) const { return dataset_->batch(indices); }

 private:
  std::shared_ptr<Dataset> dataset_;
};

/// What becomes of the samples at an epoch's end that are too few for a whole step of the group.
enum class Tail : std::uint8_t {
  split,  ///< shared out as evenly as can be: every sample once; ranks may get one more or less
  drop,
  pad,  ///< filled up with samples from the epoch's beginning until all ranks get as many
};

struct LoaderOptions {
  std::int64_t batch_size = 0;  ///< of each rank; 0: the config's "batch_size", else 64
  bool shuffle = true;
  Tail tail = Tail::split;
  bool shard = true;          ///< false: every rank reads all of it, in the same order
  std::int64_t prefetch = 2;  ///< batches made ahead; 0: none, on the compute thread
};

/// A data set in batches, shared out over the ranks. The order of an epoch follows from seed and
/// epoch alone, and a step's samples from order and step: rank r of W gets the r-th part of the
/// W·batch_size samples of a step. So one rank with W·batch_size sees what W ranks see together.
struct DataLoader {
  AnyDataset dataset = {};
  LoaderOptions options = {};
};

}  // namespace troupe::sgd
