#include "sgd/lr_scheduler.hpp"

#include "sgd/internal/blob_name.hpp"
#include "sgd/internal/refuse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <torch/torch.h>

// A scheduler `lr` becomes
//   lr              "StepLR"
//   lr/steps        number of steps
//   lr/groups       number of parameter groups
//   lr/0/initial    the rate of group 0 at `bind`
//   lr/best, lr/bad, lr/cooldown   of ReduceLROnPlateau
namespace troupe::sgd {
namespace {

using internal::blob_name;

using internal::refuse;

/// Throws unless the option is possible; NaN never is.
void check(bool possible, std::string_view option, double value, std::string_view allowed) {
  if (!possible)
    refuse(std::string(option) + " is " + c10::str(value) + "; it must be " + std::string(allowed));
}
void check_at_least(std::string_view option, std::int64_t value, std::int64_t least) {
  check(value >= least, option, static_cast<double>(value), std::to_string(least) + " or more");
}
void check_positive(std::string_view option, double value) {
  check(value > 0 && std::isfinite(value), option, value, "above 0");
}
void check_not_negative(std::string_view option, double value) {
  check(value >= 0 && std::isfinite(value), option, value, "0 or more");
}
void check_fraction(std::string_view option, double value) {
  check(value >= 0 && value <= 1, option, value, "from 0 to 1");
}

/// The rate depends on the initial one and the number of steps alone.
class Scheduled : public LRScheduler {
 protected:
  using LRScheduler::LRScheduler;
  virtual double rate(double initial) const = 0;
  void update(std::optional<double>) override {
    auto& groups = optimizer().param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) groups[g].options().set_lr(rate(initial(g)));
  }
};

class Step final : public Scheduled {
 public:
  explicit Step(StepLROptions options) : Scheduled("StepLR"), options_(options) {
    check_at_least("StepLR: step_size", options_.step_size, 1);
    check_positive("StepLR: gamma", options_.gamma);
  }

 private:
  double rate(double initial) const override {
    return initial * std::pow(options_.gamma, step_count() / options_.step_size);
  }
  StepLROptions options_;
};

class MultiStep final : public Scheduled {
 public:
  explicit MultiStep(MultiStepLROptions options)
      : Scheduled("MultiStepLR"), options_(std::move(options)) {
    for (const auto milestone : options_.milestones)
      check_at_least("MultiStepLR: a milestone", milestone, 0);
    check_positive("MultiStepLR: gamma", options_.gamma);
  }

 private:
  double rate(double initial) const override {
    const auto passed =
        std::count_if(options_.milestones.begin(), options_.milestones.end(),
                      [this](std::int64_t milestone) { return milestone <= step_count(); });
    return initial * std::pow(options_.gamma, passed);
  }
  MultiStepLROptions options_;
};

class Exponential final : public Scheduled {
 public:
  explicit Exponential(ExponentialLROptions options)
      : Scheduled("ExponentialLR"), options_(options) {
    check_positive("ExponentialLR: gamma", options_.gamma);
  }

 private:
  double rate(double initial) const override {
    return initial * std::pow(options_.gamma, step_count());
  }
  ExponentialLROptions options_;
};

/// From `start` at 0 to `end` at 1.
double anneal(Anneal form, double start, double end, double at) {
  if (form == Anneal::linear) return start + (end - start) * at;
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * at));
}

class CosineAnnealing final : public Scheduled {
 public:
  explicit CosineAnnealing(CosineAnnealingLROptions options)
      : Scheduled("CosineAnnealingLR"), options_(options) {
    check_at_least("CosineAnnealingLR: t_max", options_.t_max, 1);
    check_not_negative("CosineAnnealingLR: eta_min", options_.eta_min);
  }

 private:
  double rate(double initial) const override {
    const double at = static_cast<double>(step_count()) / static_cast<double>(options_.t_max);
    return anneal(Anneal::cosine, initial, options_.eta_min, at);
  }
  CosineAnnealingLROptions options_;
};

class Lambda final : public Scheduled {
 public:
  explicit Lambda(LambdaLROptions options) : Scheduled("LambdaLR"), options_(std::move(options)) {
    if (!options_.factor) refuse("LambdaLR: factor is empty");
  }

 private:
  double rate(double initial) const override { return initial * options_.factor(step_count()); }
  LambdaLROptions options_;
};

class Linear final : public Scheduled {
 public:
  explicit Linear(LinearLROptions options) : Scheduled("LinearLR"), options_(options) {
    check_fraction("LinearLR: start_factor", options_.start_factor);
    check_fraction("LinearLR: end_factor", options_.end_factor);
    check_at_least("LinearLR: total_iters", options_.total_iters, 1);
  }

