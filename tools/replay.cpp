#include "tools/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "tune/schedulers/asha.hpp"

namespace troupe::tools {
namespace {

using namespace tune;
using nlohmann::json;

// --- comparing ------------------------------------------------------------------------------

bool same_number(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

/// A number, or one of the texts that stand for numbers that JSON lacks.
std::optional<double> as_number(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  auto text = value.get<std::string>();
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (text == "nan") return std::nan("");
  if (text == "inf" || text == "infinity") return infinity;
  if (text == "-inf" || text == "-infinity") return -infinity;
  return std::nullopt;
}

/// Equal but for the last digits of numbers in the text.
bool same_text(std::string_view a, std::string_view b) {
  const auto number_at = [](std::string_view& text) -> std::optional<double> {
    double value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  };
  while (!a.empty() && !b.empty()) {
    auto after_a = a, after_b = b;
    const auto number_a = number_at(after_a), number_b = number_at(after_b);
    if (number_a && number_b) {
      if (!same_number(*number_a, *number_b)) return false;
      a = after_a, b = after_b;
    } else {
      if (a.front() != b.front()) return false;
      a.remove_prefix(1), b.remove_prefix(1);
    }
  }
  return a.empty() && b.empty();
}

bool same(const json& a, const json& b) {
  if (a.empty() && b.empty()) return true;  // null, [] and {}: there was none
  const auto number_a = as_number(a), number_b = as_number(b);
  if (number_a && number_b) return same_number(*number_a, *number_b);
  if (a.is_string() && b.is_string())
    return same_text(a.get_ref<const std::string&>(), b.get_ref<const std::string&>());
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      if (!b.contains(key) || !same(value, b[key])) return false;
    return a.size() == b.size();
  }
  return a == b;
}

// --- schedulers by name ---------------------------------------------------------------------

template <class T>
void take(json& params, const char* name, T& into) {
  if (const auto found = params.find(name); found != params.end()) {
    into = found->template get<T>();
    params.erase(found);
  }
}

struct Subject {
  std::unique_ptr<TrialScheduler> scheduler;
  std::string metric = "m";
  std::optional<Mode> mode = {};
  std::string time_attr = std::string(kTrainingIteration);
};

/// An Error of Errc::not_found is a scheduler or option that is unsupported.
Result<Subject> make_subject(const std::string& name, json params) {
  Subject subject;
  std::string mode;
  take(params, "metric", subject.metric);
  take(params, "time_attr", subject.time_attr);
  take(params, "mode", mode);
  if (!mode.empty() && mode != "min" && mode != "max")
    return make_error(Errc::bad_request, fmt::format("mode '{}' is neither min nor max", mode));
  if (!mode.empty()) subject.mode = mode == "min" ? Mode::min : Mode::max;

  if (name == "AsyncHyperBandScheduler" || name == "ASHAScheduler") {
    ASHAOptions options{.time_attr = subject.time_attr};
    std::string nan_policy = "ignore";
    take(params, "max_t", options.max_t);
    take(params, "grace_period", options.grace_period);
    take(params, "reduction_factor", options.reduction_factor);
    take(params, "brackets", options.brackets);
    take(params, "stop_last_trials", options.stop_last_trials);
    take(params, "nan_policy", nan_policy);
    options.nan_policy = nan_policy == "stop" ? NanPolicy::stop : NanPolicy::ignore;
    subject.scheduler = std::make_unique<ASHAScheduler>(options);
  } else if (name == "FIFOScheduler") {
    subject.scheduler = std::make_unique<FIFOScheduler>();
  } else {
    return make_error(Errc::not_found, fmt::format("there is no {} yet", name));
  }
  if (!params.empty())
    return make_error(Errc::not_found,
                      fmt::format("{} has no option '{}'", name, params.items().begin().key()));
  return subject;
}

// --- one case -------------------------------------------------------------------------------

/// "rung=1 cutoff=none value=0.9" as the case file writes it: larger is better.
json why_of(const std::string& text, Mode mode) {
  const double sign = mode == Mode::min ? -1 : 1;
  json why = json::object();
  const auto take = [&](const char* key, const std::string& name, double factor) {
    const auto at = text.find(name + "=");
    if (at == std::string::npos) return;
    const char* begin = text.c_str() + at + name.size() + 1;
    char* end = nullptr;
    const double value = factor * std::strtod(begin, &end);
    why[key] = end == begin           ? json()
               : std::isfinite(value) ? json(value)
                                      : json(fmt::to_string(value));
  };
  take("rung", "rung", 1);
  take("cutoff_before_signed", "cutoff", sign);
  take("value_signed", "value", sign);
  return why;
}

/// What the runner of a case knows: which trials there are and what state each is in.
class Runner {
 public:
  explicit Runner(Subject subject) : subject_(std::move(subject)) {}

