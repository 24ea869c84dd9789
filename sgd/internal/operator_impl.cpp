#include "sgd/internal/operator_impl.hpp"

#include "sgd/internal/refuse.hpp"
#include "sgd/internal/same_model.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd {

using internal::refuse;
using Timed = internal::Profile::Timed;

namespace {

bool is_trainable(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const auto& parameter) { return parameter.requires_grad(); });
}

}  // namespace

// --- before setup, in it, and after it --------------------------------------------------------

void TrainingOperator::Impl::attach(internal::RankEnvironment environment) {
  env = std::move(environment);
  attached = true;
}

Components TrainingOperator::Impl::register_components(Components given) {
  check_attached("register_components");
  if (!modules.empty()) refuse("register_components was called before: call it once, with all");
  parts = internal::normalised(given, env.scheduler_step);
  modules = internal::modules_of(parts);
  level = parts.amp.opt_level.value_or(env.use_fp16 ? OptLevel::O1 : OptLevel::O0);
  for (const auto& [name, module] : modules) module->to(env.device);
  if (level == OptLevel::O3)
    for (const auto& [name, model] : parts.models) internal::to_half(model.module(), env.device);
  scaler.emplace(parts.amp,
                 parts.amp.scale_loss.value_or(level != OptLevel::O0 && env.device.is_cuda()));
  for (std::size_t i = 0; i < parts.schedulers.size(); ++i)
    parts.schedulers[i]->bind(*parts.optimizers[i]);
  return given;
}

void TrainingOperator::Impl::register_data(DataLoader train, DataLoader validation) {
  check_attached("register_data");
  if (train_loader.dataset) refuse("register_data was called before: call it once, with both");
  if (!train.dataset) refuse("register_data: the training loader has no data set");
  for (DataLoader* loader : {&train, &validation}) {
    if (loader->options.batch_size == 0)
      loader->options.batch_size = env.config.get_or("batch_size", std::int64_t{64});
    loader->options.shard = loader->options.shard && env.shard_data;
  }
  train_loader = std::move(train);
  validation_loader = std::move(validation);
}

void TrainingOperator::Impl::finish_setup() {
  if (env.world_size > 1) {
    std::string registered;
    for (const auto& [name, module] : modules) registered += "model '" + name + "', ";
    registered += train_loader.dataset ? "training data" : "no training data";
    if (validation_loader.dataset) registered += " and validation data";
    internal::check_same_parts(registered, *env.collectives);
  }
  for (std::size_t i = 0; env.world_size > 1 && i < modules.size(); ++i) {
    const auto& [name, module] = modules[i];
    if (i >= parts.models.size() && !is_trainable(*module)) continue;  // a criterion
    buckets.push_back(
        std::make_unique<internal::GradientBuckets>(name, *module, *env.collectives, parts.ddp));
  }
  internal::Collectives* others = env.world_size > 1 ? env.collectives : nullptr;
  internal::Share share{env.rank, env.world_size, env.global_batch, env.seed};
  if (train_loader.dataset)
    train_data.emplace("training data", train_loader, share, env.device, others);
  share.global_batch = 0;
  if (validation_loader.dataset)
    validation_data.emplace("validation data", validation_loader, share, env.device, others);
}

// --- a pass -------------------------------------------------------------------------------------

void TrainingOperator::Impl::begin_pass(bool training, internal::PassOptions options) {
  abandon_batch();
  const bool resumed = training && resume_steps > 0;
  pass = {.training = training,
          .active = true,
          .options = std::move(options),
          .steps = resumed ? resume_steps : 0,
          .epoch_before = epoch()};
  if (!resumed) meters = {};
  resume_steps = 0;
  profile = {};
  exchanged_before_ = exchanged();
  set_weight(1);  // for loops over data of their own
  set_sync(true);
  for (const auto& [name, module] : modules) module->train(training);
}

/// After an exception: the next pass begins with the same batch, and with no gradients.
void TrainingOperator::Impl::abandon_batch() {
  if (pass.active)
    for (const auto& optimizer : parts.optimizers) optimizer->zero_grad();
  if (current) data(pass.training).rewind();
  current.reset();
  group = {};
  carried_samples_ = 0;
  finite_.reset();
}

bool TrainingOperator::Impl::more_steps() const {
  const auto& stream = pass.training ? train_data : validation_data;
  if (pass.options.num_steps > 0) return pass.steps < pass.options.num_steps;
  return pass.steps == 0 || !stream->at_end();
}

void TrainingOperator::Impl::start_epoch() {
  data(pass.training).start_epoch();
  if (pass.training && env.generator != nullptr)
    env.generator->seed(internal::mix_seed(env.seed, static_cast<std::uint64_t>(env.rank),
                                           static_cast<std::uint64_t>(epoch())));
}

