#pragma once

#include "sgd/amp.hpp"
#include "sgd/ddp_options.hpp"
#include "sgd/lr_scheduler.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

namespace troupe::sgd {

namespace internal {

/// forward(Tensor, …): number of arguments, 0 when it isn't one that takes 1 to 6 tensors and gives
/// one.
template <class F>
struct ForwardArity : std::integral_constant<std::size_t, 0> {};
template <class M, class... A>
struct ForwardArity<torch::Tensor (M::*)(A...)>
    : std::integral_constant<std::size_t, (std::is_same_v<std::remove_cvref_t<A>, torch::Tensor> &&
                                           ... && (sizeof...(A) <= 6))
                                              ? sizeof...(A)
                                              : 0> {};
template <class M, class... A>
struct ForwardArity<torch::Tensor (M::*)(A...) const> : ForwardArity<torch::Tensor (M::*)(A...)> {};

template <class M>
constexpr std::size_t forward_arity() {
  if constexpr (requires { &M::forward; })
    return ForwardArity<decltype(&M::forward)>::value;
  else
    return 0;
}

/// As users write it: "Net" for NetImpl.
std::string type_name(const std::type_info& type);

using Tensors = std::vector<torch::Tensor>;

template <class M, std::size_t... I>
torch::Tensor call_forward(M& module, const Tensors& inputs, std::index_sequence<I...>) {
  return module.forward(inputs[I]...);
}

}  // namespace internal

/// A model as `register_components` takes it: a module (holder or shared_ptr), and how to call it.
class AnyModel {
 public:
  AnyModel() = default;
  template <class M>
  AnyModel(std::shared_ptr<M> module) : module_(module), type_(internal::type_name(typeid(M))) {
    constexpr auto arity = internal::forward_arity<M>();
    arity_ = arity;
    if constexpr (arity > 0)
      forward_ = [raw = module.get()](const internal::Tensors& inputs) {
        return internal::call_forward(*raw, inputs, std::make_index_sequence<arity>());
      };
  }
  template <class M>
  AnyModel(const torch::nn::ModuleHolder<M>& holder) : AnyModel(holder.ptr()) {}
  AnyModel(const torch::nn::Sequential& sequential);

  explicit operator bool() const { return module_ != nullptr; }
  torch::nn::Module& module() const { return *module_; }
  const std::shared_ptr<torch::nn::Module>& ptr() const { return module_; }
  const std::string& type_name() const { return type_; }
  std::size_t arity() const { return arity_; }  ///< tensors that forward takes; 0: can't be called
  /// Throws `Exception`: "MyNet::forward takes 2 tensors, the loader gives 1".
  torch::Tensor operator()(const internal::Tensors& features) const;

 private:
  std::shared_ptr<torch::nn::Module> module_ = {};
  std::string type_ = {};
  std::size_t arity_ = 0;
  std::function<torch::Tensor(const internal::Tensors&)> forward_ = {};
};

struct NamedModel {
  std::string name = {};
  AnyModel model = {};
};

/// An optimizer by value; copies share it.
class AnyOptimizer {
 public:
  AnyOptimizer() = default;
  template <class O>
  requires std::is_base_of_v<torch::optim::Optimizer, O> AnyOptimizer(O optimizer)
      : optimizer_(std::make_shared<O>(std::move(optimizer))) {}
  AnyOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {}

  explicit operator bool() const { return optimizer_ != nullptr; }
  torch::optim::Optimizer& operator*() const { return *optimizer_; }
  torch::optim::Optimizer* operator->() const { return optimizer_.get(); }

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_ = {};
};

/// loss(output, target): a module such as NLLLoss, or a function.
class AnyCriterion {
 public:
  using Function = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;
  AnyCriterion() = default;
  template <class M>
  AnyCriterion(const torch::nn::ModuleHolder<M>& holder)
      : module_(holder.ptr()),
        function_(
            [raw = holder.ptr().get()](const torch::Tensor& output, const torch::Tensor& target) {
              return raw->forward(output, target);
            }) {}
  template <class F>
  requires(!std::is_base_of_v<torch::detail::ModuleHolderIndicator, F> &&
           std::is_invocable_r_v<torch::Tensor, F, const torch::Tensor&, const torch::Tensor&>)
      AnyCriterion(F function)
      : function_(std::move(function)) {}

  explicit operator bool() const { return static_cast<bool>(function_); }
  torch::Tensor operator()(const torch::Tensor& output, const torch::Tensor& target) const {
    return function_(output, target);
  }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }  ///< may be null

 private:
  std::shared_ptr<torch::nn::Module> module_ = {};
  Function function_ = {};
};

/// When the LR schedulers take a step.
enum class SchedulerStep : std::uint8_t {
  unset,
  batch,   ///< after every optimizer step
  epoch,   ///< after every pass over all training data
  manual,  ///< by `TorchTrainer::update_scheduler`, or by the operator
};

/// What `TrainingOperator::register_components` takes: the one or the several of each kind.
struct Components {
  AnyModel model = {};
  std::vector<NamedModel> models = {};
  AnyOptimizer optimizer = {};
  std::vector<AnyOptimizer> optimizers = {};
  AnyCriterion criterion = {};
  std::vector<AnyCriterion> criteria = {};
  AnyLRScheduler scheduler = {};                        ///< of the first optimizer
  std::vector<AnyLRScheduler> schedulers = {};          ///< the i-th of the i-th optimizer
  SchedulerStep scheduler_step = SchedulerStep::unset;  ///< must be said where there is a scheduler
  std::int64_t accumulate = 1;  ///< batches whose gradients are added up for one step
  double clip_grad_norm = 0;    ///< of an optimizer's parameters together; 0: no clipping
  DdpOptions ddp = {};
  AmpOptions amp = {};
};

}  // namespace troupe::sgd
