#include "sgd/internal/registration.hpp"

#include "sgd/internal/refuse.hpp"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

[[noreturn]] void refuse_components(const std::string& text) {
  refuse("register_components: " + text);
}

/// Moves the one of a kind into the several.
template <class T>
void into_list(T& one, std::vector<T>& several, std::string_view name, std::string_view names) {
  if (one) {
    if (!several.empty())
      refuse_components("both " + std::string(name) + " and " + std::string(names) +
                        " are given: use one of them");
    several.push_back(std::exchange(one, T()));
  }
  for (std::size_t i = 0; i < several.size(); ++i)
    if (!several[i]) refuse_components(std::string(names) + "[" + std::to_string(i) + "] is empty");
}

void check_models(std::vector<NamedModel>& models) {
  if (models.empty()) refuse_components("no model is given: .model = net, or .models = {…}");
  std::set<std::string> names;
  for (std::size_t i = 0; i < models.size(); ++i) {
    auto& [name, model] = models[i];
    if (name.empty()) name = "model" + std::to_string(i);
    if (!model) refuse_components("model '" + name + "' is empty: construct it before");
    if (!names.insert(name).second) refuse_components("two models are named '" + name + "'");
  }
}

bool has_tensors(const torch::nn::Module& module) {
  return !module.parameters().empty() || !module.buffers().empty();
}

}  // namespace

Components normalised(Components given, SchedulerStep scheduler_step) {
  if (given.model) {
    if (!given.models.empty())
      refuse_components("both model and models are given: use one of them");
    given.models.push_back({"model", std::exchange(given.model, {})});
  }
  check_models(given.models);
  into_list(given.optimizer, given.optimizers, "optimizer", "optimizers");
  into_list(given.criterion, given.criteria, "criterion", "criteria");
  into_list(given.scheduler, given.schedulers, "scheduler", "schedulers");
  if (given.schedulers.size() > given.optimizers.size())
    refuse_components("there are " + std::to_string(given.schedulers.size()) +
                      " LR schedulers, but " + std::to_string(given.optimizers.size()) +
                      " optimizers: the i-th scheduler is the i-th optimizer's");
  if (given.scheduler_step == SchedulerStep::unset) given.scheduler_step = scheduler_step;
  if (!given.schedulers.empty() && given.scheduler_step == SchedulerStep::unset)
    refuse_components(
        "an LR scheduler is given, but not when it takes a step: .scheduler_step = "
        "sgd::SchedulerStep::batch, epoch or manual");
  if (given.accumulate < 1)
    refuse_components("accumulate is " + std::to_string(given.accumulate) +
                      "; 1 is a step after every batch, 4 after every fourth");
  if (!(given.clip_grad_norm >= 0))
    refuse_components("clip_grad_norm is " + std::to_string(given.clip_grad_norm) +
                      "; 0 is no clipping");
  return given;
}

std::vector<NamedModule> modules_of(const Components& components) {
  std::vector<NamedModule> modules;
  for (const auto& [name, model] : components.models) modules.push_back({name, model.ptr()});
  for (std::size_t i = 0; i < components.criteria.size(); ++i)
    if (const auto& module = components.criteria[i].module(); module && has_tensors(*module))
      modules.push_back({"criterion" + std::to_string(i), module});

  std::map<const void*, std::string> owners;
  for (const auto& [name, module] : modules)
    for (const auto& parameter : module->named_parameters()) {
      const auto [at, first] = owners.emplace(parameter.value().unsafeGetTensorImpl(), name);
      if (!first && at->second != name)
        refuse_components("parameter '" + parameter.key() + "' of '" + name + "' belongs to '" +
                          at->second + "' too: register one model that holds both");
    }
  for (std::size_t i = 0; i < components.optimizers.size(); ++i)
    for (const auto& group : components.optimizers[i]->param_groups())
      for (const auto& parameter : group.params())
        if (!owners.contains(parameter.unsafeGetTensorImpl()))
          refuse_components("optimizers[" + std::to_string(i) + "] has a parameter of shape " +
                            c10::str(parameter.sizes()) +
                            " that is in none of the models: its gradients would not be averaged "
                            "over the ranks");
  return modules;
}

}  // namespace troupe::sgd::internal
