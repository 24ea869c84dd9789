#pragma once

#include "libactor/checkpoint.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace troupe::sgd {

/// As APEX's letters: O0 float32; O1 operators choose (autocast); O2 as O1 with the inputs cast
/// too, the parameters being the float32 master weights; O3 everything in half precision.
enum class OptLevel : std::uint8_t { O0, O1, O2, O3 };

/// Half precision is float16 on CUDA, with a scaled loss, and bfloat16 on CPUs, without.
struct AmpOptions {
  std::optional<OptLevel> opt_level = {};  ///< default: O1 with `use_fp16`, else O0
  double init_scale = 65536;
  double growth_factor = 2;     ///< after `growth_interval` steps without overflow
  double backoff_factor = 0.5;  ///< after an overflow
  std::int64_t growth_interval = 2000;
  std::optional<bool> scale_loss = {};  ///< default: with float16
};

namespace internal {

/// float16 on CUDA, bfloat16 on CPUs.
torch::ScalarType half_type(torch::Device device);

/// While it lives, operators on this thread choose half precision where it does no harm. May be
/// nested. Not enabled, it changes nothing.
class Autocast {
 public:
  Autocast(bool enabled, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  bool cuda_;
  bool enabled_before_ = false;
  torch::ScalarType type_before_ = {};
};

/// Keeps small float16 gradients from vanishing: the loss is scaled up, the gradients down, and a
/// step whose gradients have overflowed is skipped, with a smaller scale from then on. The rules
/// are those of torch.cuda.amp.GradScaler. Fed with averaged gradients, which are the same bits on
/// all ranks, so that all skip the same steps.
class GradScaler {
 public:
  /// Throws `Exception` for options that make no sense. Not enabled, it changes nothing.
  GradScaler(const AmpOptions& options, bool enabled);

  bool enabled() const { return enabled_; }
  double scale() const { return scale_; }
  torch::Tensor scaled(const torch::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale; false when one is not finite: skip the step.
  bool unscale(torch::optim::Optimizer& optimizer);
  /// After the step, or after skipping it.
  void update(bool finite);
  std::int64_t skipped() const { return skipped_; }

  void save(CheckpointWriter& out, std::string_view name) const;
  /// Leaves a scaler as it is when it is not enabled, or the saved one was not.
  void load(const CheckpointReader& in, std::string_view name);

 private:
  AmpOptions options_;
  bool enabled_ = false;
  double scale_ = 1;
  std::int64_t good_steps_ = 0;  ///< since the scale has changed
  std::int64_t skipped_ = 0;
};

/// O3: parameters and buffers in half precision, those of batch norm too; integers stay.
void to_half(torch::nn::Module& module, torch::Device device);

}  // namespace internal
}  // namespace troupe::sgd
