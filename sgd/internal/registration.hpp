#pragma once

#include "sgd/components.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::sgd::internal {

/// The same with `models`, `optimizers`, `criteria` and `schedulers` filled, and those of one
/// empty. scheduler_step: for components that say none. Throws `Exception` when something is
/// missing or there twice, with its name.
Components normalised(Components given, SchedulerStep scheduler_step);

/// What has parameters or buffers: the models, and the criteria that have some.
struct NamedModule {
  std::string name = {};
  std::shared_ptr<torch::nn::Module> module = {};
};
/// Of normalised components. Throws when two of them share a parameter, or when an optimizer has
/// one that is in none: its gradients would be averaged twice, or never.
std::vector<NamedModule> modules_of(const Components& components);

}  // namespace troupe::sgd::internal