  /// Applies one event; what came of it, under the names that cases use after "expect_".
  Result<json> apply(const json& event);
  json final_status() const;
  const TrialScheduler& scheduler() const { return *subject_.scheduler; }
  Result<void> begin() { return subject_.scheduler->begin(subject_.metric, subject_.mode, 1); }

 private:
  struct Trial {
    std::string id;
    Config config;
    std::string state;
    TrialView view() const { return {.id = id, .config = config}; }
  };

  Trial* find(const std::string& id);
  Result<TrialResult> result_of(const json& event) const;
  json apply(const Verdict& verdict);
  json choose();

  Subject subject_;
  std::vector<std::unique_ptr<Trial>> trials_;  // in order of adding
};

Runner::Trial* Runner::find(const std::string& id) {
  for (auto& trial : trials_)
    if (trial->id == id) return trial.get();
  return nullptr;
}

Result<TrialResult> Runner::result_of(const json& event) const {
  TrialResult result;
  const auto set = [&](const std::string& name, const char* key) {
    const auto value = event.find(key);
    if (value == event.end()) return;
    if (const auto number = as_number(*value))
      result.set(name, *number);
    else
      result.set(name, value->is_null() ? Value() : Value(value->get<std::string>()));
  };
  set(subject_.time_attr, "t");
  set(subject_.metric, "metric");
  return result;
}

json Runner::apply(const Verdict& verdict) {
  const auto set_all = [this](const std::vector<std::string>& ids, const char* state) {
    for (const auto& id : ids)
      if (auto* trial = find(id)) trial->state = state;
  };
  set_all(verdict.stop, "TERMINATED");
  set_all(verdict.resume, "PENDING");
  json outcome = json::object();
  const auto tell = [&](const char* name, std::vector<std::string> ids) {
    std::sort(ids.begin(), ids.end());
    if (!ids.empty()) outcome[name] = ids;
  };
  tell("also_stopped", verdict.stop);
  tell("resumed", verdict.resume);
  tell("checkpoint_requested_for", verdict.checkpoint);
  if (!verdict.why.empty()) outcome["why"] = why_of(verdict.why, subject_.mode.value_or(Mode::max));
  return outcome;
}

json Runner::choose() {
  std::vector<TrialView> candidates;
  for (const auto& trial : trials_)
    if (trial->state == "PENDING" || trial->state == "PAUSED") candidates.push_back(trial->view());
  const auto chosen = subject_.scheduler->choose_trial_to_run(candidates);
  if (!chosen) return {{"next_trial", nullptr}};
  if (auto* trial = find(*chosen)) trial->state = "RUNNING";
  return {{"next_trial", *chosen}};
}

Result<json> Runner::apply(const json& event) {
  const auto op = event.at("op").get<std::string>();
  if (op == "choose") return choose();

  const auto id = event.at("trial").get<std::string>();
  auto* trial = find(id);
  if (op == "add") {
    if (trial) return make_error(Errc::bad_request, fmt::format("trial '{}' is added twice", id));
    auto config = Config::from_json(event.value("config", json::object()).dump());
    if (!config) return with_context(config.error(), "config");
    trials_.push_back(std::make_unique<Trial>(Trial{id, std::move(*config), "RUNNING"}));
    subject_.scheduler->on_trial_add(trials_.back()->view());
    return json::object();
  }

  if (!trial) return make_error(Errc::bad_request, fmt::format("trial '{}' was never added", id));
  const auto result = result_of(event);
  if (!result) return result.error();
  if (op == "result") {
    const auto verdict = subject_.scheduler->on_trial_result(trial->view(), *result);
    if (verdict.decision == Decision::stop) trial->state = "TERMINATED";
    if (verdict.decision == Decision::pause) trial->state = "PAUSED";
    auto outcome = apply(verdict);
    outcome["decision"] = name_of(verdict.decision);
    return outcome;
  }
  if (op == "complete") {
    trial->state = "TERMINATED";
    return apply(subject_.scheduler->on_trial_complete(trial->view(), *result));
  }
  if (op == "error") {
    trial->state = "ERROR";
    return apply(subject_.scheduler->on_trial_remove(trial->view()));
  }
  if (op == "resume") {
    trial->state = "RUNNING";
    return json::object();
  }
  return make_error(Errc::bad_request, fmt::format("there is no op '{}'", op));
}

json Runner::final_status() const {
  json status = json::object();
  for (const auto& trial : trials_) status[trial->id] = trial->state;
  return status;
}

/// Collects what differs from the expectations of one case.
class Checker {
 public:
  Checker(bool check, std::string case_id) : check_(check), case_id_(std::move(case_id)) {}

