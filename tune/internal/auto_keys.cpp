#include "tune/internal/auto_keys.hpp"

#include "tune/naming.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::tune::internal {
namespace {

constexpr std::array<std::string_view, 25> kAutomatic = {
    "config",
    "date",
    "done",
    "episodes_this_iter",
    "episodes_total",
    "experiment_id",
    "experiment_tag",
    "hostname",
    "iterations_since_restore",
    "nan_keys",
    "neg_mean_loss",
    "node_ip",
    "pid",
    "should_checkpoint",
    "time_since_restore",
    "time_this_iter_s",
    "time_total_s",
    "timestamp",
    "timesteps_since_restore",
    "timesteps_this_iter",
    "timesteps_total",
    "training_iteration",
    "trial_id",
    "warmup_time",
    "warnings",
};
static_assert(std::is_sorted(kAutomatic.begin(), kAutomatic.end()));

void set_default(TrialResult& row, std::string_view key, const Value& value) {
  if (row.find(key) == nullptr) row.set(key, value);
}

/// A count stays whole while it can.
Value sum(const Value& total, const Value& more) {
  if (!total.is_number()) return more;
  std::int64_t whole = 0;
  if (total.is_int() && more.is_int() &&
      !__builtin_add_overflow(total.as_int(), more.as_int(), &whole))
    return whole;
  return total.as_double() + more.as_double();
}

const Value* find_number(const TrialResult& row, std::string_view key) {
  const Value* value = row.find(key);
  return value != nullptr && value->is_number() ? value : nullptr;
}

}  // namespace

bool is_automatic(std::string_view key) {
  return std::binary_search(kAutomatic.begin(), kAutomatic.end(), key);
}

void AutoKeys::restore(const Totals& totals) {
  totals_ = totals;
  iterations_since_restore_ = 0;
  time_since_restore_s_ = 0;
  timesteps_since_restore_ = 0;
}

AutoKeys::Totals AutoKeys::totals_of(const TrialResult& row) {
  Totals totals;
  if (const Value* value = find_number(row, kTrainingIteration); value && value->is_int())
    totals.iteration = value->as_int();
  totals.time_s = row.number(kTimeTotal).value_or(0);
  if (const Value* value = find_number(row, "timesteps_total")) totals.timesteps = *value;
  if (const Value* value = find_number(row, "episodes_total")) totals.episodes = *value;
  return totals;
}

TrialResult AutoKeys::complete(Report report, const TrialPlace& place, Clock::WallTime now) {
  TrialResult row = std::move(report.metrics);
  if (report.from_function) set_default(row, kTimeThisIteration, report.step_time.count());
  if (report.has_checkpoint) row.set("should_checkpoint", true);

  double step_s = row.number(kTimeThisIteration).value_or(report.step_time.count());
  if (!std::isfinite(step_s)) step_s = report.step_time.count();  // or the total never recovers
  totals_.iteration += 1;
  totals_.time_s += step_s;
  iterations_since_restore_ += 1;
  time_since_restore_s_ += step_s;
  if (const Value* steps = find_number(row, "timesteps_this_iter")) {
    totals_.timesteps = sum(totals_.timesteps, *steps);
    timesteps_since_restore_ = sum(timesteps_since_restore_, *steps);
  }
  if (const Value* episodes = find_number(row, "episodes_this_iter"))
    totals_.episodes = sum(totals_.episodes, *episodes);

  set_default(row, kDone, false);
  set_default(row, "timesteps_total", totals_.timesteps);
  set_default(row, "episodes_total", totals_.episodes);
  set_default(row, kTrainingIteration, totals_.iteration);
  if (const auto loss = row.number("mean_loss")) set_default(row, "neg_mean_loss", 0 - *loss);
  row.set("experiment_id", experiment_id_);
  row.set("date", date_for_name(now));
  row.set("timestamp", static_cast<std::int64_t>(std::chrono::system_clock::to_time_t(now)));
  row.set(kTimeThisIteration, step_s);
  row.set(kTimeTotal, totals_.time_s);
  row.set("pid", place.pid);
  row.set("hostname", place.hostname);
  row.set("node_ip", place.node_ip);
  row.set("time_since_restore", time_since_restore_s_);
  row.set("timesteps_since_restore", timesteps_since_restore_);
  row.set("iterations_since_restore", iterations_since_restore_);
  row.set(kTrialId, trial_id_);
  return row;
}

}  // namespace troupe::tune::internal
