#pragma once

#include "libactor/cluster.hpp"
#include "libactor/resources.hpp"
#include "libactor/result.hpp"
#include "tune/analysis.hpp"
#include "tune/callback.hpp"
#include "tune/reporter.hpp"
#include "tune/resume.hpp"
#include "tune/scheduler.hpp"
#include "tune/search_space.hpp"
#include "tune/searcher.hpp"
#include "tune/stopper.hpp"
#include "tune/trainable.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// `checkpoint_freq`: a number of steps, or automatic.
struct CheckpointFreq {
  constexpr CheckpointFreq() = default;                           ///< automatic
  constexpr CheckpointFreq(std::int64_t steps) : steps(steps) {}  ///< every n steps, 0 for never
  constexpr CheckpointFreq(int steps) : steps(steps) {}
  std::int64_t steps =
      -1;  ///< -1: after a step when 30 s have passed and saving cost less than 2 % of the time
};

/// All of an experiment. In this order: what, how long, how many, who decides, where, keeping,
/// telling.
struct RunOptions {
  std::string name = {};    ///< of the folder; default: the trainable's name, date and time
  std::string metric = {};  ///< with `mode`: which result is best
  std::optional<Mode> mode = {};
  SearchSpace config = {};

  Stop stop = {};
  std::chrono::milliseconds time_budget =
      {};  ///< of the whole experiment, resumed time included; 0: none
  std::chrono::milliseconds step_timeout = {};  ///< a step that takes longer is a failure; 0: none

  std::int64_t num_samples = 1;  ///< of each point of the grid; -1: endless, until a stop or budget
  std::int64_t max_concurrent_trials = 0;       ///< 0: as many as there are resources for
  std::vector<Config> points_to_evaluate = {};  ///< these first, each uses up one sample

  AnyScheduler scheduler = {};
  AnySearcher searcher = {};  ///< grid times random
  std::uint64_t seed = 0;     ///< 0: drawn, printed and kept in the journal

  std::optional<Resources> resources_per_trial = {};  ///< default cpus=1
  CheckpointFreq checkpoint_freq = {};
  bool checkpoint_at_end = false;
  std::int64_t keep_checkpoints_num = 1;  ///< the newest always stays beside these; 0: all
  std::string checkpoint_score_attr =
      {};                         ///< "min-loss", "mean_accuracy"; default: the newest are best
  std::int64_t max_failures = 0;  ///< of the user's code, a trial; -1: for ever
  std::int64_t max_infrastructure_failures = 3;  ///< of machine and process, a trial; -1: for ever
  bool fail_fast = false;                        ///< the first trial in ERROR ends the experiment
  Resume resume = Resume::no;
  std::filesystem::path local_dir = {};  ///< default TROUPE_RESULT_DIR, else ~/troupe_results

  std::shared_ptr<ProgressReporter> progress_reporter =
      {};  ///< default: CLIReporter on a terminal and elsewhere
  bool log_to_driver =
      true;  ///< what trials print appears here too, with the trial's name before it
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  int verbose = 2;  ///< 0 silent, 1 status, 2 with the table and a line a result, 3 results whole
};

/// Runs the experiment and blocks until it has ended. Call from `main`'s thread.
///
/// SIGINT, SIGTERM and SIGHUP end it: running trials save after their step, at most
/// limits::kTerminateGrace later they are killed, and `resume` goes on; twice leaves at once.
/// Errors: bad_request and out_of_resources before the first trial, with the option and the way
/// out; bad_request when the first wave fails in `setup` by ConfigError; refused and not_found for
/// a folder that can't be gone on with; user_code by fail_fast; cancelled after a signal; io when
/// the result folder can't be made. Trials in ERROR are no error of the run: see the analysis.
Result<ExperimentAnalysis> run(Cluster& cluster, const TrainableSpec& trainable,
                               const RunOptions& options);

/// The same for a class: `tune::run<MnistTrainable>(cluster, {...})`.
template <class T>
Result<ExperimentAnalysis> run(Cluster& cluster, const RunOptions& options = {}) {
  return run(cluster, trainable<T>(), options);
}

/// The same for a function: `tune::run<&parabola>(cluster, {...})`.
template <auto Function>
Result<ExperimentAnalysis> run(Cluster& cluster, const RunOptions& options = {}) {
  return run(cluster, trainable<Function>(), options);
}

}  // namespace troupe::tune
