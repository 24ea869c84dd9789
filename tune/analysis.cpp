#include "tune/analysis.hpp"

#include "libactor/checkpoint_folder.hpp"
#include "libactor/file.hpp"
#include "libactor/log.hpp"
#include "tune/internal/auto_keys.hpp"
#include "tune/internal/experiment_state.hpp"
#include "tune/internal/result_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

namespace troupe::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxNamesTold = 20;

bool is_better(double value, double than, Mode mode) {
  return mode == Mode::max ? value > than : value < than;
}

// --- opening ----------------------------------------------------------------------------------

/// Fills in what the trial's own files tell.
Result<void> read_trial_files(TrialSnapshot& trial, const fs::path& folder) {
  auto last = internal::read_last_result(folder);
  if (!last) return last.error();
  if (*last) trial.last_result = std::move((*last)->row);
  std::error_code error;
  if (fs::exists(folder / "error.txt", error)) trial.error_file = trial.directory + "/error.txt";

  const auto params =
      read_bounded(folder / "params.json", std::numeric_limits<std::int64_t>::max());
  if (!params && code_of(params.error()) == Errc::not_found) return {};  // it never began
  if (!params) return params.error();
  auto config = Config::from_json(*params);
  if (!config)
    return make_error(Errc::corrupt,
                      (folder / "params.json").string() + ": " + text_of(config.error()));
  trial.config = std::move(*config);
  return {};
}

/// A trial of which there is nothing but its folder: the driver was killed before it wrote
/// `experiment_state.json`.
Result<TrialSnapshot> trial_of_folder(const fs::path& folder) {
  TrialSnapshot trial{.directory = folder.filename().string()};
  if (auto read = read_trial_files(trial, folder); !read) return read.error();
  const Value* id = trial.last_result.find(kTrialId);
  trial.id = id && id->is_text() ? id->as_text() : trial.directory;
  trial.name = trial.directory;
  trial.state = trial.last_result.number(kDone).value_or(0) != 0 ? TrialState::terminated
                                                                 : TrialState::pending;
  return trial;
}

Result<std::vector<TrialSnapshot>> trials_of_folders(const fs::path& experiment) {
  std::vector<TrialSnapshot> trials;
  std::error_code failed;
  for (fs::directory_iterator at(experiment, failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code none;
    if (!fs::exists(at->path() / "params.json", none)) continue;
    auto trial = trial_of_folder(at->path());
    if (!trial) return trial.error();
    trials.push_back(std::move(*trial));
  }
  std::sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return trials;
}

/// A folder name out of a file must not lead elsewhere.
bool is_inside(const fs::path& relative) {
  return relative.is_relative() && std::none_of(relative.begin(), relative.end(),
                                                [](const auto& part) { return part == ".."; });
}

/// missing: gets the folders of trials that have run, and that somebody has removed.
Result<std::vector<TrialSnapshot>> trials_of_state(std::vector<internal::SavedTrial> saved,
                                                   const fs::path& experiment,
                                                   std::vector<std::string>& missing) {
  std::vector<TrialSnapshot> trials;
  trials.reserve(saved.size());
  for (auto& one : saved) {
    if (!is_inside(one.directory))
      return make_error(Errc::corrupt, fmt::format("experiment_state.json: trial {}: directory "
                                                   "'{}' is outside the experiment's folder",
                                                   one.id, one.directory));
    TrialSnapshot trial{.id = std::move(one.id),
                        .name = std::move(one.name),
                        .tag = std::move(one.tag),
                        .directory = std::move(one.directory),
                        .state = one.state,
                        .failure_count = one.failure_count};
    const bool has_begun = one.iteration > 0 || one.state != TrialState::pending;
    std::error_code error;
    if (has_begun && !fs::exists(experiment / trial.directory, error))
      missing.push_back(trial.directory);
    if (!trial.directory.empty())
      if (auto read = read_trial_files(trial, experiment / trial.directory); !read)
        return read.error();
    trials.push_back(std::move(trial));
  }
  return trials;
}

std::string missing_text(const fs::path& experiment, const std::vector<std::string>& missing) {
  std::string names;
  for (std::size_t i = 0; i < missing.size() && i < kMaxNamesTold; ++i)
    names += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > kMaxNamesTold) names += ", …";
  return fmt::format(
      "missing in {}: {} ({} of trials that have run); bring what is missing back, or "
      "run again under another name",
      experiment.string(), names, missing.size());
}

