#include "sgd/data_loader.hpp"

#include "sgd/internal/refuse.hpp"

#include <string>

#include <torch/torch.h>

namespace troupe::sgd {
namespace {

class SplitDataset final : public Dataset {
 public:
  explicit SplitDataset(Split split) : split_(std::move(split)) {}
  std::int64_t size() const override { return split_.size(); }
  Batch batch(const torch::Tensor& indices) override { return split_.batch(indices); }

 private:
  Split split_;
};

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(Batch all) : all_(std::move(all)) {}
  std::int64_t size() const override { return all_.target.size(0); }
  Batch batch(const torch::Tensor& indices) override {
    Batch some{{}, all_.target.index_select(0, indices)};
    for (const auto& feature : all_.features)
      some.features.push_back(feature.index_select(0, indices));
    return some;
  }

 private:
  Batch all_;
};

/// Throws unless the first dimension counts `size` samples.
void check_size(const std::string& name, const torch::Tensor& tensor, std::int64_t size) {
  const std::int64_t found = tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
  if (found != size)
    internal::refuse("data set: " + std::to_string(found) + " samples in " + name + ", " +
                     std::to_string(size) + " in the target");
}

}  // namespace

AnyDataset::AnyDataset(Split split) {
  if (!split.labels.defined() || split.labels.dim() != 1)
    internal::refuse("data set: the labels are no tensor of one dimension");
  check_size("the images", split.images, split.size());
  dataset_ = std::make_shared<SplitDataset>(std::move(split));
}

AnyDataset::AnyDataset(std::vector<torch::Tensor> features, torch::Tensor target) {
  if (!target.defined() || target.dim() == 0)
    internal::refuse("data set: the target is no tensor of at least one dimension");
  if (features.empty()) internal::refuse("data set: there is no feature");
  for (std::size_t i = 0; i < features.size(); ++i)
    check_size("feature " + std::to_string(i), features[i], target.size(0));
  dataset_ = std::make_shared<TensorDataset>(Batch{std::move(features), std::move(target)});
}

}  // namespace troupe::sgd
