#include "sgd/internal/meters.hpp"

#include "sgd/internal/blob_name.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace troupe::sgd::internal {
namespace {

constexpr std::string_view kProfile = "profile/";

/// Whole numbers as such.
tune::Value count(double value) {
  if (!(std::abs(value) < 0x1p53) || std::trunc(value) != value) return value;
  return static_cast<std::int64_t>(value);
}

std::string profile_name(std::string_view name) { return std::string(kProfile).append(name); }

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Values travel in a checkpoint as one row of JSON would, but exactly.
void save_value(CheckpointWriter& out, const std::string& name, const tune::Value& value) {
  if (value.is_double())
    out.number(name, value.as_double());
  else
    out.text(name, tune::Metrics{{"value", value}}.to_json());
}

tune::Value load_value(const CheckpointReader& in, const std::string& name) {
  if (in.find(name) != nullptr && in.find(name)->dtype == DType::float64) return in.number(name);
  const auto row = unwrap(tune::Metrics::from_json(in.text(name)));
  const tune::Value* value = row.find("value");
  return value == nullptr ? tune::Value() : *value;
}

/// One metric over all ranks.
tune::Value merged(std::string_view name, const std::vector<tune::Metrics>& ranks) {
  const tune::Value* first = nullptr;
  bool same = true;
  double sum = 0, weights = 0, weighted = 0, ranks_with = 0;
  for (const auto& rank : ranks) {
    const tune::Value* value = rank.find(name);
    if (value == nullptr) continue;
    if (first == nullptr) first = value;
    if (!first->is_number() || !value->is_number()) return *first;
    same = same && *value == *first;
    const double weight = rank.number(kNumSamples).value_or(1);
    sum += value->as_double();
    ++ranks_with;
    if (weight == 0) continue;  // has seen nothing: its NaN is none
    weighted += weight * value->as_double();
    weights += weight;
  }
  if (name.starts_with(kProfile)) return *first;
  if (name == kNumSamples) return count(sum);
  if (same) return *first;  // the same bits, and a whole number stays one
  if (name == kEpoch || name == kBatchCount || weights == 0) return sum / ranks_with;
  return weighted / weights;
}

}  // namespace

Meters::Meter& Meters::meter(std::string_view name) {
  const auto at = std::find_if(meters_.begin(), meters_.end(),
                               [&](const Meter& meter) { return meter.name == name; });
  if (at != meters_.end()) return *at;
  meters_.push_back({.name = std::string(name)});
  return meters_.back();
}

void Meters::add(const tune::Metrics& metrics) {
  const double weight = metrics.number(kNumSamples).value_or(1);
  samples_ += weight;
  for (const auto& [name, value] : metrics) {
    if (name == kNumSamples) continue;
    Meter& own = meter(name);
    own.last = value;
    if (!value.is_number() || weight == 0) continue;
    own.sum += weight * value.as_double();
    own.weight += weight;
  }
}

tune::Metrics Meters::summary() const {
  tune::Metrics all{{std::string(kNumSamples), count(samples_)}};
  for (const auto& meter : meters_) {
    if (!meter.last.is_number()) {
      all.set(meter.name, meter.last);
      continue;
    }
    if (meter.weight != 0) all.set(meter.name, meter.sum / meter.weight);
    all.set("last_" + meter.name, meter.last);
  }
  return all;
}

void Meters::save(CheckpointWriter& out, std::string_view name) const {
  out.number(blob_name(name, "samples"), samples_);
  out.integer(blob_name(name, "size"), static_cast<std::int64_t>(meters_.size()));
  for (std::size_t i = 0; i < meters_.size(); ++i) {
    const std::string prefix = blob_name(name, std::to_string(i));
    out.text(blob_name(prefix, "name"), meters_[i].name);
    out.number(blob_name(prefix, "sum"), meters_[i].sum);
    out.number(blob_name(prefix, "weight"), meters_[i].weight);
    save_value(out, blob_name(prefix, "last"), meters_[i].last);
  }
}

void Meters::load(const CheckpointReader& in, std::string_view name) {
  Meters loaded;
  loaded.samples_ = in.number(blob_name(name, "samples"));
  const std::int64_t size = in.integer(blob_name(name, "size"));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::string prefix = blob_name(name, std::to_string(i));
    loaded.meters_.push_back({.name = in.text(blob_name(prefix, "name")),
                              .last = load_value(in, blob_name(prefix, "last")),
                              .sum = in.number(blob_name(prefix, "sum")),
                              .weight = in.number(blob_name(prefix, "weight"))});
  }
  *this = std::move(loaded);
}

void Profile::add(Part part, std::chrono::nanoseconds time, std::int64_t count) {
  rows_[index(part)].time += time;
  rows_[index(part)].count += count;
}

tune::Metrics Profile::summary(bool training) const {
  tune::Metrics all;
  const auto mean = [&](Part part, std::string_view name) {
    const Row& row = rows_[index(part)];
    if (row.count > 0)
      all.set(profile_name(name), seconds(row.time) / static_cast<double>(row.count));
  };
  mean(Part::forward, training ? "mean_fwd_s" : "mean_eval_fwd_s");
  mean(Part::backward, "mean_grad_s");
  mean(Part::exchange, "mean_exchange_s");
  mean(Part::apply, "mean_apply_s");
  mean(Part::data, training ? "mean_data_s" : "mean_eval_data_s");
  mean(Part::pass, training ? "mean_train_epoch_s" : "mean_validation_s");
  const auto exchange = total(Part::exchange);
  if (exchange.count() > 0)
    all.set(profile_name("exchange_hidden_fraction"),
            std::clamp(1 - seconds(waited_) / seconds(exchange), 0.0, 1.0));
  return all;
}

tune::Metrics merge(const std::vector<tune::Metrics>& ranks) {
  tune::Metrics all;
  for (const auto& rank : ranks)
    for (const auto& [name, value] : rank)
      if (all.find(name) == nullptr) all.set(name, merged(name, ranks));
  return all;
}

}  // namespace troupe::sgd::internal
