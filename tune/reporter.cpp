#include "tune/reporter.hpp"

#include "libactor/output.hpp"
#include "tune/internal/auto_keys.hpp"
#include "tune/internal/format.hpp"
#include "tune/internal/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace troupe::tune {
namespace {

constexpr std::size_t kMaxInferred = 3;     // metric columns that nobody asked for
constexpr std::size_t kMaxWaits = 3;        // reasons why trials are pending
constexpr std::int64_t kLinePeriodS = 5;    // between two lines of one trial
constexpr double kLowMemoryFraction = 0.9;  // of the machine's memory in use
constexpr double kGiB = 1024.0 * 1024 * 1024;

constexpr std::array kAlphabetical = {TrialState::error, TrialState::paused, TrialState::pending,
                                      TrialState::running, TrialState::terminated};
constexpr std::array kTableOrder = {TrialState::running, TrialState::paused, TrialState::pending,
                                    TrialState::terminated, TrialState::error};

const std::vector<ReportColumn>& default_metric_columns() {
  static const std::vector<ReportColumn> columns = {
      {"mean_accuracy", "acc"},       {"mean_loss", "loss"},
      {"training_iteration", "iter"}, {"time_total_s", "total time (s)"},
      {"timesteps_total", "ts"},      {"episode_reward_mean", "reward"}};
  return columns;
}

using Trials = std::vector<const TrialSnapshot*>;

/// Trials by state, each in order of creation.
struct ByState {
  std::array<Trials, kAlphabetical.size()> groups = {};

  explicit ByState(const Trials& trials) {
    for (const auto* trial : trials) of(trial->state).push_back(trial);
  }
  Trials& of(TrialState state) { return groups[static_cast<std::size_t>(state)]; }
  const Trials& of(TrialState state) const { return groups[static_cast<std::size_t>(state)]; }
};

// --- small texts ------------------------------------------------------------------------------

std::string repr(const Value& value) {
  std::string text;
  internal::append_repr(text, value);
  return text;
}

/// As Ray has it: what is taken with a decimal ("2.0", "0.5") unless it is 0, what there is
/// without.
std::string taken_of(Amount taken, Amount total) {
  std::string text = "0";
  if (taken.parts() != 0) {
    text.clear();
    internal::append_double(text, taken.units());
  }
  return fmt::format("{}/{:g}", text, total.units());
}

std::string resources_line(const StatusView& view) {
  std::string line =
      fmt::format("Resources requested: {} CPUs, {} GPUs, {:.1f}/{:.1f} GiB heap",
                  taken_of(view.requested.cpus, view.total.cpus),
                  taken_of(view.requested.gpus.value_or(0), view.total.gpus.value_or(0)),
                  static_cast<double>(view.requested.memory_bytes) / kGiB,
                  static_cast<double>(view.total.memory_bytes) / kGiB);
  std::string custom;
  for (const auto& [name, total] : view.total.custom) {
    const auto taken = view.requested.custom.find(name);
    custom += fmt::format(
        "{}{} {}", custom.empty() ? "" : ", ",
        taken_of(taken == view.requested.custom.end() ? Amount() : taken->second, total), name);
  }
  return custom.empty() ? line : line + " (" + custom + ")";
}

std::string memory_line(const StatusView& view) {
  const auto used = static_cast<double>(view.memory_used_bytes);
  const auto total = static_cast<double>(view.memory_total_bytes);
  std::string line =
      fmt::format("Memory usage on this node: {:.1f}/{:.1f} GiB", used / kGiB, total / kGiB);
  if (used > kLowMemoryFraction * total)
    line +=
        ": ***LOW MEMORY*** less than 10% is left, and the kernel kills processes when there is"
        " none. Run fewer trials at a time (max_concurrent_trials) or give them less.";
  return line;
}

std::string running_for(std::chrono::duration<double> elapsed) {
  const double seconds = elapsed.count();
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  return fmt::format("{:02}:{:02}:{:05.2f}", minutes / 60, minutes % 60,
                     seconds - 60.0 * static_cast<double>(minutes));
}

/// "1 ERROR, 2 RUNNING", states in alphabetical order.
template <class Count>
std::string counts_text(Count&& count) {
  std::string text;
  for (const TrialState state : kAlphabetical)
    if (const std::size_t n = count(state); n > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, name_of(state));
  return text;
}

std::string count_line(const StatusView& view, const ByState& by_state) {
  std::string line = fmt::format("Number of trials: {}", view.trials.size());
  if (view.expected_trials)
    line += *view.expected_trials < 0 ? "/infinite" : fmt::format("/{}", *view.expected_trials);
  const auto counts = counts_text([&](TrialState state) { return by_state.of(state).size(); });
  return counts.empty() ? line : line + " (" + counts + ")";
}

/// Why trials are pending, the commonest reasons first: "2 trials wait: needs cpus=2: 0 of 2 free".
std::vector<std::string> wait_lines(const Trials& pending) {
  std::map<std::string_view, std::size_t> reasons;
  for (const auto* trial : pending)
    if (!trial->waits_for.empty()) reasons[trial->waits_for] += 1;
  std::vector<std::pair<std::string_view, std::size_t>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> lines;
  for (const auto& [reason, count] : std::span(sorted).first(std::min(sorted.size(), kMaxWaits)))
    lines.push_back(fmt::format("{} trial{} wait{}: {}", count, count == 1 ? "" : "s",
                                count == 1 ? "s" : "", reason));
  return lines;
}

// --- parameters and metrics -------------------------------------------------------------------

using Parameters = std::vector<std::pair<std::string, Value>>;

const Value* find(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters)
    if (key == name) return &value;
  return nullptr;
}

