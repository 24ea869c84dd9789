#pragma once

#include "libactor/clock.hpp"
#include "libactor/limits.hpp"
#include "libactor/resources.hpp"
#include "tune/callback.hpp"
#include "tune/trial.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe::tune {

/// An experiment at one moment, as the status report shows it.
struct StatusView {
  ExperimentInfo experiment = {};
  std::string scheduler = {};  ///< `TrialScheduler::debug_string`
  Resources requested = {.cpus = 0};
  Resources total = {.cpus = 0};
  std::int64_t memory_used_bytes = 0;  ///< of this machine: total less available
  std::int64_t memory_total_bytes = 0;
  std::vector<const TrialSnapshot*> trials = {};  ///< in order of creation; borrowed for the call
  /// All that there will be; -1: endless; nothing: not known.
  std::optional<std::int64_t> expected_trials = {};
  std::optional<Clock::WallTime> wall = {};         ///< now, for people
  std::chrono::duration<double> elapsed = {};       ///< since `tune::run` was called
  std::chrono::duration<double> loop_elapsed = {};  ///< of these, between first and last trial
  std::vector<std::string> notes = {};              ///< "paused: no space left on device"
};

/// Tells how an experiment is going. It hears everything that a callback hears, and gets the whole
/// state now and then.
class ProgressReporter : public Callback {
 public:
  /// From one `report` to the next.
  virtual std::chrono::milliseconds period() const { return limits::kStatus; }
  /// Called every `period()`, and once more with `final` when the experiment has ended.
  virtual void report(const StatusView& view, bool final) = 0;
};

/// A column of the table: the key of a metric or parameter, and what stands above it.
struct ReportColumn {
  ReportColumn(const char* key) : key(key), title(key) {}
  ReportColumn(std::string key) : key(key), title(std::move(key)) {}
  ReportColumn(std::string key, std::string title) : key(std::move(key)), title(std::move(title)) {}
  std::string key;
  std::string title;
};

struct CLIReporterOptions {
  /// Default: acc, loss, iter, total time (s), ts and reward where there are any, and up to three
  /// more numbers that the trials report.
  std::vector<ReportColumn> metric_columns = {};
  std::vector<ReportColumn> parameter_columns = {};  ///< default: `ExperimentInfo::parameters`
  std::size_t max_progress_rows = 20;                ///< no limit in the final report
  std::size_t max_error_rows = 20;
  std::chrono::milliseconds max_report_frequency = limits::kStatus;  ///< between two reports
  std::function<void(std::string_view)> print = {};  ///< default: to standard output, at once
};

/// The status table on a terminal, and a line a result. How much is said, `RunOptions::verbose`
/// tells: 0 nothing; 1 status without table; 2 the table in every status and a line a result (at
/// most one a trial every 5 s); 3 every result whole. (Ray has the table in every status from 3
/// on.)
class CLIReporter final : public ProgressReporter {
 public:
  explicit CLIReporter(CLIReporterOptions options = {});

  std::chrono::milliseconds period() const override { return options_.max_report_frequency; }
  void report(const StatusView& view, bool final) override;

  void on_experiment_begin(const ExperimentInfo& experiment) override;
  void on_trial_result(const TrialSnapshot& trial, const TrialResult& result) override;
  void on_trial_complete(const TrialSnapshot& trial) override;
  void on_trial_error(const TrialSnapshot& trial, std::string_view cause) override;

 private:
  CLIReporterOptions options_;
  ExperimentInfo experiment_;
  std::unordered_map<std::string, std::int64_t> last_line_;  ///< trial to second of its last line
  std::unordered_set<std::string> told_done_;  ///< trials whose last result said that they are done
};

/// The whole report as text, a pure function: tables or not, limited rows or all of them.
std::string render_status(const StatusView& view, const CLIReporterOptions& options, bool tables,
                          bool final);

}  // namespace troupe::tune
