#pragma once

#include "tune/config.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::tune {

enum class Mode { min, max };

/// What one step reports: names to numbers, texts or lists, in the order of telling. Nested ones
/// are flattened: "a/b".
class Metrics {
 public:
  struct Entry {
    Entry(std::string key, Value value) : key(std::move(key)), value(std::move(value)) {}
    Entry(std::string key, std::initializer_list<Entry> nested)
        : key(std::move(key)), nested(nested), is_nested(true) {}
    std::string key;
    Value value = {};
    std::vector<Entry> nested = {};
    bool is_nested = false;
  };

  Metrics() = default;
  Metrics(std::initializer_list<Entry> entries);
  /// No name may be in there twice.
  static Metrics from_distinct(std::vector<std::pair<std::string, Value>> values) {
    Metrics metrics;
    metrics.values_ = std::move(values);
    return metrics;
  }

  bool empty() const { return values_.empty(); }
  std::size_t size() const { return values_.size(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  /// nullptr when there is none. O(size): a step reports a few names.
  const Value* find(std::string_view key) const;
  /// The value as a number, true as 1; nothing when it is absent, null, text or a list. NaN is a
  /// number.
  std::optional<double> number(std::string_view key) const;
  /// Replaces in place or appends.
  void set(std::string_view key, Value value);

  /// One line, nested, in the order of telling: a row of `result.json`. NaN and infinities are null
  /// in it, with their names at its end: `"nan_keys": {"loss": "nan", "norms/3": "-inf"}`.
  std::string to_json() const;
  /// Of such a line. bad_request when it is no JSON object or holds an object inside a list.
  static Result<Metrics> from_json(std::string_view line);

  bool operator==(const Metrics&) const = default;

 private:
  void append(std::string_view prefix, const Entry& entry);

  std::vector<std::pair<std::string, Value>> values_;
};

/// The row of one `training_iteration`: the user's metrics and the automatic keys
/// (`kTrainingIteration` and others).
using TrialResult = Metrics;

/// Names that are filled in for the user: tune/README.md has their order and rules.
inline constexpr std::string_view kTrainingIteration = "training_iteration";
inline constexpr std::string_view kTimeTotal = "time_total_s";
inline constexpr std::string_view kTimeThisIteration = "time_this_iter_s";
inline constexpr std::string_view kDone = "done";
inline constexpr std::string_view kTrialId = "trial_id";

}  // namespace troupe::tune
