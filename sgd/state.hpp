#pragma once

#include "libactor/checkpoint.hpp"

#include <string_view>

#include <torch/types.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

/// Models and optimizers in checkpoints, bit for bit, under a name of the user's choice.
///
/// All of these throw `Exception` with a sentence that names the tensor: they are called from
/// `save_checkpoint` and `load_checkpoint`. Nothing is changed when names, shapes or types differ:
/// that is looked at first. `torch::save` and `torch::load` can't be used instead: they lose the
/// options of optimizers, take tensors of another shape, and notice no damage.
namespace troupe::sgd {

/// Parameters and buffers, of any type and on any device, in C order. A parameter that the module
/// has under two names is kept once, and the tie is kept.
void save(CheckpointWriter& out, std::string_view name, const torch::nn::Module& module);
/// Into a module with the same names, shapes and types, on whatever device it is.
void load(const CheckpointReader& in, std::string_view name, torch::nn::Module& module);

/// State and options of SGD, Adam, AdamW, RMSprop and Adagrad, for each group of parameters.
void save(CheckpointWriter& out, std::string_view name, const torch::optim::Optimizer& optimizer);
/// Into an optimizer of the same kind, with the same groups over parameters of the same shapes.
void load(const CheckpointReader& in, std::string_view name, torch::optim::Optimizer& optimizer);

void save(CheckpointWriter& out, std::string_view name, const torch::Tensor& tensor);
/// Into a tensor of the same shape and type.
void load(const CheckpointReader& in, std::string_view name, torch::Tensor& tensor);
/// A new tensor on the CPU.
torch::Tensor load_tensor(const CheckpointReader& in, std::string_view name);

}  // namespace troupe::sgd
