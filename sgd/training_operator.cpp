#include "sgd/training_operator.hpp"

#include "sgd/internal/operator_impl.hpp"
#include "sgd/internal/refuse.hpp"

#include <string>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd {

using internal::refuse;
using Timed = internal::Profile::Timed;

namespace {

/// The i-th of what `setup` registered.
template <class T>
const T& registered(const std::vector<T>& parts, std::size_t index, std::string_view kind) {
  if (index < parts.size()) return parts[index];
  refuse("there is no " + std::string(kind) + " " + std::to_string(index) + ": " +
         (parts.empty() ? "none is" : std::to_string(parts.size()) + " are") +
         " registered in setup");
}

/// Class numbers, and an output with one value for each class.
bool is_classification(const torch::Tensor& output, const torch::Tensor& target) {
  return target.defined() && !target.is_floating_point() && output.dim() == 2 &&
         target.dim() == 1 && output.size(0) == target.size(0);
}

}  // namespace

TrainingOperator::TrainingOperator() : impl_(std::make_unique<Impl>()) {}
TrainingOperator::~TrainingOperator() = default;

// --- the default loops --------------------------------------------------------------------------

tune::Metrics TrainingOperator::train_epoch() {
  if (impl_->parts.models.size() > 1) impl_->check_default("train_epoch", false);
  impl_->pass.default_loop = true;
  auto batches = train_batches();
  for (const auto& batch : batches) add_metrics(train_batch(batch, batches.info()));
  return impl_->meters.summary();
}

tune::Metrics TrainingOperator::train_batch(const Batch& batch, const BatchInfo&) {
  impl_->check_default("train_batch", true);
  torch::Tensor loss;
  {
    const Timed timed(impl_->profile, Impl::Part::forward);
    const auto half = autocast();
    loss = criterion()(impl_->forward(batch), batch.target);
  }
  backward(loss);
  for (const auto& optimizer : impl_->parts.optimizers) step(*optimizer);
  return {{"train_loss", loss.item<double>()},
          {std::string(internal::kNumSamples), batch.features.front().size(0)}};
}

tune::Metrics TrainingOperator::validate() {
  auto batches = validation_batches();
  for (const auto& batch : batches) add_metrics(validate_batch(batch, batches.info()));
  return impl_->meters.summary();
}

tune::Metrics TrainingOperator::validate_batch(const Batch& batch, const BatchInfo&) {
  impl_->check_default("validate_batch", false);
  const std::int64_t count = batch.features.front().size(0);
  torch::Tensor output, loss;
  {
    const Timed timed(impl_->profile, Impl::Part::forward);
    const auto half = autocast();
    output = impl_->forward(batch);
    loss = criterion()(output, batch.target);
  }
  tune::Metrics metrics{{"val_loss", loss.item<double>()}};
  if (is_classification(output, batch.target)) {
    const auto correct = output.argmax(1).eq(batch.target).sum().item<std::int64_t>();
    metrics.set("val_accuracy", static_cast<double>(correct) / static_cast<double>(count));
  }
  metrics.set(internal::kNumSamples, count);
  return metrics;
}

// --- for setup ----------------------------------------------------------------------------------

Components TrainingOperator::register_components(Components components) {
  return impl_->register_components(std::move(components));
}

void TrainingOperator::register_data(DataLoader train, DataLoader validation) {
  impl_->register_data(std::move(train), std::move(validation));
}

void TrainingOperator::register_data(const Data& data, LoaderOptions options) {
  LoaderOptions validation = options;
  validation.shuffle = false;
  validation.tail = Tail::split;
  register_data({data.train, options}, {data.test, validation});
}

// --- for train_epoch and validate ---------------------------------------------------------------

TrainingOperator::Batches TrainingOperator::train_batches() { return Batches(*this); }
TrainingOperator::Batches TrainingOperator::validation_batches() { return Batches(*this); }

void TrainingOperator::add_metrics(const tune::Metrics& metrics) {
  if (impl_->current && impl_->current->samples == 0) return;
  impl_->meters.add(metrics);
}

