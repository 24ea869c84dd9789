#pragma once

#include "sgd/internal/collectives.hpp"

#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

namespace torch::nn {
class Module;
}

/// What makes the models of all ranks one: the comparison at the start, and rank 0's values.
namespace troupe::sgd::internal {

/// Compares names, shapes, strides, types and order of parameters and buffers, which parameters are
/// trainable or tied, and `options`, a line of text. Throws `Exception` on all ranks with one
/// sentence that names the first difference and the ranks. PyTorch's DDP does not compare names,
/// types and order: it would mix the gradients of two layers of one shape.
void check_same_model(const std::string& model_name, const torch::nn::Module& model,
                      const std::string& options, Collectives& collectives);

/// Before them: `parts` is a line that tells which models and data the rank has. Others on another
/// rank would meet collectives that are not theirs.
void check_same_parts(const std::string& parts, Collectives& collectives);

/// Rank 0's values for all, many tensors in few collectives. Shapes and types must be the same on
/// all ranks.
void broadcast_tensors(std::span<const torch::Tensor> tensors, Collectives& collectives);

/// Buffers and parameters that the module has now. Without undefined ones (a bias left out), and
/// each tensor once, whatever its names.
std::vector<torch::Tensor> buffers_of(const torch::nn::Module& model);
struct NamedTensor {
  std::string name = {};
  torch::Tensor tensor = {};
};
std::vector<NamedTensor> parameters_of(const torch::nn::Module& model);

}  // namespace troupe::sgd::internal
