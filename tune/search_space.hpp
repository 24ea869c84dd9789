#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/random.hpp"

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tune {

/// Where one value of a config comes from. Made by the functions below; a mistake in their
/// arguments is found by `check`, not when they are called.
class Domain {
 public:
  enum class Kind {
    uniform,
    quniform,
    loguniform,
    qloguniform,
    randint,
    qrandint,
    lograndint,
    qlograndint,
    randn,
    qrandn,
    choice,
    grid_search,
    sample_from,
  };
  using Function = std::function<Value(const Config& resolved, Random& random)>;

  Domain(Kind kind, Value::List arguments) : kind_(kind), arguments_(std::move(arguments)) {}
  explicit Domain(Function function) : kind_(Kind::sample_from), function_(std::move(function)) {}

  Kind kind() const { return kind_; }
  std::string_view name() const;  ///< "loguniform"
  /// As they were given: bounds and quantum, or the values of `choice` and `grid_search`.
  const Value::List& arguments() const { return arguments_; }
  const Function& function() const { return function_; }
  std::string text() const;  ///< "loguniform(0.0001, 0.1)"

  /// bad_request with the key, the domain and the way out.
  Result<void> check(std::string_view key) const;
  /// One value. Only after `check`; not for `grid_search` and `sample_from`.
  Value sample(Random& random) const;

 private:
  Kind kind_;
  Value::List arguments_;
  Function function_;
};

/// [low, high), a double.
Domain uniform(double low, double high);
/// A multiple of `quantum` in [low, high], each equally likely (in Ray the two ends come half as
/// often, and the bounds must be multiples).
Domain quniform(double low, double high, double quantum);
/// [low, high), its logarithm uniform.
Domain loguniform(double low, double high);
/// `loguniform` rounded to a multiple of `quantum` in [low, high].
Domain qloguniform(double low, double high, double quantum);
/// low … high-1, an int64.
Domain randint(std::int64_t low, std::int64_t high);
/// A multiple of `quantum` in low … high, the upper bound included, each equally likely.
Domain qrandint(std::int64_t low, std::int64_t high, std::int64_t quantum = 1);
/// low … high-1: `loguniform` rounded down.
Domain lograndint(std::int64_t low, std::int64_t high);
/// `loguniform` rounded to a multiple of `quantum` in low … high, the upper bound included.
Domain qlograndint(std::int64_t low, std::int64_t high, std::int64_t quantum);
/// Normally distributed.
Domain randn(double mean = 0, double standard_deviation = 1);
/// `randn` rounded to a multiple of `quantum`.
Domain qrandn(double mean, double standard_deviation, double quantum);

/// One of these, each equally likely. Values of several types stay as they are.
Domain choice(std::initializer_list<Value> values);
/// Each of these in its own trials: the grid of all such keys is run through `num_samples` times.
Domain grid_search(std::initializer_list<Value> values);

template <class T>
requires std::convertible_to<T, Value> Domain choice(const std::vector<T>& values) {
  return {Domain::Kind::choice, Value::List(values.begin(), values.end())};
}
template <class T>
requires std::convertible_to<T, Value> Domain grid_search(const std::vector<T>& values) {
  return {Domain::Kind::grid_search, Value::List(values.begin(), values.end())};
}

/// What a function makes of the values that are known: `sample_from([](const tune::Config& config)
/// { return 2 * config.get<int64_t>("hidden"); })`, with `tune::Random&` as second parameter if it
/// wants random numbers.
///
/// Ask by `get`: where it names the result of another sample_from that is not known yet, this one
/// is called again later.
template <class F>
requires std::is_invocable_v<F, const Config&, Random&> Domain sample_from(F function) {
  return Domain(Domain::Function([function](const Config& config, Random& random) {
    return Value(function(config, random));
  }));
}
template <class F>
requires std::is_invocable_v<F, const Config&> Domain sample_from(F function) {
  return Domain(Domain::Function(
      [function](const Config& config, Random&) { return Value(function(config)); }));
}

/// What the configs of an experiment's trials are made from: names to domains and constants,
/// nested.
class SearchSpace {
 public:
  /// Nothing: a nested space without entries.
  using Source = std::variant<std::monostate, Value, Domain>;
  struct Item {
    std::string key;  ///< full name: "augment/crop"
    Source source;
  };

  /// `{"lr", tune::loguniform(1e-4, 1e-1)}`, `{"hidden", 128}` or `{"augment", {{"flip", true}}}`
  /// in braces.
  class Entry {
   public:
    Entry(std::string key, Domain domain);
    Entry(std::string key, std::initializer_list<Entry> nested);
    Entry(std::string key, const SearchSpace& nested);
    Entry(std::string key, const Config& nested);
    template <class T>
    requires std::convertible_to<T, Value> Entry(std::string key, T&& value) {
      items_.push_back({std::move(key), Value(std::forward<T>(value))});
    }

   private:
    friend class SearchSpace;
    std::vector<Item> items_;
  };

  SearchSpace() = default;
  SearchSpace(std::initializer_list<Entry> entries);
  SearchSpace(const Config& constants);

  /// In path order.
  const std::vector<Item>& items() const { return items_; }
  bool empty() const { return items_.empty(); }
  /// Full names of what is not constant, in path order.
  std::vector<std::string> variables() const;
  /// One more entry: for spaces that are made in a loop.
  void add(std::string key, Source source);
  /// Adds what this space does not name.
  void add_defaults(const Config& defaults);

  /// bad_request with the key, what is wrong and the way out: a domain that holds nothing, a key
  /// given twice or empty. A space of constants, or of nothing, is no error: its trials differ by
  /// their seeds.
  Result<void> check() const;
  /// A sentence for the log when there is nothing to search, so that more than one trial would
  /// repeat the first with another seed: legal, but seldom meant.
  std::optional<std::string> warning(std::int64_t num_samples) const;
  /// JSON by full names, for the journal: `{"hidden":{"constant":128},"lr":{"uniform":[0.1,1.0]}}`.
  std::string spec() const;

 private:
  void sort();

  std::vector<Item> items_;
};

}  // namespace troupe::tune
