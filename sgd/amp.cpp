#include "sgd/amp.hpp"

#include "sgd/internal/blob_name.hpp"
#include "sgd/internal/refuse.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

// A scaler `scaler` becomes
//   scaler           "GradScaler", or "off"
//   scaler/scale, scaler/good_steps, scaler/skipped
namespace troupe::sgd::internal {
namespace {

void check(bool possible, const char* option, double value, const char* allowed) {
  if (!possible)
    refuse("amp: " + std::string(option) + " is " + c10::str(value) + "; it must be " + allowed);
}

/// The numbers of the optimizer's gradients.
std::vector<torch::Tensor> gradients_of(torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> all;
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params()) {
      torch::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (gradient.is_sparse()) gradient = gradient.coalesce();  // sums of float16 may overflow
      all.push_back(gradient.is_sparse() ? gradient._values() : gradient);
    }
  return all;
}

}  // namespace

torch::ScalarType half_type(torch::Device device) {
  return device.is_cuda() ? torch::kFloat16 : torch::kBFloat16;
}

Autocast::Autocast(bool enabled, torch::Device device)
    : enabled_(enabled), cuda_(device.is_cuda()) {
  if (!enabled_) return;
  using namespace at::autocast;
  enabled_before_ = cuda_ ? is_enabled() : is_cpu_enabled();
  type_before_ = cuda_ ? get_autocast_gpu_dtype() : get_autocast_cpu_dtype();
  cuda_ ? set_enabled(true) : set_cpu_enabled(true);
  cuda_ ? set_autocast_gpu_dtype(half_type(device)) : set_autocast_cpu_dtype(half_type(device));
  increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  using namespace at::autocast;
  if (decrement_nesting() == 0) clear_cache();  // weights in half precision: stale after a step
  cuda_ ? set_enabled(enabled_before_) : set_cpu_enabled(enabled_before_);
  cuda_ ? set_autocast_gpu_dtype(type_before_) : set_autocast_cpu_dtype(type_before_);
}

GradScaler::GradScaler(const AmpOptions& options, bool enabled)
    : options_(options), enabled_(enabled), scale_(enabled ? options.init_scale : 1) {
  check(options.init_scale > 0 && std::isfinite(options.init_scale), "init_scale",
        options.init_scale, "above 0");
  check(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
        options.growth_factor, "above 1");
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
        options.backoff_factor, "between 0 and 1");
  check(options.growth_interval >= 1, "growth_interval",
        static_cast<double>(options.growth_interval), "1 or more");
}

torch::Tensor GradScaler::scaled(const torch::Tensor& loss) const {
  return enabled_ ? loss * scale_ : loss;
}

bool GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return true;
  const torch::NoGradGuard no_grad;
  const auto gradients = gradients_of(optimizer);
  if (gradients.empty()) return true;
  at::_foreach_mul_(gradients, 1 / scale_);
  // One answer for all: each question would wait for the GPU.
  std::vector<torch::Tensor> finite;
  for (const auto& gradient : gradients)
    finite.push_back(torch::isfinite(gradient).all().to(gradients[0].device()));
  return torch::stack(finite).all().item<bool>();
}

void GradScaler::update(bool finite) {
  if (!enabled_) return;
  if (!finite) {
    ++skipped_;
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    const double larger = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(larger))) scale_ = larger;
    good_steps_ = 0;
  }
}

void GradScaler::save(CheckpointWriter& out, std::string_view name) const {
  out.text(name, enabled_ ? "GradScaler" : "off");
  if (!enabled_) return;
  out.number(blob_name(name, "scale"), scale_);
  out.integer(blob_name(name, "good_steps"), good_steps_);
  out.integer(blob_name(name, "skipped"), skipped_);
}

void GradScaler::load(const CheckpointReader& in, std::string_view name) {
  if (in.text(name) == "off" || !enabled_) return;
  const double scale = in.number(blob_name(name, "scale"));
  const std::int64_t good_steps = in.integer(blob_name(name, "good_steps"));
  const std::int64_t skipped = in.integer(blob_name(name, "skipped"));
  check(scale > 0 && std::isfinite(scale), "the checkpoint's scale", scale, "above 0");
  scale_ = scale;
  good_steps_ = good_steps;
  skipped_ = skipped;
}

void to_half(torch::nn::Module& module, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const auto convert = [&](torch::Tensor& tensor) {
    if (tensor.defined() && tensor.is_floating_point())
      tensor.set_data(tensor.to(device, half_type(device)));
  };
  for (auto& parameter : module.parameters()) convert(parameter);
  for (auto& buffer : module.buffers()) convert(buffer);
}

}  // namespace troupe::sgd::internal
