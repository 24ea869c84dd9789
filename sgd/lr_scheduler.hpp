#pragma once

#include "libactor/checkpoint.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace troupe::sgd {

/// How the learning rates of one optimizer change: after the same number of steps the same values
/// as Python's torch.optim.lr_scheduler 1.13 of that name. (LibTorch's own StepLR is one step late,
/// and no other exists there.) All throw `Exception` on misuse.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;

  /// Takes the optimizer's rates as the initial ones, and sets those of the beginning. Once, before
  /// everything else; the optimizer must outlive the scheduler.
  void bind(torch::optim::Optimizer& optimizer);
  /// An epoch or batch has passed. ReduceLROnPlateau needs the metric; others ignore it.
  void step(std::optional<double> metric = {});

  std::vector<double> rates() const;  ///< of each parameter group, as they are now
  std::int64_t step_count() const { return steps_; }
  std::string_view kind() const { return kind_; }

  /// How far it is, under "<name>/…". Options are the constructor's, and the rates themselves are
  /// part of the optimizer's state. Loading refuses what another kind has saved.
  virtual void save(CheckpointWriter& out, std::string_view name) const;
  virtual void load(const CheckpointReader& in, std::string_view name);

 protected:
  explicit LRScheduler(std::string_view kind) : kind_(kind) {}  ///< kind: a literal

  /// Sets the groups' rates as they are after `step_count()` steps; with 0, at the beginning.
  virtual void update(std::optional<double> metric) = 0;

  torch::optim::Optimizer& optimizer() const;
  double initial(std::size_t group) const { return initial_[group]; }  ///< rate at `bind`

 private:
  std::string_view kind_;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::vector<double> initial_ = {};
  std::int64_t steps_ = 0;
};

struct StepLROptions {
  std::int64_t step_size = 1;
  double gamma = 0.1;
};
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones = {};  ///< steps, in any order; one named twice counts twice
  double gamma = 0.1;
};
struct ExponentialLROptions {
  double gamma = 0.9;
};
struct CosineAnnealingLROptions {
  std::int64_t t_max = 1;
  double eta_min = 0;
};
struct LambdaLROptions {
  std::function<double(std::int64_t step)> factor = {};  ///< of the initial rate
};
struct LinearLROptions {  ///< warm-up
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
enum class Anneal : std::uint8_t { cosine, linear };
struct OneCycleLROptions {
  double max_lr = 0.1;
  std::int64_t total_steps = 1;  ///< further ones throw, as in Python
  double pct_start = 0.3;        ///< fraction of the steps in which the rate rises
  Anneal anneal = Anneal::cosine;
  double div_factor = 25;         ///< max_lr by the first rate
  double final_div_factor = 1e4;  ///< the first rate by the last
  bool three_phase = false;       ///< down as long as up, then to the last rate
  bool cycle_momentum = true;     ///< SGD's momentum, or the first of Adam's betas
  double base_momentum = 0.85;
  double max_momentum = 0.95;
};
enum class PlateauMode : std::uint8_t { min, max };
enum class Threshold : std::uint8_t { relative, absolute };
struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::min;
  double factor = 0.1;
  std::int64_t patience = 10;  ///< steps without a better metric (NaN is none) that are borne
  double threshold = 1e-4;
  Threshold threshold_mode = Threshold::relative;
  std::int64_t cooldown = 0;  ///< steps after a reduction that don't count
  double min_lr = 0;
  double eps = 1e-8;  ///< a smaller change of a rate is not made
};

/// A scheduler by value, for `Components`: `.scheduler = sgd::StepLR({.step_size = 2})`.
class AnyLRScheduler {
 public:
  AnyLRScheduler() = default;
  explicit AnyLRScheduler(std::shared_ptr<LRScheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  explicit operator bool() const { return scheduler_ != nullptr; }
  LRScheduler* operator->() const { return scheduler_.get(); }
  LRScheduler& operator*() const { return *scheduler_; }

 private:
  std::shared_ptr<LRScheduler> scheduler_;
};

/// Each throws `Exception` for options that make no sense, with option and value.
AnyLRScheduler StepLR(StepLROptions options);
AnyLRScheduler MultiStepLR(MultiStepLROptions options);
AnyLRScheduler ExponentialLR(ExponentialLROptions options);
AnyLRScheduler CosineAnnealingLR(CosineAnnealingLROptions options);
AnyLRScheduler LambdaLR(LambdaLROptions options);
AnyLRScheduler LinearLR(LinearLROptions options);
AnyLRScheduler OneCycleLR(OneCycleLROptions options);
AnyLRScheduler ReduceLROnPlateau(ReduceLROnPlateauOptions options);

}  // namespace troupe::sgd
