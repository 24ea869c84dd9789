#include "tune/metrics.hpp"

#include "tune/internal/json.hpp"
#include "tune/internal/result_line.hpp"

#include <algorithm>
#include <limits>

namespace troupe::tune {
namespace {

using internal::Json;

constexpr const char* kNanKeys = "nan_keys";

/// Nothings whose names are in `nan_keys` become what they were.
Value restored(Value value, const std::string& name, const Json& nan_keys) {
  if (value.is_list()) {
    Value::List list;
    for (const Value& element : value.as_list())
      list.push_back(restored(element, name + "/" + std::to_string(list.size()), nan_keys));
    return list;
  }
  const auto word = nan_keys.find(name);
  if (!value.is_null() || word == nan_keys.end()) return value;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*word == "inf") return kInfinity;
  if (*word == "-inf") return -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Metrics::Metrics(std::initializer_list<Entry> entries) {
  values_.reserve(entries.size());
  for (const Entry& entry : entries) append("", entry);
}

void Metrics::append(std::string_view prefix, const Entry& entry) {
  const std::string name = std::string(prefix) + entry.key;
  if (!entry.is_nested) set(name, entry.value);
  for (const Entry& nested : entry.nested) append(name + "/", nested);
}

const Value* Metrics::find(std::string_view key) const {
  const auto found = std::ranges::find(
      values_, key, [](const auto& entry) -> const std::string& { return entry.first; });
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<double> Metrics::number(std::string_view key) const {
  const Value* value = find(key);
  if (value && value->is_number()) return value->as_double();
  if (value && value->is_bool()) return value->as_bool() ? 1.0 : 0.0;
  return std::nullopt;
}

void Metrics::set(std::string_view key, Value value) {
  if (const Value* present = find(key))
    *const_cast<Value*>(present) = std::move(value);
  else
    values_.emplace_back(key, std::move(value));
}

std::string Metrics::to_json() const {
  std::string out;
  internal::append_row_json(out, *this, {});
  return out;
}

Result<Metrics> Metrics::from_json(std::string_view line) {
  auto row = internal::parse_object(line);
  if (!row) return row.error();
  auto nan_keys = Json::object();
  if (const auto found = row->find(kNanKeys); found != row->end() && found->is_object()) {
    nan_keys = *found;
    row->erase(found);
  }
  Metrics metrics;
  auto read = internal::for_each_leaf(
      *row,
      [&](const std::string& name, Value value) {
        metrics.set(name, restored(std::move(value), name, nan_keys));
      },
      [](const std::string&) {});
  if (!read) return read.error();
  return metrics;
}

}  // namespace troupe::tune