TrainingOperator::Batches::Iterator TrainingOperator::Batches::begin() {
  return Iterator(owner_.impl_->next_batch() ? &owner_ : nullptr);
}

const BatchInfo& TrainingOperator::Batches::info() const { return owner_.impl_->current->info; }

const Batch& TrainingOperator::Batches::Iterator::operator*() const {
  return owner_->impl_->current->batch;
}

TrainingOperator::Batches::Iterator& TrainingOperator::Batches::Iterator::operator++() {
  if (!owner_->impl_->next_batch()) owner_ = nullptr;
  return *this;
}

// --- for train_batch ----------------------------------------------------------------------------

std::unique_ptr<internal::Autocast> TrainingOperator::autocast() {
  return std::make_unique<internal::Autocast>(
      impl_->level == OptLevel::O1 || impl_->level == OptLevel::O2, impl_->env.device);
}

void TrainingOperator::backward(const torch::Tensor& loss) { impl_->backward(loss); }
void TrainingOperator::step(torch::optim::Optimizer& optimizer) { impl_->step(optimizer); }

std::unique_ptr<TrainingOperator::NoSync> TrainingOperator::no_sync() {
  return std::make_unique<NoSync>(*this);
}
TrainingOperator::NoSync::NoSync(TrainingOperator& owner) : owner_(owner) {
  owner_.impl_->begin_no_sync();
}
TrainingOperator::NoSync::~NoSync() { owner_.impl_->end_no_sync(); }

void TrainingOperator::all_reduce(torch::Tensor tensor, ReduceOp op) {
  if (world_size() > 1) impl_->env.collectives->all_reduce(std::move(tensor), op);
}

void TrainingOperator::broadcast(torch::Tensor tensor, int root) {
  if (root < 0 || root >= world_size())
    refuse("broadcast: there is no rank " + std::to_string(root) + " among " +
           std::to_string(world_size()));
  if (world_size() > 1) impl_->env.collectives->broadcast(std::move(tensor), root);
}

torch::Tensor TrainingOperator::all_gather(const torch::Tensor& tensor) {
  if (world_size() > 1) return impl_->env.collectives->all_gather(tensor);
  return tensor.detach().clone().unsqueeze(0);
}

void TrainingOperator::barrier() {
  if (world_size() > 1) impl_->env.collectives->barrier();
}

// --- access -------------------------------------------------------------------------------------

const tune::Config& TrainingOperator::config() const {
  impl_->check_attached("config()");
  return impl_->env.config;
}

const Context& TrainingOperator::context() const {
  impl_->check_attached("context()");
  if (impl_->env.context == nullptr)
    internal::refuse("context(): this operator is no rank's (TorchTrainer::get_local_operator)");
  return *impl_->env.context;
}

AnyModel TrainingOperator::model(std::size_t index) const {
  return registered(impl_->parts.models, index, "model").model;
}
torch::optim::Optimizer& TrainingOperator::optimizer(std::size_t index) const {
  return *registered(impl_->parts.optimizers, index, "optimizer");
}
AnyCriterion TrainingOperator::criterion(std::size_t index) const {
  return registered(impl_->parts.criteria, index, "criterion");
}
LRScheduler& TrainingOperator::scheduler(std::size_t index) const {
  return *registered(impl_->parts.schedulers, index, "LR scheduler");
}

torch::Device TrainingOperator::device() const { return impl_->env.device; }
int TrainingOperator::rank() const { return impl_->env.rank; }
int TrainingOperator::local_rank() const { return impl_->env.local_rank; }
int TrainingOperator::world_size() const { return impl_->env.world_size; }
std::int64_t TrainingOperator::global_step() const { return impl_->global_step; }
std::int64_t TrainingOperator::epoch() const { return impl_->epoch(); }
bool TrainingOperator::use_gpu() const { return impl_->env.device.is_cuda(); }
bool TrainingOperator::use_fp16() const {
  return impl_->level != OptLevel::O0 || impl_->env.use_fp16;
}

}  // namespace troupe::sgd
