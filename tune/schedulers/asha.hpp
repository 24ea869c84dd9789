#pragma once

#include "tune/scheduler.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// What becomes of a trial whose metric is NaN.
enum class NanPolicy {
  ignore,  ///< it goes on and moves no cutoff: Ray's way
  stop,    ///< it ends now, and nothing of it is kept
};

struct ASHAOptions {
  std::string time_attr = std::string(kTrainingIteration);
  std::string metric = {};        ///< default: the run's; both must agree
  std::optional<Mode> mode = {};  ///< default: the run's; both must agree
  double max_t = 100;             ///< in units of time_attr: a trial that is there ends
  double grace_period = 1;        ///< no trial is stopped before this
  double reduction_factor = 4;    ///< of the trials that reach a rung, 1/this go on; may be 1.5
  std::int64_t brackets = 1;      ///< bracket s leaves out the s lowest rungs
  bool stop_last_trials = true;   ///< false: trials go on beyond max_t
  NanPolicy nan_policy = NanPolicy::ignore;
};

/// Asynchronous successive halving, the stopping kind: a trial that reaches a rung (grace_period
/// times a power of reduction_factor) ends when it is worse than the best 1/reduction_factor of the
/// trials that were there before it. Nobody waits for anybody.
///
/// Takes Ray's decisions on the same events (`tune/schedulers/async_hyperband.py`), except:
/// the number of rungs is exact (a float logarithm loses the top one of 1000/10); an infinity in a
/// rung is ranked and never makes the cutoff NaN. As in Ray 1.3 a trial that was told to stop is
/// forgotten at once: its `on_trial_complete` records nothing.
/// Paper: Li et al. 2018, "A System for Massively Parallel Hyperparameter Tuning".
class ASHAScheduler final : public TrialScheduler {
 public:
  explicit ASHAScheduler(ASHAOptions options = {});

  Result<void> begin(const std::string& metric, std::optional<Mode> mode,
                     std::uint64_t seed) override;
  void on_trial_add(const TrialView& trial) override;
  Verdict on_trial_result(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_complete(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_remove(const TrialView& trial) override;
  std::string debug_string() const override;
  std::string spec() const override;
  std::string state() const override;

 private:
  /// The values of all trials that reached one milestone; never shrinks.
  class Rung {
   public:
    explicit Rung(double milestone) : milestone_(milestone) {}

    double milestone() const { return milestone_; }
    /// What the next trial must reach; nothing in an empty rung, NaN in a rung of NaNs.
    std::optional<double> cutoff(double reduction_factor) const;
    void record(std::uint32_t trial, double value);

    struct Record {
      double value;
      std::uint32_t trial;
    };
    const std::vector<Record>& records() const { return records_; }

   private:
    double milestone_;
    std::vector<Record> records_;  // in order of arrival
    std::vector<double> sorted_;   // without NaN; an insert moves 80 KB at most for 10,000 trials
  };
  using Bracket = std::vector<Rung>;  // from the highest milestone to the lowest

  /// A trial that may still report.
  struct Live {
    std::uint32_t number;  // in order of adding
    std::uint32_t bracket;
    std::vector<bool> recorded_in;  // by rung
  };

  Result<void> check_options() const;
  void make_brackets();
  std::uint32_t draw_bracket(std::uint32_t trial_number) const;
  Verdict judge(Live& trial, double t, double value);

  ASHAOptions options_;  // with metric and mode once `begin` has been called
  std::uint64_t seed_ = 0;
  std::vector<Bracket> brackets_;
  std::vector<double> cumulative_;  // chance of bracket 0..s, not normalised
  std::vector<std::string> ids_;    // by number: for `state` only
  std::map<std::string, Live, std::less<>> live_;
  std::int64_t stopped_count_ = 0;
};

/// Ray's long name for it.
using AsyncHyperBandScheduler = ASHAScheduler;

}  // namespace troupe::tune
