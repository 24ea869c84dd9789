#include "tune/config.hpp"

#include "tune/internal/did_you_mean.hpp"
#include "tune/internal/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <set>

namespace troupe::tune {

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"nothing", "bool", "int64", "double", "text", "list"};
  return kNames[data_.index()];
}

std::string Value::text() const {
  if (is_bool()) return as_bool() ? "true" : "false";
  if (is_int()) return std::to_string(as_int());
  if (is_double()) return fmt::format("{}", as_double());
  if (is_text()) return as_text();
  if (is_null()) return "null";
  std::string text = "[";
  for (const Value& element : as_list()) text += (text.size() > 1 ? ", " : "") + element.text();
  return text + "]";
}

bool Value::operator==(const Value& other) const {
  if (is_double() && other.is_double() && std::isnan(as_double()) && std::isnan(other.as_double()))
    return true;
  return data_ == other.data_;
}

Value list(std::initializer_list<Value> values) { return Value::List(values); }

bool PathLess::operator()(std::string_view a, std::string_view b) const {
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c) + 1; };
  return std::ranges::lexicographical_compare(a, b, {}, rank, rank);
}

// --- reading as a type ---------------------------------------------------------------------------

namespace {

template <class T>
struct As;  // `name` for sentences; `from` gives nothing when the value is no T

template <>
struct As<Value> {
  static constexpr std::string_view name = "a value", list_name = "a list of values";
  static std::optional<Value> from(const Value& value) { return value; }
};

template <>
struct As<bool> {
  static constexpr std::string_view name = "a bool", list_name = "a list of bools";
  static std::optional<bool> from(const Value& value) {
    if (value.is_bool()) return value.as_bool();
    return std::nullopt;
  }
};

template <>
struct As<std::int64_t> {
  static constexpr std::string_view name = "an int64", list_name = "a list of int64s";
  static std::optional<std::int64_t> from(const Value& value) {
    if (value.is_int()) return value.as_int();
    return std::nullopt;
  }
};

template <>
struct As<int> {
  static constexpr std::string_view name = "an int", list_name = "a list of ints";
  static std::optional<int> from(const Value& value) {
    if (value.is_int() && std::in_range<int>(value.as_int()))
      return static_cast<int>(value.as_int());
    return std::nullopt;
  }
};

template <>
struct As<double> {
  static constexpr std::string_view name = "a double", list_name = "a list of doubles";
  static std::optional<double> from(const Value& value) {
    if (value.is_number()) return value.as_double();
    return std::nullopt;
  }
};

template <>
struct As<float> {
  static constexpr std::string_view name = "a float", list_name = "a list of floats";
  static std::optional<float> from(const Value& value) {
    if (!value.is_number()) return std::nullopt;
    const double exact = value.as_double();
    if (std::isfinite(exact) && std::abs(exact) > std::numeric_limits<float>::max())
      return std::nullopt;
    return static_cast<float>(exact);
  }
};

template <>
struct As<std::string> {
  static constexpr std::string_view name = "a text", list_name = "a list of texts";
  static std::optional<std::string> from(const Value& value) {
    if (value.is_text()) return value.as_text();
    return std::nullopt;
  }
};

template <class T>
struct As<std::vector<T>> {
  static constexpr std::string_view name = As<T>::list_name;
  static std::optional<std::vector<T>> from(const Value& value) {
    if (!value.is_list()) return std::nullopt;
    std::vector<T> list;
    list.reserve(value.as_list().size());
    for (const Value& element : value.as_list()) {
      auto converted = As<T>::from(element);
      if (!converted) return std::nullopt;
      list.push_back(std::move(*converted));
    }
    return list;
  }
};

/// `text "0.1"`, `int64 3`, `list ["a", 1]`: how a value is shown in a sentence.
std::string described(const Value& value) {
  constexpr std::size_t kShown = 80;
  if (value.is_null()) return "nothing";
  std::string shown = internal::dump(internal::json_of(value));
  if (shown.size() > kShown) shown = shown.substr(0, kShown) + "…";
  return fmt::format("{} {}", value.type_name(), shown);
}

}  // namespace

struct Config::ReadLog {
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
};

template <class T>
requires internal::is_config_type<T> T Config::get(std::string_view key)
const {
  const auto* found = find(key);
  if constexpr (std::same_as<T, Config>) {
    if (found && *found) throw_wrong_type(key, "a nested config");
    if (!found && !has_below(key)) throw_missing(key);
    return nested(key);
  } else {
    if (!found && !has_below(key)) throw_missing(key);
    if (!found || !*found) throw_wrong_type(key, As<T>::name);
    auto value = As<T>::from(**found);
    if (!value) throw_wrong_type(key, As<T>::name);
    return std::move(*value);
  }
}

