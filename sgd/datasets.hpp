#pragma once

#include "libactor/result.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

#include <torch/types.h>

namespace troupe::sgd {

/// What one step of training or testing takes.
struct Batch {
  std::vector<torch::Tensor> features = {};  ///< [N, *] each; images are float32 in [0, 1]
  torch::Tensor target = {};                 ///< [N, *]; classes are int64
};

struct EpochOptions {
  std::int64_t batch_size = 64;
  std::int64_t sample_count = 0;  ///< the first so many of the order; 0: all
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< with the epoch's number it decides the order, on every machine
};

class Epoch;

/// Images as they lie in the files, a byte a pixel, so that all trials of a machine share 55 MB;
/// batches become floats when they are made.
struct Split {
  torch::Tensor images = {};  ///< [N, C, H, W], uint8
  torch::Tensor labels = {};  ///< [N], int64

  std::int64_t size() const { return labels.size(0); }
  /// indices: [n], int64.
  Batch batch(const torch::Tensor& indices) const;
  /// index: of the epoch; another one gives another order.
  Epoch epoch(std::int64_t index, EpochOptions options = {}) const;
};

/// The batches of one epoch, each made when it is asked for: `for (const auto& batch : epoch)`.
class Epoch {
 public:
  Epoch(Split split, std::int64_t index, EpochOptions options);

  class Iterator {
   public:
    Iterator(const Epoch* epoch, std::int64_t batch) : epoch_(epoch), batch_(batch) {}
    Batch operator*() const { return epoch_->batch(batch_); }
    Iterator& operator++() { return ++batch_, *this; }
    bool operator!=(const Iterator& other) const { return batch_ != other.batch_; }

   private:
    const Epoch* epoch_;
    std::int64_t batch_;
  };

  std::int64_t size() const;  ///< number of batches; the last may be smaller
  Batch batch(std::int64_t index) const;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  Split split_;
  torch::Tensor order_;  ///< [samples], int64
  std::int64_t batch_size_;
};

struct Data {
  Split train = {};
  Split test = {};
};

/// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST or MNIST: the four gzipped IDX files in `folder`, as they are published.
///
/// Starts no thread, so it can be called before workers are forked. Errors: not_found, with what to
/// install; corrupt, with the file.
Result<Data> read_mnist(const std::filesystem::path& folder = kFashionMnistFolder);

/// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin in `folder`,
/// as cifar-10-binary.tar.gz holds them. Images are [N, 3, 32, 32].
///
/// Starts no thread. Errors: not_found and corrupt, with the file.
Result<Data> read_cifar10(const std::filesystem::path& folder);

struct SyntheticOptions {
  std::int64_t train_count = 2000;
  std::int64_t test_count = 500;
  std::int64_t class_count = 10;
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t noise = 96;  ///< added to each pixel: any of -noise … noise
  std::uint64_t seed = 0;
};

/// Images that can be learned and need no files: each class has a random picture, and an image is
/// its class's picture with noise. The classes take turns. The same bytes on every machine.
///
/// Starts no thread. Errors: bad_request, with the option.
Result<Data> synthetic(SyntheticOptions options = {});

}  // namespace troupe::sgd
