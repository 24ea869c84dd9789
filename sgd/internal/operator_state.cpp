#include "sgd/internal/operator_state.hpp"

#include "sgd/internal/blob_name.hpp"
#include "sgd/internal/operator_impl.hpp"
#include "sgd/internal/refuse.hpp"
#include "sgd/state.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

std::unique_ptr<RankGenerator::Use> use(RankGenerator* generator) {
  return generator == nullptr ? nullptr : generator->use();
}

void seed(const RankEnvironment& env, int rank, std::int64_t epoch) {
  if (env.generator != nullptr)
    env.generator->seed(
        mix_seed(env.seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(epoch)));
}

/// Which parameters have a gradient. It is zero between steps, but an optimizer moves what has a
/// zero gradient, and leaves what has none.
void save_gradients(CheckpointWriter& out, const std::string& name,
                    const torch::nn::Module& module) {
  std::vector<std::byte> defined;
  for (const auto& parameter : module.parameters())
    defined.push_back(std::byte{parameter.grad().defined()});
  out.bytes(name, defined);
}

void load_gradients(const CheckpointReader& in, const std::string& name,
                    const torch::nn::Module& module) {
  const auto defined = in.bytes(name);
  const auto parameters = module.parameters();
  for (std::size_t i = 0; i < std::min(defined.size(), parameters.size()); ++i) {
    if (defined[i] == std::byte{0})
      parameters[i].mutable_grad().reset();
    else if (parameters[i].grad().defined())
      parameters[i].mutable_grad().zero_();
    else
      parameters[i].mutable_grad() = torch::zeros_like(parameters[i]);
  }
}

}  // namespace

OperatorDriver::OperatorDriver(TrainingOperator& op, RankEnvironment environment) : op_(op) {
  auto& own = *op_.impl_;
  own.attach(std::move(environment));
  const auto in_use = use(own.env.generator);
  seed(own.env, 0, 0);  // the same on all ranks: what setup draws may decide who reads what
  op_.setup(own.env.config);
  own.finish_setup();
  seed(own.env, own.env.rank, 0);
}

/// No hook is left on the models, which may live on.
OperatorDriver::~OperatorDriver() { op_.impl_->buckets.clear(); }

tune::Metrics OperatorDriver::train(const PassOptions& options) {
  auto& own = *op_.impl_;
  const auto in_use = use(own.env.generator);
  own.begin_pass(true, options);
  tune::Metrics returned;
  {
    const Profile::Timed timed(own.profile, Profile::Part::pass);
    returned = op_.train_epoch();
    if (own.current) own.end_batch();
  }
  return own.end_pass(returned);
}

tune::Metrics OperatorDriver::validate(const PassOptions& options) {
  auto& own = *op_.impl_;
  const auto in_use = use(own.env.generator);
  const torch::NoGradGuard no_grad;
  own.begin_pass(false, options);
  tune::Metrics returned;
  {
    const Profile::Timed timed(own.profile, Profile::Part::pass);
    returned = op_.validate();
    if (own.current) own.end_batch();
  }
  return own.end_pass(returned);
}

void OperatorDriver::update_scheduler(double metric) {
  const auto& schedulers = op_.impl_->parts.schedulers;
  if (schedulers.empty()) refuse("update_scheduler: no LR scheduler is registered");
  for (const auto& scheduler : schedulers) scheduler->step(metric);
}

bool OperatorDriver::can_stop_between_steps() const { return op_.impl_->pass.default_loop; }

bool OperatorDriver::has_validation_data() const { return op_.impl_->validation_data.has_value(); }

std::int64_t OperatorDriver::global_batch() const {
  return op_.impl_->train_data ? op_.impl_->train_data->global_batch() : 0;
}

// --- state --------------------------------------------------------------------------------------

void OperatorDriver::save_shared(CheckpointWriter& out) {
  const auto& own = *op_.impl_;
  for (const auto& [name, module] : own.modules) {
    save(out, "module/" + name, *module);
    save_gradients(out, "gradients/" + name, *module);
  }
  for (std::size_t i = 0; i < own.parts.optimizers.size(); ++i)
    save(out, blob_name("optimizer", i), *own.parts.optimizers[i]);
  for (std::size_t i = 0; i < own.parts.schedulers.size(); ++i)
    own.parts.schedulers[i]->save(out, blob_name("scheduler", i));
  if (own.scaler) own.scaler->save(out, "scaler");
  if (own.train_data) own.train_data->save(out, "data/train");
  if (own.validation_data) own.validation_data->save(out, "data/validation");
  out.integer("progress/global_step", own.global_step);
  out.integer("progress/epochs_without_data", own.epochs_without_data);
  out.integer("progress/pass_steps", own.pass.active && own.pass.training ? own.pass.steps : 0);
}

void OperatorDriver::load_shared(const CheckpointReader& in) {
  auto& own = *op_.impl_;
  for (const auto& [name, module] : own.modules) {
    load(in, "module/" + name, *module);
    load_gradients(in, "gradients/" + name, *module);
  }
  for (std::size_t i = 0; i < own.parts.optimizers.size(); ++i)
    load(in, blob_name("optimizer", i), *own.parts.optimizers[i]);
  for (std::size_t i = 0; i < own.parts.schedulers.size(); ++i)
    own.parts.schedulers[i]->load(in, blob_name("scheduler", i));
  if (own.scaler) own.scaler->load(in, "scaler");
  if (own.train_data && in.has("data/train/epoch")) own.train_data->load(in, "data/train");
  if (own.validation_data && in.has("data/validation/epoch"))
    own.validation_data->load(in, "data/validation");
  own.global_step = in.integer("progress/global_step");
  own.epochs_without_data = in.integer("progress/epochs_without_data");
  own.resume_steps = in.integer("progress/pass_steps");
  own.meters = {};
  seed(own.env, own.env.rank, own.epoch());  // for a rank that has no state of its own in there
}

void OperatorDriver::save_own(CheckpointWriter& out) {
  auto& own = *op_.impl_;
  if (own.env.rank != 0)  // rank 0's are the shared ones
    for (const auto& [name, module] : own.modules)
      for (const auto& buffer : module->named_buffers())
        save(out, "buffers/" + name + "/" + buffer.key(), buffer.value());
  if (own.env.generator != nullptr) save(out, "generator", own.env.generator->state());
  own.meters.save(out, "meters");
  const CheckpointWriter::Within within(out, "user/");
  op_.state_dict(out);
}

void OperatorDriver::load_own(const CheckpointReader& in) {
  auto& own = *op_.impl_;
  if (own.env.generator != nullptr && in.has("generator"))
    own.env.generator->set_state(load_tensor(in, "generator"));
  own.meters.load(in, "meters");
  load_like(in);
}

void OperatorDriver::load_like(const CheckpointReader& in) {
  auto& own = *op_.impl_;
  for (const auto& [name, module] : own.modules)
    for (const auto& buffer : module->named_buffers()) {
      const std::string blob = "buffers/" + name + "/" + buffer.key();
      torch::Tensor tensor = buffer.value();
      if (in.has(blob)) load(in, blob, tensor);
    }
  op_.load_state_dict(in.below("user/"));
}

}  // namespace troupe::sgd::internal
