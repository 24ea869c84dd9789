#include "tune/schedulers/asha.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "libactor/assert.hpp"
#include "tune/internal/objective.hpp"

namespace troupe::tune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxRungs = 1000;  // a result looks at each of them

json number_or_text(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// Names come from users and may be any bytes.
std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// 25.0, -0.39, nan: as Python writes a float.
std::string python_float(double value) {
  auto text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// 53 random bits in [0, 1) from the seed and a trial's number alone.
double uniform(std::uint64_t seed, std::uint32_t trial_number) {
  const auto bits = XXH3_64bits_withSeed(&trial_number, sizeof(trial_number), seed);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::optional<double> ASHAScheduler::Rung::cutoff(double reduction_factor) const {
  if (records_.empty()) return std::nullopt;
  if (sorted_.empty()) return std::nan("");
  const double position = (1 - 1 / reduction_factor) * static_cast<double>(sorted_.size() - 1);
  const auto index = static_cast<std::size_t>(position);
  const double fraction = position - static_cast<double>(index);
  const double low = sorted_[index];
  if (fraction == 0 || index + 1 == sorted_.size()) return low;
  const double high = sorted_[index + 1];
  if (std::isinf(low) || std::isinf(high)) return low;  // ranked, not interpolated across
  return low + fraction * (high - low);
}

void ASHAScheduler::Rung::record(std::uint32_t trial, double value) {
  records_.push_back({value, trial});
  if (std::isnan(value)) return;
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), value), value);
}

ASHAScheduler::ASHAScheduler(ASHAOptions options) : options_(std::move(options)) {}

Result<void> ASHAScheduler::begin(const std::string& metric, std::optional<Mode> mode,
                                  std::uint64_t seed) {
  if (auto checked = check_options(); !checked) return checked;
  auto objective =
      internal::resolve_objective("ASHAScheduler", options_.metric, options_.mode, metric, mode);
  if (!objective) return objective.error();
  options_.metric = objective->metric;
  options_.mode = objective->mode;
  seed_ = seed;
  make_brackets();
  if (brackets_.front().size() > kMaxRungs)
    return make_error(Errc::bad_request,
                      fmt::format("ASHAScheduler: reduction_factor {} gives more than {} rungs up "
                                  "to max_t {}: take a larger one, 2 to 4 are usual",
                                  options_.reduction_factor, kMaxRungs, options_.max_t));
  return {};
}

Result<void> ASHAScheduler::check_options() const {
  const auto bad = [](std::string_view name, auto value, std::string_view wanted) -> Error {
    return make_error(Errc::bad_request,
                      fmt::format("ASHAScheduler: {} is {}, {}", name, value, wanted));
  };
  const auto& o = options_;
  if (o.time_attr.empty())
    return bad("time_attr", "empty", "it must name a result that grows: training_iteration");
  if (!(o.max_t > 0 && std::isfinite(o.max_t)))
    return bad("max_t", o.max_t, "it must be above 0: the longest that a trial may run");
  if (!(o.grace_period > 0))
    return bad("grace_period", o.grace_period, "it must be above 0: 1 judges after the first step");
  if (!(o.grace_period <= o.max_t))
    return bad("grace_period", o.grace_period,
               fmt::format("it must not be above max_t, which is {}", o.max_t));
  if (!(o.reduction_factor > 1 && std::isfinite(o.reduction_factor)))
    return bad("reduction_factor", o.reduction_factor,
               "it must be above 1: with 4 the best quarter of a rung goes on");
  if (o.brackets < 1 || o.brackets > static_cast<std::int64_t>(kMaxRungs))
    return bad("brackets", o.brackets,
               fmt::format("it must be 1 to {}: 1 is the usual number", kMaxRungs));
  return {};
}

/// Multiplies up instead of taking logarithms, in long double, so that each milestone is the exact
/// product rounded once.
void ASHAScheduler::make_brackets() {
  std::vector<double> milestones;
  for (long double at = options_.grace_period; milestones.size() <= kMaxRungs;
       at *= options_.reduction_factor) {
    if (static_cast<double>(at) > options_.max_t) break;
    milestones.push_back(static_cast<double>(at));
  }
  double total = 0;
  for (std::size_t left_out = 0; left_out < static_cast<std::size_t>(options_.brackets);
       ++left_out) {
    Bracket bracket;
    for (std::size_t i = milestones.size(); i > left_out; --i)
      bracket.emplace_back(milestones[i - 1]);
    total += std::exp(static_cast<double>(bracket.size()) - static_cast<double>(milestones.size()));
    brackets_.push_back(std::move(bracket));
    cumulative_.push_back(total);
  }
}

std::uint32_t ASHAScheduler::draw_bracket(std::uint32_t trial_number) const {
  const double drawn = uniform(seed_, trial_number) * cumulative_.back();
  const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), drawn);
  return static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(
      at - cumulative_.begin(), static_cast<std::ptrdiff_t>(brackets_.size()) - 1));
}

