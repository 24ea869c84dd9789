#include "sgd/components.hpp"

#include "sgd/internal/refuse.hpp"

#include <string>
#include <string_view>

#include <torch/torch.h>

namespace troupe::sgd {
namespace internal {

std::string type_name(const std::type_info& type) {
  std::string name = c10::demangle(type.name());
  constexpr std::string_view kImpl = "Impl";
  if (name.ends_with(kImpl)) name.resize(name.size() - kImpl.size());
  return name;
}

}  // namespace internal

AnyModel::AnyModel(const torch::nn::Sequential& sequential)
    : module_(sequential.ptr()), type_("torch::nn::Sequential"), arity_(1) {
  forward_ = [raw = sequential.ptr().get()](const internal::Tensors& inputs) {
    return raw->forward(inputs.front());
  };
}

torch::Tensor AnyModel::operator()(const internal::Tensors& features) const {
  const auto tensors = [](std::size_t count) {
    return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
  };
  if (!forward_)
    internal::refuse(type_ +
                     "::forward can't be called by the default loops, which want 1 to 6 "
                     "torch::Tensor in and one out: override train_batch and validate_batch");
  if (features.size() != arity_)
    internal::refuse(type_ + "::forward takes " + tensors(arity_) + ", the loader gives " +
                     std::to_string(features.size()));
  return forward_(features);
}

}  // namespace troupe::sgd