// --- comparing --------------------------------------------------------------------------------

std::vector<double> finite_values(const std::vector<TrialResult>& rows, const std::string& metric) {
  std::vector<double> values;
  for (const auto& row : rows)
    if (const auto value = row.number(metric); value && std::isfinite(*value))
      values.push_back(*value);
  return values;
}

/// Of the last row that has the metric; empty when that is not finite: such a trial has diverged.
std::vector<double> last_value(const std::vector<TrialResult>& rows, const std::string& metric) {
  for (auto row = rows.rbegin(); row != rows.rend(); ++row)
    if (row->number(metric)) return finite_values({*row}, metric);
  return {};
}

double mean_of_last(const std::vector<double>& values, std::size_t count) {
  const std::size_t used = std::min(values.size(), count);
  double sum = 0;
  for (std::size_t i = values.size() - used; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(used);
}

/// A trial's finite values, oldest first, as one number; at least one.
double value_in_scope(const std::vector<double>& values, Scope scope, Mode mode) {
  switch (scope) {
    case Scope::last: return values.back();
    case Scope::all:
      return mode == Mode::max ? *std::max_element(values.begin(), values.end())
                               : *std::min_element(values.begin(), values.end());
    case Scope::avg: return mean_of_last(values, values.size());
    case Scope::last_5_avg: return mean_of_last(values, 5);
    case Scope::last_10_avg: return mean_of_last(values, 10);
  }
  return values.back();
}

/// The row with the best finite value; nullptr when there is none. The first wins a tie.
const TrialResult* best_row(const std::vector<TrialResult>& rows, const std::string& metric,
                            Mode mode) {
  const TrialResult* best = nullptr;
  double best_value = 0;
  for (const auto& row : rows) {
    const auto value = row.number(metric);
    if (!value || !std::isfinite(*value)) continue;
    if (best && !is_better(*value, best_value, mode)) continue;
    best = &row;
    best_value = *value;
  }
  return best;
}

/// Complete checkpoints of a trial: iteration to folder.
std::map<std::int64_t, fs::path> kept_checkpoints(const fs::path& trial_folder) {
  std::map<std::int64_t, fs::path> kept;
  std::error_code failed;
  for (fs::directory_iterator at(trial_folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (const auto iteration = iteration_of_name(at->path().filename().string()))
      kept.emplace(*iteration, at->path());
  }
  return kept;
}

// --- tables -----------------------------------------------------------------------------------

/// Rows with different keys under common columns, in order of first appearance.
class TableBuilder {
 public:
  void begin_row() { table_.rows.emplace_back(table_.columns.size()); }
  void add(const std::string& column, const Value& value) {
    const auto [found, is_new] = index_.try_emplace(column, table_.columns.size());
    if (is_new) table_.columns.push_back(column);
    auto& row = table_.rows.back();
    if (row.size() <= found->second) row.resize(found->second + 1);
    row[found->second] = value;
  }
  Table finish() && {
    for (auto& row : table_.rows) row.resize(table_.columns.size());
    return std::move(table_);
  }

 private:
  Table table_;
  std::map<std::string, std::size_t> index_;
};

void add_trial_row(TableBuilder& builder, const TrialSnapshot& trial, const TrialResult& result) {
  builder.begin_row();
  builder.add(std::string(kTrialId), trial.id);
  for (const auto& [key, value] : result)
    if (key != kTrialId) builder.add(key, value);
  for (const auto& [key, value] : trial.config.flattened()) builder.add("config/" + key, value);
  builder.add("experiment_tag", trial.tag);
  builder.add("logdir", trial.directory);
}

}  // namespace

Result<ExperimentAnalysis> ExperimentAnalysis::open(const fs::path& folder) {
  ExperimentAnalysis analysis;
  analysis.folder_ = folder;
  analysis.name_ = folder.filename().string();
  auto state = internal::read_experiment_state(folder);
  if (!state && code_of(state.error()) != Errc::not_found) return state.error();

  auto trials = state ? trials_of_state(std::move(state->trials), folder, analysis.missing_)
                      : trials_of_folders(folder);
  if (!trials) return trials.error();
  if (!analysis.missing_.empty()) log_warn(missing_text(folder, analysis.missing_));
  if (!state && trials->empty())
    return make_error(Errc::not_found,
                      folder.string() +
                          ": is no experiment: it has neither experiment_state.json "
                          "nor a trial's folder; give <local_dir>/<name>");
  if (state) {
    analysis.name_ = state->name;
    analysis.metric_ = state->metric;
    analysis.mode_ = state->mode;
  }
  analysis.trials_ = std::move(*trials);
  return analysis;
}

fs::path ExperimentAnalysis::folder_of(const TrialSnapshot& trial) const {
  return folder_ / trial.directory;
}

Result<BestOptions> ExperimentAnalysis::with_defaults(BestOptions best) const {
  if (best.metric.empty()) best.metric = metric_;
  if (!best.mode) best.mode = mode_;
  if (best.metric.empty())
    return make_error(Errc::bad_request,
                      "the run had no metric, so say which: {.metric = …, .mode = …}");
  if (!best.mode)
    return make_error(Errc::bad_request,
                      "the run had no mode, so say whether a small or a large '" + best.metric +
                          "' is best: {.mode = …}");
  return best;
}

Error ExperimentAnalysis::nobody_reported(const std::string& metric) const {
  std::set<std::string> names;
  bool reported = false;
  for (const auto& trial : trials_)
    for (const auto& [key, value] : trial.last_result) {
      reported = reported || (key == metric && !value.is_null());
      if (value.is_number() && !internal::is_automatic(key)) names.insert(key);
    }
  if (reported)
    return make_error(Errc::not_found, "no trial has reported a finite number as '" + metric + "'");
  if (names.empty() && !missing_.empty())
    return make_error(Errc::not_found, "there is no result with '" + metric + "'; " +
                                           missing_text(folder_, missing_));
  std::string failed;
  for (const auto& trial : trials_)
    if (trial.state == TrialState::error && failed.empty())
      failed = "; trial " + trial.id + " failed, see " +
               (folder_ / trial.directory / "error.txt").string();
  std::string told;
  std::size_t count = 0;
  for (const auto& name : names)
    if (count++ < kMaxNamesTold) told += (told.empty() ? "" : ", ") + name;
  if (names.size() > kMaxNamesTold) told += ", …";
  return make_error(Errc::not_found,
                    "no trial has reported '" + metric + "'; " +
                        (told.empty() ? "nothing was reported" : "reported were: " + told) +
                        failed);
}

/// What counts of a trial in this scope, oldest first; without reading its rows where its last
/// result is enough.
Result<std::vector<double>> ExperimentAnalysis::values_of(const TrialSnapshot& trial,
                                                          const BestOptions& best) const {
  if (best.scope == Scope::last && trial.last_result.number(best.metric))
    return last_value({trial.last_result}, best.metric);
  const auto rows = internal::read_results(folder_of(trial));
  if (!rows) return rows.error();
  return best.scope == Scope::last ? last_value(*rows, best.metric)
                                   : finite_values(*rows, best.metric);
}

Result<const TrialSnapshot*> ExperimentAnalysis::best_trial(const BestOptions& options) const {
  const auto best = with_defaults(options);
  if (!best) return best.error();
  const TrialSnapshot* winner = nullptr;
  double winner_value = 0;
  for (const auto& trial : trials_) {
    const auto values = values_of(trial, *best);
    if (!values) return values.error();
    if (values->empty()) continue;
    const double value = value_in_scope(*values, best->scope, *best->mode);
    if (winner && !is_better(value, winner_value, *best->mode)) continue;
    winner = &trial;
    winner_value = value;
  }
  if (!winner) return nobody_reported(best->metric);
  return winner;
}

const Config& ExperimentAnalysis::best_config(const BestOptions& best) const {
  return unwrap(best_trial(best))->config;
}

const TrialResult& ExperimentAnalysis::best_result(const BestOptions& best) const {
  return unwrap(best_trial(best))->last_result;
}

fs::path ExperimentAnalysis::best_logdir(const BestOptions& best) const {
  return folder_of(*unwrap(best_trial(best)));
}

Result<CheckpointReader> ExperimentAnalysis::best_checkpoint(const BestOptions& best) const {
  const auto trial = best_trial(best);
  if (!trial) return trial.error();
  return best_checkpoint(**trial, best);
}

Result<CheckpointReader> ExperimentAnalysis::best_checkpoint(const TrialSnapshot& trial,
                                                             const BestOptions& options) const {
  const fs::path folder = folder_of(trial);
  const auto kept = kept_checkpoints(folder);
  if (kept.empty())
    return make_error(Errc::not_found, "trial " + trial.id + " has no checkpoint in " +
                                           folder.string() +
                                           "; checkpoint_at_end = true keeps one of each trial");
  if (options.scope == Scope::last) return CheckpointReader::open(kept.rbegin()->second);

  const auto best = with_defaults(options);
  if (!best) return best.error();
  auto rows = internal::read_results(folder);
  if (!rows) return rows.error();
  const TrialResult* ever = best_row(*rows, best->metric, *best->mode);
  const auto iteration_of = [](const TrialResult& row) {
    return static_cast<std::int64_t>(row.number(kTrainingIteration).value_or(0));
  };
  const std::int64_t wanted = ever ? iteration_of(*ever) : 0;
  std::erase_if(*rows, [&](const auto& row) { return !kept.contains(iteration_of(row)); });
  const TrialResult* among_kept = best_row(*rows, best->metric, *best->mode);
  const std::int64_t taken = among_kept ? iteration_of(*among_kept) : kept.rbegin()->first;
  if (taken != wanted)
    log_warn(
        fmt::format("best checkpoint is not of the best result, which was not kept: trial={} "
                    "metric={} iteration={} best_iteration={}",
                    trial.id, best->metric, taken, wanted));
  return CheckpointReader::open(kept.at(taken));
}

Table ExperimentAnalysis::results_df() const {
  TableBuilder builder;
  for (const auto& trial : trials_) add_trial_row(builder, trial, trial.last_result);
  return std::move(builder).finish();
}

Result<Table> ExperimentAnalysis::dataframe(const std::string& metric, Mode mode) const {
  TableBuilder builder;
  for (const auto& trial : trials_) {
    const auto rows = internal::read_results(folder_of(trial));
    if (!rows) return rows.error();
    const TrialResult* best = best_row(*rows, metric, mode);
    add_trial_row(builder, trial, best ? *best : trial.last_result);
  }
  return std::move(builder).finish();
}

Result<Table> ExperimentAnalysis::trial_dataframe(std::string_view trial_id) const {
  const auto trial = std::find_if(trials_.begin(), trials_.end(),
                                  [&](const auto& one) { return one.id == trial_id; });
  if (trial == trials_.end())
    return make_error(Errc::not_found,
                      fmt::format("no trial '{}' in {}", trial_id, folder_.string()));
  const auto rows = internal::read_results(folder_of(*trial));
  if (!rows) return rows.error();
  TableBuilder builder;
  for (const auto& row : *rows) {
    builder.begin_row();
    for (const auto& [key, value] : row) builder.add(key, value);
  }
  return std::move(builder).finish();
}

}  // namespace troupe::tune
