#include "tune/run.hpp"

#include "libactor/actor.hpp"
#include "libactor/assert.hpp"
#include "libactor/file.hpp"
#include "libactor/id.hpp"
#include "libactor/limits.hpp"
#include "libactor/log.hpp"
#include "tune/internal/experiment_actor.hpp"
#include "tune/internal/interrupt.hpp"
#include "tune/internal/journal_disk.hpp"
#include "tune/internal/result_files.hpp"
#include "tune/internal/wire.hpp"
#include "tune/naming.hpp"

#include <caf/all.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <system_error>

namespace troupe::tune {
namespace {

using namespace internal;
namespace fs = std::filesystem;

Error wrong(const std::string& sentence) {
  return make_error(Errc::bad_request, "tune::run: " + sentence);
}

/// What others need not be able to do, we must: the umask must leave the owner his permissions.
Result<void> check_umask() {
  std::ifstream status("/proc/self/status");  // umask() would change it meanwhile
  for (std::string word; status >> word;) {
    if (word != "Umask:" || !(status >> word)) continue;
    if ((std::strtol(word.c_str(), nullptr, 8) & 0700) == 0) break;
    return wrong("umask is " + word +
                 ": nobody could use the result files, not even their owner; set it by umask 022");
  }
  return {};
}

/// What can be told before anything is made.
Result<void> check_options(Cluster& cluster, const TrainableSpec& trainable,
                           const RunOptions& options) {
  if (options.metric.empty() && options.mode)
    return wrong("mode is given without metric; set metric too");
  if (!options.metric.empty() && !options.mode)
    return wrong("metric '" + options.metric +
                 "' is given without mode; set mode to tune::Mode::max or tune::Mode::min");
  if (trainable.resources && options.resources_per_trial)
    return wrong("resources_per_trial is given, but " + trainable.name +
                 " says itself what it needs (" + trainable.resources->text() + "); leave it away");
  const std::pair<const char*, std::int64_t> counts[] = {
      {"max_failures", options.max_failures},
      {"max_infrastructure_failures", options.max_infrastructure_failures},
      {"num_samples", options.num_samples}};
  for (const auto& [name, value] : counts)
    if (value < -1)
      return wrong(std::string(name) + " is " + std::to_string(value) + "; -1 means without limit");
  if (options.num_samples == 0)
    return wrong("num_samples is 0: nothing would run; 1 runs the grid once, -1 without end");
  if (options.max_concurrent_trials < 0)
    return wrong("max_concurrent_trials is negative; 0 means no limit");
  if (options.keep_checkpoints_num < 0)
    return wrong("keep_checkpoints_num is negative; 0 keeps all");
  if (options.time_budget.count() < 0 || options.step_timeout.count() < 0)
    return wrong("time_budget and step_timeout must not be negative; 0 means none");
  if (options.checkpoint_freq.steps < -1)
    return wrong("checkpoint_freq is negative; 0 means never");
  if (options.fail_fast && options.max_failures != 0)
    return wrong("fail_fast ends the run at the first failure, so max_failures must be 0");
  if (!options.name.empty())
    if (auto good = check_run_name(options.name); !good)
      return with_context(good.error(), "tune::run");
  if (auto good = check_umask(); !good) return good;
  if (auto space = options.config.check(); !space)
    return with_context(space.error(), "tune::run: config");
  return cluster.could_grant(
      trainable.resources.value_or(options.resources_per_trial.value_or(Resources{})));
}

/// Whether there are trials of a run here, with its journal or without.
bool holds_trials(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (fs::exists(at->path() / "params.json", error)) return true;
  return false;
}

/// The experiment's folder, made if it is not there. `usual_name` is for a run that the user gave
/// none: with a number behind it where another run has taken it already.
Result<fs::path> make_folder(const fs::path& local_dir, const RunOptions& options,
                             const std::string& usual_name) {
  const bool named = !options.name.empty();
  const auto wanted = local_dir / (named ? options.name : usual_name);
  std::error_code error;
  fs::create_directories(local_dir, error);
  auto folder = wanted;
  bool is_new = !error && fs::create_directory(folder, error);
  for (int again = 2; !is_new && !error && !named; ++again) {
    folder = wanted.string() + "_" + std::to_string(again);
    is_new = fs::create_directory(folder, error);
  }
  if (!error) return folder;
  return make_error(Errc::io, "the results can't be written to " + folder.string() + ": " +
                                  error.message() +
                                  "; choose another folder by local_dir or TROUPE_RESULT_DIR");
}

std::string_view name_of(Resume mode) {
  switch (mode) {
    case Resume::no: return "no";
    case Resume::yes: return "yes";
    case Resume::automatic: return "automatic";
    case Resume::errored_only: return "errored_only";
    case Resume::restart_errored: return "restart_errored";
  }
  return "?";
}

double seconds_since_1970(Clock::WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// Whether this program can go on with that run.
Result<void> check_same(const RunBegun& before, const RunBegun& now, const fs::path& folder) {
  const auto differs = [&](const char* what, const std::string& was,
                           const std::string& is) -> Result<void> {
    if (was == is) return {};
    return make_error(Errc::refused, "resume: " + folder.string() + " holds a run with the " +
                                         what + " " + was + ", this program has " + is +
                                         "; give this run another name, or the same " + what);
  };
  if (auto same = differs("trainable", before.trainable, now.trainable); !same) return same;
  if (auto same = differs("metric", before.metric, now.metric); !same) return same;
  if (auto same = differs("search space", before.space, now.space); !same) return same;
  if (auto same = differs("searcher", before.searcher, now.searcher); !same) return same;
  return differs("scheduler", before.scheduler, now.scheduler);
}

/// Trials whose result.json lacks rows that the journal has.
Result<std::set<std::uint64_t>> incomplete_trials(const Experiment& core, const fs::path& folder) {
  std::set<std::uint64_t> found;
  std::error_code error;  // told when its files are read
  for (std::uint64_t trial = 0; trial < core.trial_count(); ++trial) {
    const auto place = folder / core.directory(trial);
    if (core.iteration(trial) == 0 || fs::status(place, error).type() == fs::file_type::not_found)
      continue;
    const auto last = read_last_result(place);
    if (!last) return last.error();
    const auto* written = *last ? (*last)->row.find(kTrainingIteration) : nullptr;
    if ((written && written->is_int() ? written->as_int() : 0) < core.row_iteration(trial))
      found.insert(trial);
  }
  return found;
}

/// A row is in the journal first and then in its trial's files: those that were on their way when
/// the driver died, or the power went, are written now. A folder that somebody has removed stays
/// so.
Result<void> complete_files(const Experiment& core, const fs::path& folder,
                            const fs::path& journal_path) {
  const auto trials = incomplete_trials(core, folder);
  if (!trials) return trials.error();
  if (trials->empty()) return {};
  std::map<std::uint64_t, std::vector<std::string>> rows;  // since the trial's last beginning
  const auto take = [&](const Record& record) -> Result<void> {
    if (const auto* row = std::get_if<ResultRow>(&record); row && trials->contains(row->trial))
      rows[row->trial].push_back(row->row);
    if (const auto* again = std::get_if<TrialReopened>(&record); again && again->from_beginning)
      rows.erase(again->trial);
    return {};
  };
  auto disk = open_journal_file(journal_path, JournalAccess::read_only);
  if (!disk) return disk.error();
  if (auto read = read_journal(**disk, take); !read) return read.error();
  for (const auto& [trial, journalled] : rows) {
    auto files = TrialFiles::open(folder / core.directory(trial), core.config(trial));
    if (!files) return files.error();
    for (const auto& row : journalled) {
      auto values = decode_metrics(row);
      if (!values) return values.error();
      const auto* iteration = values->find(kTrainingIteration);
      if (!iteration || !iteration->is_int() || iteration->as_int() <= (*files)->last_iteration())
        continue;
      if (auto written = (*files)->append(*values); !written) return written;
    }
  }
  return {};
}

/// 32 hexadecimal digits, as Ray's.
std::string new_experiment_id() {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(random_seed()),
                static_cast<unsigned long long>(random_seed()));
  return text;
}

Result<std::unique_ptr<TrialScheduler>> make_scheduler(const RunOptions& options,
                                                       std::uint64_t seed) {
  auto scheduler = options.scheduler.make();
  if (auto begun = scheduler->begin(options.metric, options.mode, seed); !begun)
    return with_context(begun.error(), "tune::run");
  return scheduler;
}

Result<std::unique_ptr<Searcher>> make_searcher(const RunOptions& options, std::uint64_t seed) {
  auto searcher = options.searcher.make();
  auto begun = searcher->begin(options.config, {.num_samples = options.num_samples,
                                                .points_to_evaluate = options.points_to_evaluate,
                                                .metric = options.metric,
                                                .mode = options.mode,
                                                .seed = seed});
  if (!begun) return with_context(begun.error(), "tune::run");
  return searcher;
}

ExperimentSpec experiment_spec(const TrainableSpec& trainable, const RunOptions& options,
                               const std::string& date) {
  return {.metric = options.metric,
          .mode = options.mode,
          .stop = options.stop,
          .time_budget = options.time_budget,
          .step_timeout = options.step_timeout,
          .max_concurrent = options.max_concurrent_trials,
          .keep_checkpoints_num = options.keep_checkpoints_num,
          .checkpoint_score_attr = options.checkpoint_score_attr,
          .fail_fast = options.fail_fast,
          .trainable_name = trainable.name,
          .date = date,
          .defaults = trainable.config};
}

/// The parts that decide. An earlier run's seed replaces that with which they were made first, so
/// that a scheduler or searcher that can't serve this run is told before there is a folder.
Result<void> make_deciders(ExperimentPlan& plan, const RunOptions& options, std::uint64_t seed) {
  auto scheduler = make_scheduler(options, seed);
  if (!scheduler) return scheduler.error();
  auto searcher = make_searcher(options, seed);
  if (!searcher) return searcher.error();
  plan.seed = plan.spec.seed = seed;
  plan.make_scheduler = [options, seed] { return unwrap(make_scheduler(options, seed)); };
  plan.scheduler = std::make_shared<SchedulerState>();
  plan.scheduler->scheduler = std::move(*scheduler);
  plan.core = std::make_unique<Experiment>(plan.spec, std::move(*searcher));
  return {};
}

/// Opens the journal; what an earlier run left there goes into the parts that decide.
Result<void> take_up(ExperimentPlan& plan, const RunOptions& options, RunBegun begun) {
  const auto& folder = plan.info.directory;
  std::error_code error;
  const auto there = fs::symlink_status(plan.journal_path, error).type();  // else told at opening
  if (there == fs::file_type::regular && options.resume == Resume::no)
    return make_error(Errc::refused,
                      folder.string() +
                          " holds a run already; go on with it by resume, or give this run "
                          "another name");
  if (there == fs::file_type::not_found && options.resume != Resume::no &&
      options.resume != Resume::automatic)
    return make_error(
        Errc::not_found,
        "resume: there is no run in " + folder.string() +
            "; check name and local_dir, or use tune::Resume::automatic to begin one");

  const auto feed = [&](const SchedulerEvent& event) { return decide(*plan.scheduler, event); };
  bool resumed = false;
  const auto take = [&](const Record& record) -> Result<void> {
    const auto* before = std::get_if<RunBegun>(&record);
    if (!before) return plan.core->restore(record, feed);
    if (auto same = check_same(*before, begun, folder); !same) return same;
    if (options.seed != 0 && options.seed != before->seed)
      return make_error(Errc::refused, "resume: " + folder.string() +
                                           " holds a run with the seed " +
                                           std::to_string(before->seed) + ", seed is " +
                                           std::to_string(options.seed) +
                                           "; leave seed away, or give this run another name");
    resumed = true;
    begun = *before;
    return make_deciders(plan, options, before->seed);
  };
  auto disk = open_journal_file(plan.journal_path, JournalAccess::write);
  if (!disk) return with_context(disk.error(), "tune::run");
  auto journal = Journal::open(std::move(*disk), take);
  if (!journal) return with_context(journal.error(), plan.journal_path.string());
  plan.journal = std::make_unique<Journal>(std::move(*journal));
  if (!resumed && holds_trials(folder))
    return make_error(Errc::refused,
                      folder.string() +
                          " holds trials, but its journal is gone or empty, so nothing can go on "
                          "with them; move the folder away, or give this run another name");

  plan.experiment_id = begun.experiment_id;
  plan.started = Clock::WallTime(std::chrono::duration_cast<Clock::WallTime::duration>(
      std::chrono::duration<double>(begun.started_s)));
  SystemClock clock;
  auto noted = resumed
                   ? plan.journal->append(RunResumed{.resumed_s = seconds_since_1970(clock.wall()),
                                                     .mode = std::string(name_of(options.resume))})
                   : plan.journal->append(begun);
  if (noted && resumed) {
    noted = complete_files(*plan.core, folder, plan.journal_path);
    if (noted) noted = plan.core->resume(options.resume, feed);
  }
  if (!noted) return with_context(noted.error(), plan.journal_path.string());
  return {};
}

/// Everything that is made before the experiment's actor, and checked.
Result<std::shared_ptr<ExperimentPlan>> make_plan(Cluster& cluster, const TrainableSpec& trainable,
                                                  const RunOptions& options) {
  if (auto good = check_options(cluster, trainable, options); !good) return good.error();
  SystemClock clock;
  const auto date = date_for_name(clock.wall());
  const auto local_dir = results_folder(options.local_dir);
  if (!local_dir) return local_dir.error();

  auto plan = std::make_shared<ExperimentPlan>();
  plan->cluster = &cluster;
  plan->trainable = trainable;
  plan->resources = trainable.resources.value_or(options.resources_per_trial.value_or(Resources{}));
  plan->restart = {.max_failures = options.max_failures,
                   .max_infrastructure_failures = options.max_infrastructure_failures};
  plan->checkpoint_freq = options.checkpoint_freq.steps;
  plan->checkpoint_at_end = options.checkpoint_at_end;
  plan->log_to_driver = options.log_to_driver && options.verbose > 0;
  plan->spec = experiment_spec(trainable, options, date);
  plan->callbacks = options.callbacks;
  plan->reporter =
      options.progress_reporter ? options.progress_reporter : std::make_shared<CLIReporter>();
  auto made = make_deciders(*plan, options, options.seed != 0 ? options.seed : random_seed());
  if (!made) return made.error();

  auto folder = make_folder(*local_dir, options, trainable.name + "_" + date);
  if (!folder) return folder.error();
  const auto name = folder->filename().string();
  plan->info = {.name = name,
                .directory = *folder,
                .metric = options.metric,
                .mode = options.mode,
                .parameters = options.config.variables(),
                .verbose = options.verbose};
  plan->journal_path = *folder / "journal";
  RunBegun begun{.name = name,
                 .experiment_id = new_experiment_id(),
                 .trainable = trainable.name,
                 .seed = plan->seed,
                 .started_s = seconds_since_1970(clock.wall()),
                 .metric = options.metric,
                 .mode = options.mode,
                 .num_samples = options.num_samples,
                 .scheduler = plan->scheduler->scheduler->spec(),
                 .searcher = plan->core->searcher().spec(),
                 .space = options.config.spec()};
  if (auto taken = take_up(*plan, options, std::move(begun)); !taken) return taken.error();
  return plan;
}

}  // namespace

Result<ExperimentAnalysis> run(Cluster& cluster, const TrainableSpec& trainable,
                               const RunOptions& options) {
  TROUPE_ASSERT(message_types_added());
  auto made = make_plan(cluster, trainable, options);
  if (!made) return made.error();
  auto plan = std::move(*made);
  const auto folder = plan->info.directory;
  log_info("experiment begins: folder=" + folder.string() + " seed=" + std::to_string(plan->seed));

  Interrupt interrupt;
  std::promise<Error> end;  // outlives the experiment's actor, which is waited for
  auto ended = end.get_future();
  plan->finished = [&](Error error) {
    end.set_value(std::move(error));
    interrupt.wake();
  };
  auto& system = actor_system(cluster);
  caf::scoped_actor self{system};
  caf::actor experiment;
  constexpr int kThreads = 2;  // the experiment's and its syncer's
  if (auto can = check_threads(kThreads); !can) return with_context(can.error(), "tune::run");
  auto spawned = fence(Errc::io, [&] {
    experiment = self->spawn<caf::detached + caf::monitored>(experiment_actor, plan);
  });
  if (!spawned) return with_context(spawned.error(), "tune::run");
  plan.reset();
  system.registry().put(experiment_atom::value, experiment);
  self->send(experiment, begin_atom_v);
  while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (interrupt.wait(limits::kStatus) == Interrupt::Woken::signal)
      self->send(experiment, interrupt_atom_v,
                 std::string("interrupted by ") + interrupt.signal_name() +
                     "; what was reported is kept, and resume goes on with it");
  }
  const Error error = ended.get();
  self->wait_for(experiment);
  system.registry().erase(experiment_atom::value);
  if (error) return error;
  return ExperimentAnalysis::open(folder);
}

}  // namespace troupe::tune