bool TrainingOperator::Impl::next_batch() {
  if (current) end_batch();
  internal::DataStream& stream = data(pass.training);
  if (!more_steps()) return false;
  if (stream.at_end()) start_epoch();
  if (stream.at_end()) return false;  // there are no samples at all

  doing("data");
  current.emplace();
  {
    const Timed timed(profile, Part::data);
    current->batch = stream.batch();
  }
  current->samples = stream.samples(stream.step());
  current->info = {pass.steps, global_step, pass.options.info};
  pass.samples += current->samples;
  if (level >= OptLevel::O2)
    for (auto& feature : current->batch.features)
      if (feature.is_floating_point()) feature = feature.to(internal::half_type(env.device));
  if (pass.training) begin_group();
  doing(pass.training ? "forward" : "validation");
  return true;
}

void TrainingOperator::Impl::begin_group() {
  const internal::DataStream& stream = *train_data;
  if (group.left == 0) {
    const std::int64_t limit = pass.options.num_steps > 0
                                   ? pass.options.num_steps - pass.steps
                                   : std::numeric_limits<std::int64_t>::max();
    group = {.left = std::min({parts.accumulate, stream.steps() - stream.step(), limit})};
    for (std::int64_t i = 0; i < group.left; ++i) {
      const std::int64_t samples = stream.samples(stream.step() + i);
      group.samples += samples;
      group.batches += samples > 0 ? 1 : 0;
    }
  }
  if (current->samples == 0)
    for (const auto& buffer : buffers()) current->buffers_before.push_back(buffer.clone());
  set_weight(carried_samples_ + current->samples);
  set_sync(true);
}

void TrainingOperator::Impl::end_batch() {
  internal::DataStream& stream = data(pass.training);
  const Current ended = *std::exchange(current, std::nullopt);
  stream.advance();
  ++pass.steps;
  if (!pass.training) return;

  const torch::NoGradGuard no_grad;
  const auto now = buffers();
  for (std::size_t i = 0; i < ended.buffers_before.size(); ++i)
    now[i].copy_(ended.buffers_before[i]);
  carried_samples_ = ended.unsynced ? carried_samples_ + ended.samples : 0;
  ++global_step;
  const bool step_ended = --group.left == 0;
  if (step_ended) end_step();
  if (stream.at_end() && parts.scheduler_step == SchedulerStep::epoch) step_schedulers();
  if (step_ended && pass.default_loop && env.step_done && more_steps()) env.step_done();
}

void TrainingOperator::Impl::end_step() {
  if (finite_) scaler->update(*std::exchange(finite_, std::nullopt));
  broadcast_buffers();
  if (parts.scheduler_step == SchedulerStep::batch) step_schedulers();
}

tune::Metrics TrainingOperator::Impl::end_pass(const tune::Metrics& returned) {
  pass.active = false;
  auto& stream = pass.training ? train_data : validation_data;
  if (pass.training && epoch() == pass.epoch_before && pass.steps == 0) {
    if (stream)
      start_epoch();
    else
      ++epochs_without_data;
  }
  const tune::Metrics means = meters.summary();
  tune::Metrics all;
  const auto add = [&](std::string_view name, tune::Value value) {
    if (all.find(name) == nullptr) all.set(name, std::move(value));
  };
  const auto given = [&](std::string_view name, tune::Value otherwise) {
    const tune::Value* value = returned.find(name);
    add(name, value != nullptr ? *value : std::move(otherwise));
  };
  given(internal::kNumSamples,
        meters.empty() ? tune::Value(pass.samples) : *means.find(internal::kNumSamples));
  if (pass.training) given(internal::kEpoch, epoch());
  given(internal::kBatchCount, pass.steps);
  for (const tune::Metrics& metrics : {returned, means})
    for (const auto& [name, value] : metrics) add(name, value);
  if (pass.options.profile) {
    const auto now = exchanged();
    profile.add(Part::exchange,
                std::chrono::nanoseconds(now.exchange_ns - exchanged_before_.exchange_ns),
                now.passes - exchanged_before_.passes);
    profile.waited(std::chrono::nanoseconds(now.waited_ns - exchanged_before_.waited_ns));
    for (const auto& [name, value] : profile.summary(pass.training)) add(name, value);
  }
  return all;
}

// --- a batch ------------------------------------------------------------------------------------

torch::Tensor TrainingOperator::Impl::forward(const Batch& batch) const {
  torch::Tensor output = parts.models.front().model(batch.features);
  // Criteria want float32: sums over classes in half precision lose too much, where they exist.
  if (level != OptLevel::O0 && output.is_floating_point()) return output.to(torch::kFloat32);
  return output;
}

