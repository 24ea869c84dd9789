#pragma once

#include "libactor/result.hpp"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tune {

/// Nothing, bool, int64, double, text or a list of these (30 lists in each other at most can
/// travel). Implicit on purpose: it stands in braces.
class Value {
 public:
  using List = std::vector<Value>;

  Value();  ///< nothing: JSON's null
  // In the .cpp: inlined, they draw false -Wmaybe-uninitialized from g++ 12 in the user's code.
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  template <std::same_as<bool> B>
  Value(B value) : data_(value) {}  // a template, or every pointer would become `true`
  /// An unsigned number above int64's range becomes a double: asked for as an int64 it is refused,
  /// not wrong.
  template <std::integral I>
  requires(!std::same_as<I, bool>) Value(I value)
      : data_(std::in_range<std::int64_t>(value) ? Data(static_cast<std::int64_t>(value))
                                                 : Data(static_cast<double>(value))) {}
  template <std::floating_point F>
  Value(F value) : data_(static_cast<double>(value)) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(std::string_view text) : data_(std::string(text)) {}
  Value(List list) : data_(std::move(list)) {}
  template <class T>
  requires std::convertible_to<T, Value> Value(const std::vector<T>& list)
      : data_(List(list.begin(), list.end())) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_double() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_text() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<List>(data_); }

  bool as_bool() const { return std::get<bool>(data_); }
  std::int64_t as_int() const { return std::get<std::int64_t>(data_); }
  double as_double() const {
    return is_int() ? static_cast<double>(as_int()) : std::get<double>(data_);
  }
  const std::string& as_text() const { return std::get<std::string>(data_); }
  const List& as_list() const { return std::get<List>(data_); }

  /// "int64", "double", "text", "list", "bool", "nothing".
  std::string_view type_name() const;
  /// For people and trial names: 0.001, adam without quotes, [1, 2].
  std::string text() const;

  /// NaN equals NaN here: two configs are the same when they would run the same. 1 and 1.0 differ.
  bool operator==(const Value& other) const;

 private:
  using Data = std::variant<std::monostate, bool, std::int64_t, double, std::string, List>;

  Data data_;
};

/// A list inside braces, where `{2, 2}` alone would be read as something else: `tune::list({2, 2,
/// 2, 2})`.
Value list(std::initializer_list<Value> values);

/// Thrown by `Config::get`. Out of `setup()` of the first wave it ends the experiment, since every
/// trial would fail.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Orders full names as paths, element by element: "a/b" comes before "a-b".
struct PathLess {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const;
};

class Config;

namespace internal {

template <class T>
inline constexpr bool is_config_scalar =
    std::same_as<T, bool> || std::same_as<T, int> || std::same_as<T, std::int64_t> ||
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::string> ||
    std::same_as<T, Value>;
template <class T>
inline constexpr bool is_config_type = is_config_scalar<T> || std::same_as<T, Config>;
template <class T>
inline constexpr bool is_config_type<std::vector<T>> = is_config_scalar<T>;

}  // namespace internal

/// One trial's hyper-parameters: names to values, nested. "augment/crop" names a nested one.
///
/// Inside it is flat, by full name: nesting is in the names alone. It also notes which keys were
/// read, so that a key that `setup()` never asked for can be warned about. Reading is thread-safe.
class Config {
 public:
  /// By full name. No value: a nested config without entries.
  using Entries = std::map<std::string, std::optional<Value>, PathLess>;

  /// `{"lr", 0.1}` or `{"augment", {{"flip", true}}}` in braces.
  class Entry {
   public:
    Entry(std::string key, Value value);
    Entry(std::string key, const Config& nested);
    Entry(std::string key, std::initializer_list<Entry> nested);

   private:
    friend class Config;
    std::vector<std::pair<std::string, std::optional<Value>>> flat_;
  };

  Config() = default;
  Config(std::initializer_list<Entry> entries);

  /// T: bool, int, int64_t, float, double, std::string, Value, std::vector of these, Config.
  /// An int64 is given as a double when asked, never the other way, never narrowed.
  /// Throws ConfigError with key, type asked, type found and the nearest key.
  template <class T>
  requires internal::is_config_type<T> T get(std::string_view key)
  const;

  /// The same with a value for a key that is not there; a value of a wrong type still throws.
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }
  std::string get_or(std::string_view key, const char* fallback) const {
    return has(key) ? get<std::string>(key) : std::string(fallback);
  }

  bool has(std::string_view key) const;
  bool empty() const { return entries_.empty(); }
  /// Makes nested configs for "a/b"; takes the place of whatever had this name.
  void set(std::string_view key, Value value);
  /// Everything of `other` over this, nested configs merged.
  void merge(const Config& other);

  /// All values by full name, in path order: ("augment/crop", 2.5).
  std::vector<std::pair<std::string, Value>> flattened() const;
  const Entries& entries() const { return entries_; }
  void set_empty_nested(std::string_view key);

  /// Full names that no `get`, `get_or` or `has` of this object or a copy of it has asked for, in
  /// path order. What was read from a nested config that `get<Config>` gave counts.
  std::vector<std::string> unread() const;

  /// Nested, keys sorted; NaN and infinities as text "nan", "inf", "-inf".
  std::string to_json(int indent = -1) const;
  /// bad_request when `text` is no JSON object or holds an object inside a list.
  static Result<Config> from_json(std::string_view text);

  bool operator==(const Config& other) const { return entries_ == other.entries_; }

 private:
  struct ReadLog;

  const std::optional<Value>* find(std::string_view key) const;  // notes that it was read
  bool has_below(std::string_view key) const;
  Config nested(std::string_view key) const;
  void replace(std::string_view key, std::optional<Value> value);
  [[noreturn]] void throw_missing(std::string_view key) const;
  [[noreturn]] void throw_wrong_type(std::string_view key, std::string_view asked) const;

  Entries entries_;
  std::shared_ptr<ReadLog> reads_;  // shared by copies; none while nothing is in here
  std::string prefix_;              // "augment/" when `get<Config>("augment")` made this
};

}  // namespace troupe::tune