void ASHAScheduler::on_trial_add(const TrialView& trial) {
  TROUPE_ASSERT(!brackets_.empty(), "on_trial_add before begin, trial", trial.id);
  const auto number = static_cast<std::uint32_t>(ids_.size());
  const auto bracket = draw_bracket(number);
  ids_.push_back(trial.id);
  live_.insert_or_assign(trial.id,
                         Live{.number = number,
                              .bracket = bracket,
                              .recorded_in = std::vector<bool>(brackets_[bracket].size(), false)});
}

Verdict ASHAScheduler::on_trial_result(const TrialView& trial, const TrialResult& result) {
  const auto live = live_.find(trial.id);
  const auto t = result.number(options_.time_attr);
  const auto value = internal::signed_value(result, options_.metric, *options_.mode);
  if (live == live_.end() || !t || !value) return {};

  Verdict verdict;
  if (*t >= options_.max_t && options_.stop_last_trials)
    verdict = {.decision = Decision::stop, .why = fmt::format("max_t={}", options_.max_t)};
  else if (std::isnan(*value) && options_.nan_policy == NanPolicy::stop)
    verdict = {.decision = Decision::stop, .why = "value=nan"};
  else
    verdict = judge(live->second, *t, *value);

  if (verdict.decision == Decision::stop) {
    ++stopped_count_;
    live_.erase(live);
  }
  return verdict;
}

/// One rung a result: the highest that the trial has reached and not been judged at.
Verdict ASHAScheduler::judge(Live& trial, double t, double value) {
  auto& bracket = brackets_[trial.bracket];
  for (std::size_t i = 0; i < bracket.size(); ++i) {
    if (!(t >= bracket[i].milestone())) continue;
    if (trial.recorded_in[i]) {
      if (!options_.stop_last_trials) break;  // no looking back at rungs that were skipped
      continue;
    }
    const auto cutoff = bracket[i].cutoff(options_.reduction_factor);
    bracket[i].record(trial.number, value);
    trial.recorded_in[i] = true;
    const double sign = *options_.mode == Mode::min ? -1 : 1;  // back to the user's own numbers
    return {.decision = cutoff && value < *cutoff ? Decision::stop : Decision::proceed,
            .why = fmt::format("rung={} cutoff={} value={}", bracket[i].milestone(),
                               cutoff ? fmt::to_string(sign * *cutoff) : "none", sign * value)};
  }
  return {};
}

Verdict ASHAScheduler::on_trial_complete(const TrialView& trial, const TrialResult& result) {
  const auto live = live_.find(trial.id);
  if (live == live_.end()) return {};
  const auto t = result.number(options_.time_attr);
  const auto value = internal::signed_value(result, options_.metric, *options_.mode);
  const bool keep = t && value && !(std::isnan(*value) && options_.nan_policy == NanPolicy::stop);
  if (keep) judge(live->second, *t, *value);
  live_.erase(live);
  return {};
}

Verdict ASHAScheduler::on_trial_remove(const TrialView& trial) {
  if (const auto live = live_.find(trial.id); live != live_.end()) live_.erase(live);
  return {};
}

std::string ASHAScheduler::debug_string() const {
  auto text = fmt::format("Using AsyncHyperBand: num_stopped={}", stopped_count_);
  for (const auto& bracket : brackets_) {
    text += "\nBracket:";
    std::string_view before = " ";
    for (const auto& rung : bracket) {
      const auto cutoff = rung.cutoff(options_.reduction_factor);
      text += fmt::format("{}Iter {:.3f}: {}", before, rung.milestone(),
                          cutoff ? python_float(*cutoff) : "None");
      before = " | ";
    }
  }
  return text;
}

std::string ASHAScheduler::spec() const {
  const auto& o = options_;
  json spec = {{"class", "ASHAScheduler"},
               {"time_attr", o.time_attr},
               {"metric", o.metric},
               {"mode", nullptr},
               {"max_t", o.max_t},
               {"grace_period", o.grace_period},
               {"reduction_factor", o.reduction_factor},
               {"brackets", o.brackets},
               {"stop_last_trials", o.stop_last_trials},
               {"nan_policy", o.nan_policy == NanPolicy::stop ? "stop" : "ignore"}};
  if (o.mode) spec["mode"] = *o.mode == Mode::min ? "min" : "max";
  return dump(spec);
}

std::string ASHAScheduler::state() const {
  json brackets = json::array();
  for (const auto& bracket : brackets_) {
    json rungs = json::array();
    for (const auto& rung : bracket) {
      json recorded = json::object();
      for (const auto& [value, trial] : rung.records())
        recorded[ids_[trial]] = number_or_text(value);
      const auto cutoff = rung.cutoff(options_.reduction_factor);
      rungs.push_back({{"milestone", rung.milestone()},
                       {"recorded_signed", std::move(recorded)},
                       {"cutoff_signed", cutoff ? number_or_text(*cutoff) : json()}});
    }
    brackets.push_back(std::move(rungs));
  }
  json live = json::object();
  for (const auto& [id, trial] : live_) live[id] = {{"bracket", trial.bracket}};
  return dump({{"num_stopped", stopped_count_}, {"brackets", brackets}, {"live", live}});
}

}  // namespace troupe::tune