/// "{'lr': 0.001, 'units': 16}": those that the experiment varies, or all.
std::string parameters_text(const TrialSnapshot& trial, const std::vector<std::string>& names) {
  std::string text;
  const auto add = [&](const std::string& name, const Value& value) {
    if (!text.empty()) text += ", ";
    text += repr(name) + ": " + repr(value);
  };
  const Parameters all = trial.config.flattened();
  for (const auto& [name, value] : all)
    if (names.empty()) add(name, value);
  for (const auto& name : names)
    if (const Value* value = find(all, name)) add(name, *value);
  return "{" + text + "}";
}

bool is_shown_by_default(std::string_view key) {
  const auto& columns = default_metric_columns();
  return std::any_of(columns.begin(), columns.end(),
                     [&](const auto& column) { return column.key == key; });
}

/// Numbers that the user reports and that have no column yet, the run's metric first.
std::vector<std::string> inferred_metrics(const Trials& trials, const std::string& metric) {
  std::vector<std::string> keys;
  const auto consider = [&](const std::string& key, const Value& value) {
    if (keys.size() < kMaxInferred && value.is_number() && !internal::is_automatic(key) &&
        !is_shown_by_default(key) && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
  };
  for (const auto* trial : trials)
    if (const Value* value = metric.empty() ? nullptr : trial->last_result.find(metric))
      consider(metric, *value);
  for (const auto* trial : trials) {
    if (keys.size() == kMaxInferred) break;
    for (const auto& [key, value] : trial->last_result) consider(key, value);
  }
  return keys;
}

/// NaN and infinities are never best; the first trial wins a tie.
const TrialSnapshot* best_of(const StatusView& view) {
  const auto& [metric, mode] = std::tie(view.experiment.metric, view.experiment.mode);
  if (metric.empty() || !mode) return nullptr;
  const TrialSnapshot* best = nullptr;
  double best_value = 0;
  for (const auto* trial : view.trials) {
    const auto value = trial->last_result.number(metric);
    if (!value || !std::isfinite(*value)) continue;
    if (best && (*mode == Mode::max ? *value <= best_value : *value >= best_value)) continue;
    best = trial;
    best_value = *value;
  }
  return best;
}

// --- tables -----------------------------------------------------------------------------------

/// How many rows each state gets: one to each in turn, in alphabetical order, until all are given
/// out.
std::array<std::size_t, kAlphabetical.size()> share_rows(const ByState& by_state,
                                                         std::size_t budget) {
  std::array<std::size_t, kAlphabetical.size()> shares{};
  for (bool given = true; given;) {
    given = false;
    for (const TrialState state : kAlphabetical) {
      std::size_t& share = shares[static_cast<std::size_t>(state)];
      if (budget == 0 || share == by_state.of(state).size()) continue;
      share += 1;
      budget -= 1;
      given = true;
    }
  }
  return shares;
}

/// Columns are made one by one; those that no row has anything for are left out.
class TableMaker {
 public:
  explicit TableMaker(std::size_t row_count) : rows_(row_count) {}

  void add(const std::string& title, const std::vector<Value>& cells) {
    headers_.push_back(title);
    for (std::size_t i = 0; i < cells.size(); ++i) rows_[i].push_back(cells[i]);
  }
  void add_if_any(const std::string& title, const std::vector<Value>& cells) {
    if (!std::all_of(cells.begin(), cells.end(), [](const auto& cell) { return cell.is_null(); }))
      add(title, cells);
  }
  std::string text() const { return internal::psql_table(headers_, rows_); }

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<Value>> rows_;
};

template <class CellOf>
std::vector<Value> cells_of(const Trials& trials, CellOf&& cell_of) {
  std::vector<Value> cells;
  cells.reserve(trials.size());
  for (const auto* trial : trials) cells.push_back(cell_of(*trial));
  return cells;
}

Value text_or_nothing(const std::string& text) { return text.empty() ? Value() : Value(text); }

std::vector<ReportColumn> parameter_columns(const StatusView& view,
                                            const CLIReporterOptions& options,
                                            const std::vector<Parameters>& parameters) {
  if (!options.parameter_columns.empty()) return options.parameter_columns;
  std::set<std::string> names(view.experiment.parameters.begin(), view.experiment.parameters.end());
  if (names.empty())
    for (const auto& of_trial : parameters)
      for (const auto& [name, value] : of_trial) names.insert(name);
  return {names.begin(), names.end()};
}

std::vector<ReportColumn> metric_columns(const StatusView& view, const CLIReporterOptions& options,
                                         const Trials& shown) {
  if (!options.metric_columns.empty()) return options.metric_columns;
  auto columns = default_metric_columns();
  for (auto& key : inferred_metrics(shown, view.experiment.metric))
    columns.emplace_back(std::move(key));
  return columns;
}

std::string progress_table(const StatusView& view, const CLIReporterOptions& options,
                           const Trials& shown) {
  TableMaker table(shown.size());
  table.add("Trial name", cells_of(shown, [](const auto& trial) { return Value(trial.name); }));
  table.add("status",
            cells_of(shown, [](const auto& trial) { return Value(name_of(trial.state)); }));
  table.add("loc",
            cells_of(shown, [](const auto& trial) { return text_or_nothing(trial.location); }));

  std::vector<Parameters> parameters;
  for (const auto* trial : shown) parameters.push_back(trial->config.flattened());
  for (const auto& column : parameter_columns(view, options, parameters)) {
    std::vector<Value> cells;
    for (const auto& of_trial : parameters) {
      const Value* value = find(of_trial, column.key);
      cells.push_back(value ? *value : Value());
    }
    table.add(column.title, cells);
  }
  for (const auto& column : metric_columns(view, options, shown))
    table.add_if_any(column.title, cells_of(shown, [&](const auto& trial) {
                       const Value* value = trial.last_result.find(column.key);
                       return value ? *value : Value();
                     }));
  table.add_if_any("progress", cells_of(shown, [](const auto& trial) {
                     return text_or_nothing(trial.progress);
                   }));
  return table.text();
}

void append_progress(std::string& out, const StatusView& view, const CLIReporterOptions& options,
                     const ByState& by_state, bool final) {
  const auto shares = share_rows(by_state, final ? view.trials.size() : options.max_progress_rows);
  const auto share = [&](TrialState state) { return shares[static_cast<std::size_t>(state)]; };
  Trials shown;
  for (const TrialState state : kTableOrder)
    for (std::size_t i = 0; i < share(state); ++i) shown.push_back(by_state.of(state)[i]);
  if (!shown.empty()) out += progress_table(view, options, shown) + '\n';
  if (shown.size() < view.trials.size())
    out += fmt::format(
        "... {} more trials not shown ({})\n", view.trials.size() - shown.size(),
        counts_text([&](TrialState state) { return by_state.of(state).size() - share(state); }));
}

void append_errors(std::string& out, const StatusView& view, const CLIReporterOptions& options,
                   bool final) {
  Trials errored;
  for (const auto* trial : view.trials)
    if (!trial->error_file.empty()) errored.push_back(trial);
  if (errored.empty()) return;
  out += fmt::format("Number of errored trials: {}\n", errored.size());

  const std::size_t limit = final ? errored.size() : options.max_error_rows;
  const Trials shown(errored.begin(), errored.begin() + static_cast<std::ptrdiff_t>(
                                                            std::min(limit, errored.size())));
  TableMaker table(shown.size());
  table.add("Trial name", cells_of(shown, [](const auto& trial) { return Value(trial.name); }));
  table.add("# failures",
            cells_of(shown, [](const auto& trial) { return Value(trial.failure_count); }));
  table.add("error file", cells_of(shown, [&](const auto& trial) {
              return Value((view.experiment.directory / trial.error_file).string());
            }));
  if (!shown.empty()) out += table.text() + '\n';
  if (shown.size() < errored.size())
    out += fmt::format("... {} more trials not shown\n", errored.size() - shown.size());
}

/// "loss=0.25,acc=0.9": the first numbers that the user reports.
std::string metrics_text(const TrialResult& result) {
  std::string text;
  std::size_t count = 0;
  for (const auto& [key, value] : result)
    if (value.is_number() && !internal::is_automatic(key) && count++ < kMaxInferred)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, repr(value));
  return text;
}

}  // namespace

