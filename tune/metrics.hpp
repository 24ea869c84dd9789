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
    Entry(std::string key, std::initializer_list<Entry> nested);
    std::string key;
    Value value;
    std::vector<Entry> nested = {};
  };

  Metrics() = default;
  Metrics(std::initializer_list<Entry> entries);

  bool empty() const { return values_.empty(); }
  std::size_t size() const { return values_.size(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  /// nullptr when there is none. O(size): a step reports a few names.
  const Value* find(std::string_view key) const;
  /// The value as a number; nothing when it is absent, null or text. NaN is a number.
  std::optional<double> number(std::string_view key) const;
  /// Replaces in place or appends.
  void set(std::string_view key, Value value);

  bool operator==(const Metrics&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

/// The row of one `training_iteration`: the user's metrics and the automatic keys
/// (`kTrainingIteration` and others).
using TrialResult = Metrics;

/// Names that are filled in for the user: specs/tune.md §2.8 has their order and rules.
inline constexpr std::string_view kTrainingIteration = "training_iteration";
inline constexpr std::string_view kTimeTotal = "time_total_s";
inline constexpr std::string_view kTimeThisIteration = "time_this_iter_s";
inline constexpr std::string_view kDone = "done";
inline constexpr std::string_view kTrialId = "trial_id";

}  // namespace troupe::tune