 private:
  double rate(double initial) const override {
    const double at = static_cast<double>(std::min(step_count(), options_.total_iters)) /
                      static_cast<double>(options_.total_iters);
    return initial * anneal(Anneal::linear, options_.start_factor, options_.end_factor, at);
  }
  LinearLROptions options_;
};

/// Throws for optimizers without any.
void set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  using namespace torch::optim;
  const auto set_beta = [&](auto& adam) {
    adam.betas(std::make_tuple(momentum, std::get<1>(adam.betas())));
  };
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options))
    sgd->momentum(momentum);
  else if (auto* rmsprop = dynamic_cast<RMSpropOptions*>(&options))
    rmsprop->momentum(momentum);
  else if (auto* adam = dynamic_cast<AdamOptions*>(&options))
    set_beta(*adam);
  else if (auto* adamw = dynamic_cast<AdamWOptions*>(&options))
    set_beta(*adamw);
  else
    refuse("OneCycleLR: the optimizer has neither momentum nor betas; set cycle_momentum to false");
}

class OneCycle final : public LRScheduler {
 public:
  explicit OneCycle(OneCycleLROptions options) : LRScheduler("OneCycleLR"), options_(options) {
    check_positive("OneCycleLR: max_lr", options_.max_lr);
    check_at_least("OneCycleLR: total_steps", options_.total_steps, 1);
    check_fraction("OneCycleLR: pct_start", options_.pct_start);
    if (options_.three_phase)
      check(options_.pct_start <= 0.5, "OneCycleLR: pct_start", options_.pct_start,
            "at most 0.5 with three_phase");
    check_positive("OneCycleLR: div_factor", options_.div_factor);
    check_positive("OneCycleLR: final_div_factor", options_.final_div_factor);
    check_fraction("OneCycleLR: base_momentum", options_.base_momentum);
    check_fraction("OneCycleLR: max_momentum", options_.max_momentum);
    const double first = options_.max_lr / options_.div_factor;
    const double last = first / options_.final_div_factor;
    const auto total = static_cast<double>(options_.total_steps);
    const double low = options_.base_momentum;
    const double high = options_.max_momentum;
    phases_.push_back({options_.pct_start * total - 1, {first, options_.max_lr}, {high, low}});
    if (options_.three_phase) {
      phases_.push_back(
          {2 * options_.pct_start * total - 2, {options_.max_lr, first}, {low, high}});
      phases_.push_back({total - 1, {first, last}, {high, high}});
    } else {
      phases_.push_back({total - 1, {options_.max_lr, last}, {low, high}});
    }
  }

 private:
  struct Range {
    double start = 0;
    double end = 0;
  };
  struct Phase {
    double end_step = 0;
    Range rate = {};
    Range momentum = {};
  };

  void update(std::optional<double>) override {
    if (step_count() > options_.total_steps)
      refuse("OneCycleLR: step " + std::to_string(step_count()) + " of " +
             std::to_string(options_.total_steps) +
             "; set total_steps to all steps of the training");
    const auto step = std::min(static_cast<double>(step_count()), phases_.back().end_step);
    double begin = 0;
    std::size_t at = 0;
    while (at + 1 < phases_.size() && step > phases_[at].end_step) begin = phases_[at++].end_step;
    const Phase& phase = phases_[at];
    const double length = phase.end_step - begin;
    const double part = length == 0 ? 1 : (step - begin) / length;
    for (auto& group : optimizer().param_groups()) {
      group.options().set_lr(anneal(options_.anneal, phase.rate.start, phase.rate.end, part));
      if (options_.cycle_momentum)
        set_momentum(group.options(),
                     anneal(options_.anneal, phase.momentum.start, phase.momentum.end, part));
    }
  }

  OneCycleLROptions options_;
  std::vector<Phase> phases_ = {};
};

class Plateau final : public LRScheduler {
 public:
  explicit Plateau(ReduceLROnPlateauOptions options)
      : LRScheduler("ReduceLROnPlateau"), options_(options), best_(worst()) {
    check(options_.factor >= 0 && options_.factor < 1, "ReduceLROnPlateau: factor", options_.factor,
          "at least 0 and below 1");
    check_at_least("ReduceLROnPlateau: patience", options_.patience, 0);
    check_at_least("ReduceLROnPlateau: cooldown", options_.cooldown, 0);
    check_not_negative("ReduceLROnPlateau: threshold", options_.threshold);
    check_not_negative("ReduceLROnPlateau: min_lr", options_.min_lr);
    check_not_negative("ReduceLROnPlateau: eps", options_.eps);
  }

  void save(CheckpointWriter& out, std::string_view name) const override {
    LRScheduler::save(out, name);
    out.number(blob_name(name, "best"), best_);
    out.integer(blob_name(name, "bad"), bad_);
    out.integer(blob_name(name, "cooldown"), cooldown_);
  }