std::string render_status(const StatusView& view, const CLIReporterOptions& options, bool tables,
                          bool final) {
  const ByState by_state(view.trials);
  std::string out = "== Status ==\n";
  const auto line = [&](const std::string& text) { out += text + '\n'; };

  if (view.wall)
    line(fmt::format("Current time: {} (running for {})",
                     internal::format_time(*view.wall, "%Y-%m-%d %H:%M:%S"),
                     running_for(view.elapsed)));
  line(memory_line(view));
  line(view.scheduler);
  line(resources_line(view));
  if (const auto* best = best_of(view))
    line(fmt::format("Current best trial: {} with {}={} and parameters={}", best->id,
                     view.experiment.metric, repr(*best->last_result.find(view.experiment.metric)),
                     parameters_text(*best, view.experiment.parameters)));
  line("Result logdir: " + view.experiment.directory.string());
  line(count_line(view, by_state));
  for (const auto& note : view.notes) line("Note: " + note);
  for (const auto& wait : wait_lines(by_state.of(TrialState::pending))) line(wait);
  if (tables) {
    append_progress(out, view, options, by_state, final);
    append_errors(out, view, options, final);
  }
  return out;
}

CLIReporter::CLIReporter(CLIReporterOptions options) : options_(std::move(options)) {
  if (!options_.print) options_.print = print;
}

