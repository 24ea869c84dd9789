#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"
#include "tune/table.hpp"
#include "tune/trial.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// Which of a trial's values counts when trials are compared.
enum class Scope {
  last,         ///< of its last result that has the metric
  all,          ///< its best ever
  avg,          ///< the mean of all
  last_5_avg,   ///< the mean of the last five
  last_10_avg,  ///< the mean of the last ten
};

/// What "best" means; default: the run's metric and mode.
struct BestOptions {
  std::string metric = {};
  std::optional<Mode> mode = {};
  Scope scope = Scope::last;
};

/// A finished, dead or running experiment, read from its folder.
///
/// NaN and infinities never win and do not enter a mean; the first trial wins a tie.
class ExperimentAnalysis {
 public:
  /// Works without `experiment_state.json` too: then each folder with a `params.json` is a trial.
  /// Errors: not_found when there is neither; corrupt; io.
  static Result<ExperimentAnalysis> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const std::string& metric() const { return metric_; }  ///< empty when the run had none
  std::optional<Mode> mode() const { return mode_; }
  const std::vector<TrialSnapshot>& trials() const { return trials_; }  ///< in order of creation

  /// Borrowed from this object. Errors: bad_request (no metric or mode), not_found ("no trial has
  /// reported 'mean_acuracy'; reported were: …").
  Result<const TrialSnapshot*> best_trial(const BestOptions& best = {}) const;

  /// These throw `Exception` with that error, so that `analysis->best_config().get<double>("lr")`
  /// reads.
  const Config& best_config(const BestOptions& best = {}) const;
  const TrialResult& best_result(const BestOptions& best = {}) const;  ///< that trial's last
  std::filesystem::path best_logdir(const BestOptions& best = {}) const;

  /// Of the best trial: its newest for scope `last`, otherwise the best by the metric among those
  /// that were kept (a warning tells when the best result's own was not).
  Result<CheckpointReader> best_checkpoint(const BestOptions& best = {}) const;
  /// The same for one trial.
  Result<CheckpointReader> best_checkpoint(const TrialSnapshot& trial,
                                           const BestOptions& best = {}) const;

  /// One row a trial: its last result, `config/<key>`, trial_id, experiment_tag,
  /// logdir (relative).
  Table results_df() const;
  /// The same with each trial's best row ever instead of its last.
  Result<Table> dataframe(const std::string& metric, Mode mode) const;
  /// One row a result of one trial. Errors: not_found, io.
  Result<Table> trial_dataframe(std::string_view trial_id) const;

 private:
  ExperimentAnalysis() = default;

  Result<BestOptions> with_defaults(BestOptions best) const;
  Result<std::vector<double>> values_of(const TrialSnapshot& trial, const BestOptions& best) const;
  std::filesystem::path folder_of(const TrialSnapshot& trial) const;
  Error nobody_reported(const std::string& metric) const;

  std::filesystem::path folder_;
  std::string name_;
  std::string metric_;
  std::optional<Mode> mode_;
  std::vector<TrialSnapshot> trials_;
  std::vector<std::string> missing_;  ///< folders of trials that somebody has removed
};

}  // namespace troupe::tune