  void compare(const std::string& where, const std::string& what, const json& actual,
               json expected) {
    const bool is_set = expected.is_array() && !expected.empty() && expected[0].is_string();
    if (is_set) std::sort(expected.begin(), expected.end());
    if (check_ && !same(actual, expected))
      differences_.push_back(fmt::format("{}{}: {} is {}, expected {}", case_id_, where, what,
                                         actual.dump(), expected.dump()));
  }
  void compare_event(std::size_t index, const json& event, const json& outcome);
  void compare_end(const json& expected, const json& outcome);
  void differ(const std::string& text) { differences_.push_back(case_id_ + ": " + text); }
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  bool check_;
  std::string case_id_;
  std::vector<std::string> differences_;
};

/// Every expectation counts: one that this program does not know is a difference.
void Checker::compare_event(std::size_t index, const json& event, const json& outcome) {
  const auto where = fmt::format(" event {} ({}{}{})", index, event.value("op", ""),
                                 event.contains("trial") ? " " : "", event.value("trial", ""));
  constexpr std::string_view prefix = "expect_";
  for (const auto& [key, expected] : event.items()) {
    if (key == "expect")
      compare(where, "decision", outcome.value("decision", json()), expected);
    else if (key.starts_with(prefix))
      compare(where, key.substr(prefix.size()), outcome.value(key.substr(prefix.size()), json()),
              expected);
  }
  const auto why = event.value("why", json::object());
  for (const char* key : {"rung", "cutoff_before_signed", "value_signed"})
    if (why.contains(key))
      compare(where, key, outcome.value("why", json::object()).value(key, json()), why[key]);
}

void Checker::compare_end(const json& expected, const json& outcome) {
  for (const char* key : {"final_status", "final_rungs", "debug_string"})
    if (expected.contains(key))
      compare(" at the end", key, outcome.value(key, json()), expected[key]);
}

/// The rungs of a scheduler that has one bracket of them.
json final_rungs(const TrialScheduler& scheduler) {
  const auto state = json::parse(scheduler.state());
  const auto brackets = state.value("brackets", json::array());
  return brackets.size() == 1 ? brackets[0] : json();
}

Result<json> replay_case(const json& given, bool check) {
  const auto id = given.at("id").get<std::string>();
  json report = {{"id", id}, {"scheduler", given.at("scheduler")}};
  auto subject = make_subject(given.at("scheduler"), given.value("params", json::object()));
  if (!subject && code_of(subject.error()) == Errc::not_found) {
    report["outcome"] = "unsupported";
    report["reason"] = text_of(subject.error());
    return report;
  }
  if (!subject) return with_context(subject.error(), "params");

  Runner runner(std::move(*subject));
  Checker checker(check, id);
  if (auto begun = runner.begin(); !begun) {
    checker.differ(text_of(begun.error()));
  } else {
    report["events"] = json::array();
    for (const auto& event : given.at("events")) {
      const auto index = report["events"].size();
      auto applied = fence(Errc::bad_request, [&] { return unwrap(runner.apply(event)); });
      if (!applied) return with_context(applied.error(), fmt::format("event {}", index));
      checker.compare_event(index, event, *applied);
      for (const char* key : {"op", "trial", "t"})
        if (event.contains(key)) (*applied)[key] = event[key];
      report["events"].push_back(std::move(*applied));
    }
    report["final_status"] = runner.final_status();
    report["debug_string"] = runner.scheduler().debug_string();
    if (auto rungs = final_rungs(runner.scheduler()); !rungs.is_null())
      report["final_rungs"] = std::move(rungs);
    checker.compare_end(given, report);
  }
  report["outcome"] = !checker.differences().empty() ? "failed" : check ? "passed" : "replayed";
  if (!checker.differences().empty()) report["differences"] = checker.differences();
  return report;
}

}  // namespace

int Replay::exit_code() const { return failed_count > 0 ? 1 : unsupported_count > 0 ? 2 : 0; }

std::string Replay::summary() const {
  return fmt::format("{} passed, {} failed, {} unsupported", passed_count, failed_count,
                     unsupported_count);
}

Result<Replay> replay(const json& file, bool check) {
  if (!file.is_object() || !file.contains("cases") || !file["cases"].is_array())
    return make_error(Errc::bad_request, "there is no list 'cases' in it");
  Replay all;
  for (const auto& given : file["cases"]) {
    auto report = fence(Errc::bad_request, [&] { return unwrap(replay_case(given, check)); });
    if (!report) {
      const auto id = given.is_object() ? given.value("id", json()).dump() : "null";
      return with_context(report.error(), fmt::format("case {} ({})", all.cases.size(), id));
    }
    const auto outcome = (*report)["outcome"].get<std::string>();
    ++(outcome == "failed"        ? all.failed_count
       : outcome == "unsupported" ? all.unsupported_count
                                  : all.passed_count);
    for (const auto& difference : report->value("differences", json::array()))
      all.differences.push_back(difference);
    all.cases.push_back(std::move(*report));
  }
  return all;
}

}  // namespace troupe::tools