void CLIReporter::report(const StatusView& view, bool final) {
  const int verbose = view.experiment.verbose;
  if (verbose <= 0) return;
  std::string text = render_status(view, options_, verbose >= 2, final);
  text += '\n';
  if (final)
    text += fmt::format("Total run time: {:.2f} seconds ({:.2f} seconds for the tuning loop).\n",
                        view.elapsed.count(), view.loop_elapsed.count());
  options_.print(text);
}

void CLIReporter::on_experiment_begin(const ExperimentInfo& experiment) {
  experiment_ = experiment;
  last_line_.clear();
  told_done_.clear();
}

void CLIReporter::on_trial_result(const TrialSnapshot& trial, const TrialResult& result) {
  if (experiment_.verbose < 2) return;
  const bool done = result.number(kDone).value_or(0) != 0;
  const auto now = static_cast<std::int64_t>(result.number("timestamp").value_or(0));
  const auto last = last_line_.find(trial.id);
  if (!done && last != last_line_.end() && now - last->second < kLinePeriodS) return;
  last_line_[trial.id] = now;
  if (done) told_done_.insert(trial.id);

  if (experiment_.verbose >= 3) {
    std::string text = "Result for " + trial.name + ":\n";
    for (const auto& [key, value] : result) text += fmt::format("  {}: {}\n", key, repr(value));
    options_.print(text + '\n');
    return;
  }
  const auto value = result.number(experiment_.metric);
  options_.print(fmt::format(
      "Trial {} reported {} with parameters={}.{}\n", trial.name,
      value ? fmt::format("{}={:.2f}", experiment_.metric, *value) : metrics_text(result),
      parameters_text(trial, experiment_.parameters), done ? " This trial completed." : ""));
}

void CLIReporter::on_trial_complete(const TrialSnapshot& trial) {
  last_line_.erase(trial.id);
  if (told_done_.erase(trial.id) > 0 || experiment_.verbose < 2) return;
  options_.print(fmt::format("Trial {} completed. Last result: {}\n", trial.name,
                             metrics_text(trial.last_result)));
}

void CLIReporter::on_trial_error(const TrialSnapshot& trial, std::string_view cause) {
  if (experiment_.verbose < 2) return;
  options_.print(fmt::format("The trial {} errored with parameters={}. Error file: {}\n{}\n",
                             trial.name, parameters_text(trial, experiment_.parameters),
                             (experiment_.directory / trial.error_file).string(), cause));
  if (trial.state == TrialState::error) last_line_.erase(trial.id);
}

}  // namespace troupe::tune