/// The gradient of a whole group is that of one batch with all its samples: each batch's share in
/// it is its samples', or 1 in the number of batches.
void TrainingOperator::Impl::backward(const torch::Tensor& loss) {
  doing("backward");
  torch::Tensor scaled = scaler && scaler->enabled() ? scaler->scaled(loss) : loss;
  const bool grouped = current && pass.training && parts.accumulate > 1;
  if (grouped) {
    const bool by_sample = parts.ddp.average == Average::by_sample;
    const std::int64_t part =
        by_sample ? current->samples : std::min<std::int64_t>(current->samples, 1);
    const std::int64_t whole = by_sample ? group.samples : group.batches;
    if (whole > 0) scaled = scaled * (static_cast<double>(part) / static_cast<double>(whole));
    set_weight(group.samples);
    set_sync(group.left == 1);
  }
  const auto waited_before = exchanged().waited_ns;
  {
    const Timed timed(profile, Part::backward);
    scaled.backward();
  }
  profile.add(Part::backward, std::chrono::nanoseconds(waited_before - exchanged().waited_ns), 0);
  if (grouped) set_sync(true);
}

void TrainingOperator::Impl::step(torch::optim::Optimizer& optimizer) {
  if (group.left > 1) return;
  doing("optimizer");
  const Timed timed(profile, Part::apply);
  bool finite = true;
  if (scaler && scaler->enabled()) {
    finite = scaler->unscale(optimizer);
    finite_ = finite_.value_or(true) && finite;
  }
  if (finite && parts.clip_grad_norm > 0) {
    std::vector<torch::Tensor> parameters;
    for (const auto& each : optimizer.param_groups())
      parameters.insert(parameters.end(), each.params().begin(), each.params().end());
    torch::nn::utils::clip_grad_norm_(parameters, parts.clip_grad_norm);
  }
  if (finite) optimizer.step();
  optimizer.zero_grad();
}

void TrainingOperator::Impl::begin_no_sync() {
  ++no_sync_depth_;
  if (current) current->unsynced = true;
  set_sync(false);
}

void TrainingOperator::Impl::end_no_sync() {
  --no_sync_depth_;
  set_sync(true);
}

// --- the other ranks ----------------------------------------------------------------------------

void TrainingOperator::Impl::set_weight(std::int64_t samples) {
  const bool by_sample = parts.ddp.average == Average::by_sample;
  for (const auto& bucket : buckets)
    bucket->set_weight(
        static_cast<double>(by_sample ? samples : std::min<std::int64_t>(samples, 1)));
}

void TrainingOperator::Impl::set_sync(bool sync) {
  for (const auto& bucket : buckets) bucket->set_sync(sync && no_sync_depth_ == 0);
}

std::vector<torch::Tensor> TrainingOperator::Impl::buffers() const {
  std::vector<torch::Tensor> all;
  for (const auto& [name, module] : modules)
    for (const auto& buffer : module->buffers()) all.push_back(buffer);
  return all;
}

void TrainingOperator::Impl::broadcast_buffers() {
  if (buckets.empty() || !parts.ddp.broadcast_buffers) return;
  doing("exchange");
  for (const auto& bucket : buckets) bucket->broadcast_buffers();
}

void TrainingOperator::Impl::step_schedulers() {
  for (const auto& scheduler : parts.schedulers) scheduler->step();
}

internal::GradientBuckets::Stats TrainingOperator::Impl::exchanged() const {
  internal::GradientBuckets::Stats sum;
  for (const auto& bucket : buckets) {
    sum.passes += bucket->stats().passes;
    sum.exchange_ns += bucket->stats().exchange_ns;
    sum.waited_ns += bucket->stats().waited_ns;
  }
  return sum;
}

// --- access -------------------------------------------------------------------------------------

void TrainingOperator::Impl::check_attached(std::string_view called) const {
  if (!attached)
    refuse(std::string(called) + " before setup: an operator is nobody's rank in its constructor");
}

void TrainingOperator::Impl::check_default(std::string_view function, bool needs_optimizer) const {
  const auto check_one = [&](std::size_t count, std::string_view kind) {
    if (count == 1) return;
    refuse("the default " + std::string(function) + " needs one " + std::string(kind) + ", and " +
           (count == 0 ? "none is" : std::to_string(count) + " are") +
           " registered: register one in setup, or override " + std::string(function));
  };
  check_one(parts.models.size(), "model");
  check_one(parts.criteria.size(), "criterion");
  if (needs_optimizer && parts.optimizers.empty()) check_one(0, "optimizer");
}

internal::DataStream& TrainingOperator::Impl::data(bool training) {
  auto& stream = training ? train_data : validation_data;
  if (!stream)
    refuse(training ? "there are no training data: call register_data in setup, or override "
                      "train_epoch"
                    : "there are no validation data: give register_data a second loader in setup, "
                      "or override validate");
  return *stream;
}

std::int64_t TrainingOperator::Impl::epoch() const {
  return train_data ? train_data->epoch() : epochs_without_data;
}

void TrainingOperator::Impl::doing(std::string_view what) const {
  if (!env.doing) return;
  const auto& stream = pass.training ? train_data : validation_data;
  const std::int64_t left = stream ? stream->steps() - stream->step() : 0;
  env.doing(what, pass.steps,
            pass.options.num_steps > 0 ? pass.options.num_steps : pass.steps + left);
}

}  // namespace troupe::sgd