  void load(const CheckpointReader& in, std::string_view name) override {
    const double best = in.number(blob_name(name, "best"));
    const std::int64_t bad = in.integer(blob_name(name, "bad"));
    const std::int64_t cooldown = in.integer(blob_name(name, "cooldown"));
    LRScheduler::load(in, name);
    best_ = best;
    bad_ = bad;
    cooldown_ = cooldown;
  }

 private:
  double worst() const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return options_.mode == PlateauMode::min ? infinity : -infinity;
  }

  bool better(double metric) const {
    const double sign = options_.mode == PlateauMode::min ? -1 : 1;
    const double bar = options_.threshold_mode == Threshold::relative
                           ? best_ * (1 + sign * options_.threshold)
                           : best_ + sign * options_.threshold;
    return options_.mode == PlateauMode::min ? metric < bar : metric > bar;
  }

  void update(std::optional<double> metric) override {
    if (step_count() == 0) return;
    if (!metric)
      refuse(
          "ReduceLROnPlateau: a step needs a metric; set scheduler_step to manual and call "
          "update_scheduler(metric)");
    if (better(*metric)) {
      best_ = *metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooldown_ > 0) {
      --cooldown_;
      bad_ = 0;
    }
    if (bad_ <= options_.patience) return;
    bad_ = 0;
    cooldown_ = options_.cooldown;
    for (auto& group : optimizer().param_groups()) {
      const double rate = group.options().get_lr();
      const double lower = std::max(rate * options_.factor, options_.min_lr);
      if (rate - lower > options_.eps) group.options().set_lr(lower);
    }
  }

  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0;       ///< steps since the best
  std::int64_t cooldown_ = 0;  ///< steps that are left of it
};

template <class Kind>
AnyLRScheduler make(auto options) {
  return AnyLRScheduler(std::make_shared<Kind>(std::move(options)));
}

}  // namespace

void LRScheduler::bind(torch::optim::Optimizer& optimizer) {
  if (optimizer_ != nullptr) refuse(std::string(kind_) + ": it has an optimizer already");
  optimizer_ = &optimizer;
  initial_ = rates();
  update({});
}

void LRScheduler::step(std::optional<double> metric) {
  ++steps_;
  update(metric);
}

torch::optim::Optimizer& LRScheduler::optimizer() const {
  if (optimizer_ == nullptr) refuse(std::string(kind_) + ": it has no optimizer yet");
  return *optimizer_;
}

std::vector<double> LRScheduler::rates() const {
  std::vector<double> all;
  for (const auto& group : optimizer().param_groups()) all.push_back(group.options().get_lr());
  return all;
}

void LRScheduler::save(CheckpointWriter& out, std::string_view name) const {
  out.text(name, kind_);
  out.integer(blob_name(name, "steps"), steps_);
  out.integer(blob_name(name, "groups"), std::ssize(initial_));
  for (std::size_t g = 0; g < initial_.size(); ++g)
    out.number(blob_name(name, std::to_string(g) + "/initial"), initial_[g]);
}

void LRScheduler::load(const CheckpointReader& in, std::string_view name) {
  const std::string kind = in.text(name);
  if (kind != kind_)
    refuse("checkpoint: '" + std::string(name) + "' is the state of " + kind + ", not of " +
           std::string(kind_));
  const std::int64_t steps = in.integer(blob_name(name, "steps"));
  const std::int64_t groups = in.integer(blob_name(name, "groups"));
  if (groups != std::ssize(initial_))
    refuse("checkpoint: '" + std::string(name) + "' is for " + std::to_string(groups) +
           " parameter groups, the optimizer has " + std::to_string(initial_.size()));
  if (steps < 0)
    refuse("checkpoint: '" + std::string(name) + "' has made " + std::to_string(steps) + " steps");
  std::vector<double> initial;
  for (std::size_t g = 0; g < initial_.size(); ++g)
    initial.push_back(in.number(blob_name(name, std::to_string(g) + "/initial")));
  steps_ = steps;
  initial_ = std::move(initial);
}

AnyLRScheduler StepLR(StepLROptions options) { return make<Step>(options); }
AnyLRScheduler MultiStepLR(MultiStepLROptions options) {
  return make<MultiStep>(std::move(options));
}
AnyLRScheduler ExponentialLR(ExponentialLROptions options) { return make<Exponential>(options); }
AnyLRScheduler CosineAnnealingLR(CosineAnnealingLROptions options) {
  return make<CosineAnnealing>(options);
}
AnyLRScheduler LambdaLR(LambdaLROptions options) { return make<Lambda>(std::move(options)); }
AnyLRScheduler LinearLR(LinearLROptions options) { return make<Linear>(options); }
AnyLRScheduler OneCycleLR(OneCycleLROptions options) { return make<OneCycle>(options); }
AnyLRScheduler ReduceLROnPlateau(ReduceLROnPlateauOptions options) {
  return make<Plateau>(options);
}

}  // namespace troupe::sgd