template Config Config::get<Config>(std::string_view) const;
template Value Config::get<Value>(std::string_view) const;
template bool Config::get<bool>(std::string_view) const;
template int Config::get<int>(std::string_view) const;
template std::int64_t Config::get<std::int64_t>(std::string_view) const;
template float Config::get<float>(std::string_view) const;
template double Config::get<double>(std::string_view) const;
template std::string Config::get<std::string>(std::string_view) const;
template std::vector<Value> Config::get<std::vector<Value>>(std::string_view) const;
template std::vector<bool> Config::get<std::vector<bool>>(std::string_view) const;
template std::vector<int> Config::get<std::vector<int>>(std::string_view) const;
template std::vector<std::int64_t> Config::get<std::vector<std::int64_t>>(std::string_view) const;
template std::vector<float> Config::get<std::vector<float>>(std::string_view) const;
template std::vector<double> Config::get<std::vector<double>>(std::string_view) const;
template std::vector<std::string> Config::get<std::vector<std::string>>(std::string_view) const;

// --- building ------------------------------------------------------------------------------------

Config::Entry::Entry(std::string key, Value value) {
  flat_.emplace_back(std::move(key), std::move(value));
}

Config::Entry::Entry(std::string key, const Config& nested) {
  if (nested.empty()) flat_.emplace_back(key, std::nullopt);
  for (const auto& [name, value] : nested.entries_) flat_.emplace_back(key + "/" + name, value);
}

Config::Entry::Entry(std::string key, std::initializer_list<Entry> nested)
    : Entry(std::move(key), Config(nested)) {}

Config::Config(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries)
    for (const auto& [name, value] : entry.flat_) replace(name, value);
}

void Config::set(std::string_view key, Value value) { replace(key, std::move(value)); }

void Config::set_empty_nested(std::string_view key) { replace(key, std::nullopt); }

void Config::merge(const Config& other) {
  for (const auto& [name, value] : other.entries_) replace(name, value);
}

void Config::replace(std::string_view key, std::optional<Value> value) {
  if (!value && has_below(key)) return;  // merging nothing into a nested config
  if (!reads_) reads_ = std::make_shared<ReadLog>();
  // What stood at a part of the path gives way, and so does what stood below it.
  for (auto slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1))
    if (const auto above = entries_.find(key.substr(0, slash)); above != entries_.end())
      entries_.erase(above);
  const std::string below = std::string(key) + "/";
  for (auto it = entries_.lower_bound(below); it != entries_.end() && it->first.starts_with(below);)
    it = entries_.erase(it);
  entries_.insert_or_assign(std::string(key), std::move(value));
}

// --- asking --------------------------------------------------------------------------------------

const std::optional<Value>* Config::find(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  std::lock_guard lock(reads_->mutex);
  reads_->names.insert(prefix_ + found->first);
  return &found->second;
}

bool Config::has_below(std::string_view key) const {
  const std::string below = std::string(key) + "/";
  const auto it = entries_.lower_bound(below);
  return it != entries_.end() && it->first.starts_with(below);
}

Config Config::nested(std::string_view key) const {
  const std::string below = std::string(key) + "/";
  Config result;
  for (auto it = entries_.lower_bound(below); it != entries_.end() && it->first.starts_with(below);
       ++it)
    result.entries_.emplace_hint(result.entries_.end(), it->first.substr(below.size()), it->second);
  result.reads_ = reads_;
  result.prefix_ = prefix_ + below;
  return result;
}

bool Config::has(std::string_view key) const { return find(key) || has_below(key); }

std::vector<std::pair<std::string, Value>> Config::flattened() const {
  std::vector<std::pair<std::string, Value>> result;
  for (const auto& [name, value] : entries_)
    if (value) result.emplace_back(name, *value);
  return result;
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> result;
  if (!reads_) return result;
  std::lock_guard lock(reads_->mutex);
  for (const auto& [name, value] : entries_)
    if (value && !reads_->names.contains(prefix_ + name)) result.push_back(name);
  return result;
}

void Config::throw_missing(std::string_view key) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : entries_) names.push_back(prefix_ + name);
  const std::string full = prefix_ + std::string(key);
  throw ConfigError(
      fmt::format("config has no key '{}'{}", full, internal::did_you_mean(full, names)));
}

void Config::throw_wrong_type(std::string_view key, std::string_view asked) const {
  const auto found = entries_.find(key);
  const bool is_value = found != entries_.end() && found->second;
  throw ConfigError(fmt::format("config key '{}{}' is {}, asked for as {}", prefix_, key,
                                is_value ? described(*found->second) : "a nested config", asked));
}

// --- JSON ----------------------------------------------------------------------------------------

std::string Config::to_json(int indent) const {
  auto root = internal::Json::object();
  for (const auto& [name, value] : entries_)
    internal::place(root, name, value ? internal::json_of(*value) : internal::Json::object());
  return internal::dump(root, indent);
}

Result<Config> Config::from_json(std::string_view text) {
  const auto root = internal::parse_object(text);
  if (!root) return with_context(root.error(), "config");
  Config config;
  auto read = internal::for_each_leaf(
      *root, [&](std::string name, Value value) { config.set(name, std::move(value)); },
      [&](const std::string& name) { config.set_empty_nested(name); });
  if (!read) return with_context(read.error(), "config");
  return config;
}

}  // namespace troupe::tune
