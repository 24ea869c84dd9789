#include "tune/search_space.hpp"

#include "libactor/assert.hpp"
#include "tune/internal/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

using Kind = Domain::Kind;

bool is_any(Kind kind, std::initializer_list<Kind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

bool is_list(Kind kind) { return is_any(kind, {Kind::choice, Kind::grid_search}); }
bool is_normal(Kind kind) { return is_any(kind, {Kind::randn, Kind::qrandn}); }
bool is_log(Kind kind) {
  return is_any(kind, {Kind::loguniform, Kind::qloguniform, Kind::lograndint, Kind::qlograndint});
}
bool is_quantised(Kind kind) {
  return is_any(
      kind, {Kind::quniform, Kind::qloguniform, Kind::qrandint, Kind::qlograndint, Kind::qrandn});
}

/// k · quantum; for 0.1, 0.05 and the like k / 10, k / 20, so that 3 · 0.1 is 0.3 to the last bit.
double multiple(double k, double quantum) {
  const double inverse = std::round(1 / quantum);
  return std::abs(inverse * quantum - 1) < 1e-12 ? k / inverse : k * quantum;
}

/// The k of the first and last multiple of a quantum between two bounds.
struct Multiples {
  double first;
  double last;
};

/// A bound that is a multiple counts, although 0.3 / 0.1 is a little less than 3.
Multiples multiples(double low, double high, double quantum) {
  const auto slack = [](double k) { return 1e-9 * std::max(1.0, std::abs(k)); };
  const double first = low / quantum, last = high / quantum;
  return {std::ceil(first - slack(first)), std::floor(last + slack(last))};
}

struct IntMultiples {
  std::int64_t first;
  std::int64_t last;
};

IntMultiples multiples(std::int64_t low, std::int64_t high, std::int64_t quantum) {
  const auto floored = [&](std::int64_t n) { return n / quantum - (n % quantum < 0 ? 1 : 0); };
  return {floored(low) + (low % quantum != 0 ? 1 : 0), floored(high)};
}

/// [low, high): also where rounding would reach `high`.
double between(Random& random, double low, double high) {
  const double u = random.uniform();
  return std::clamp(low * (1 - u) + high * u, low, std::nextafter(high, low));
}

double log_between(Random& random, double low, double high) {
  return std::clamp(std::exp(between(random, std::log(low), std::log(high))), low,
                    std::nextafter(high, low));
}

/// low … high, each equally likely.
std::int64_t int_between(Random& random, std::int64_t low, std::int64_t high) {
  const auto count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t drawn = count == 0 ? random.bits() : random.below(count);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + drawn);
}

/// A whole number as an int64; the nearest there is.
std::int64_t int_of(double whole) {
  if (whole >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(whole);
}

Domain of(Kind kind, Value::List arguments) { return {kind, std::move(arguments)}; }

}  // namespace

Domain uniform(double low, double high) { return of(Kind::uniform, {low, high}); }
Domain quniform(double low, double high, double quantum) {
  return of(Kind::quniform, {low, high, quantum});
}
Domain loguniform(double low, double high) { return of(Kind::loguniform, {low, high}); }
Domain qloguniform(double low, double high, double quantum) {
  return of(Kind::qloguniform, {low, high, quantum});
}
Domain randint(std::int64_t low, std::int64_t high) { return of(Kind::randint, {low, high}); }
Domain qrandint(std::int64_t low, std::int64_t high, std::int64_t quantum) {
  return of(Kind::qrandint, {low, high, quantum});
}
Domain lograndint(std::int64_t low, std::int64_t high) { return of(Kind::lograndint, {low, high}); }
Domain qlograndint(std::int64_t low, std::int64_t high, std::int64_t quantum) {
  return of(Kind::qlograndint, {low, high, quantum});
}
Domain randn(double mean, double standard_deviation) {
  return of(Kind::randn, {mean, standard_deviation});
}
Domain qrandn(double mean, double standard_deviation, double quantum) {
  return of(Kind::qrandn, {mean, standard_deviation, quantum});
}
Domain choice(std::initializer_list<Value> values) { return of(Kind::choice, values); }
Domain grid_search(std::initializer_list<Value> values) { return of(Kind::grid_search, values); }

std::string_view Domain::name() const {
  constexpr std::string_view kNames[] = {"uniform",    "quniform", "loguniform", "qloguniform",
                                         "randint",    "qrandint", "lograndint", "qlograndint",
                                         "randn",      "qrandn",   "choice",     "grid_search",
                                         "sample_from"};
  return kNames[static_cast<std::size_t>(kind_)];
}

std::string Domain::text() const {
  std::string arguments;
  for (const Value& argument : arguments_)
    arguments += (arguments.empty() ? "" : ", ") + argument.text();
  if (is_list(kind_)) arguments = "[" + arguments + "]";
  return fmt::format("{}({})", name(), arguments);
}

namespace {

/// What is wrong with the numbers of a domain, and the way out; empty when nothing is.
std::string fault_of_bounds(const Domain& domain) {
  const Value &low = domain.arguments()[0], &high = domain.arguments()[1];
  const bool below =
      low.is_int() ? low.as_int() < high.as_int() : low.as_double() < high.as_double();
  if (low == high)
    return fmt::format("the bounds are equal; give {} itself for a constant", low.text());
  if (!below) return "the lower bound is above the upper one; swap them";
  if (is_log(domain.kind()) && low.as_double() <= 0)
    return fmt::format("the lower bound {} has no logarithm; give one above 0", low.text());
  if (!is_quantised(domain.kind())) return {};

  const Value& quantum = domain.arguments()[2];
  if (quantum.as_double() <= 0)
    return fmt::format("the quantum {} is not above 0; give the distance of two values",
                       quantum.text());
  if (low.is_int()) {
    const auto [first, last] = multiples(low.as_int(), high.as_int(), quantum.as_int());
    return first <= last ? "" : "no multiple of the quantum lies between; give a smaller quantum";
  }
  const auto [first, last] = multiples(low.as_double(), high.as_double(), quantum.as_double());
  if (first > last) return "no multiple of the quantum lies between; give a smaller quantum";
  if (std::max(std::abs(first), std::abs(last)) > 0x1p52)
    return "the quantum is too small to matter; give a larger one, or none";
  return {};
}

std::string fault_of_normal(const Domain& domain) {
  if (domain.arguments()[1].as_double() <= 0)
    return "the standard deviation is not above 0; give a positive one, or the mean as a constant";
  if (is_quantised(domain.kind()) && domain.arguments()[2].as_double() <= 0)
    return "the quantum is not above 0; give the distance of two values";
  return {};
}

std::string fault_of(const Domain& domain) {
  if (domain.kind() == Kind::sample_from) return domain.function() ? "" : "there is no function";
  if (is_list(domain.kind()))
    return domain.arguments().empty() ? "of nothing there is no trial; give at least one value"
                                      : "";
  for (const Value& number : domain.arguments())
    if (!std::isfinite(number.as_double()))
      return fmt::format("{} is no bound; give finite numbers", number.text());
  return is_normal(domain.kind()) ? fault_of_normal(domain) : fault_of_bounds(domain);
}

}  // namespace

Result<void> Domain::check(std::string_view key) const {
  const std::string fault = fault_of(*this);
  if (fault.empty()) return {};
  return make_error(Errc::bad_request, fmt::format("config key '{}': {}: {}", key, text(), fault));
}

Value Domain::sample(Random& random) const {
  const auto real = [&](std::size_t i) { return arguments_[i].as_double(); };
  const auto whole = [&](std::size_t i) { return arguments_[i].as_int(); };
  switch (kind_) {
    case Kind::uniform: return between(random, real(0), real(1));
    case Kind::loguniform: return log_between(random, real(0), real(1));
    case Kind::quniform: {
      const auto [first, last] = multiples(real(0), real(1), real(2));
      const double k = first + static_cast<double>(
                                   int_between(random, 0, static_cast<std::int64_t>(last - first)));
      return std::clamp(multiple(k, real(2)), real(0), real(1));
    }
    case Kind::qloguniform: {
      const auto [first, last] = multiples(real(0), real(1), real(2));
      const double k = std::round(log_between(random, real(0), real(1)) / real(2));
      return std::clamp(multiple(std::clamp(k, first, last), real(2)), real(0), real(1));
    }
    case Kind::randint: return int_between(random, whole(0), whole(1) - 1);
    case Kind::qrandint: {
      const auto [first, last] = multiples(whole(0), whole(1), whole(2));
      return int_between(random, first, last) * whole(2);
    }
    case Kind::lograndint: {
      const double drawn = std::floor(log_between(random, real(0), real(1)));
      return std::clamp(int_of(drawn), whole(0), whole(1) - 1);
    }
    case Kind::qlograndint: {
      const auto [first, last] = multiples(whole(0), whole(1), whole(2));
      const double k = std::round(log_between(random, real(0), real(1)) / real(2));
      return std::clamp(int_of(k), first, last) * whole(2);
    }
    case Kind::randn: return real(0) + real(1) * random.normal();
    case Kind::qrandn:
      return multiple(std::round((real(0) + real(1) * random.normal()) / real(2)), real(2));
    case Kind::choice: return arguments_[random.below(arguments_.size())];
    case Kind::grid_search:
    case Kind::sample_from: break;
  }
  TROUPE_ASSERT(false, "not sampled by itself:", name());
  return {};
}

// --- SearchSpace ---------------------------------------------------------------------------------

SearchSpace::Entry::Entry(std::string key, Domain domain) {
  items_.push_back({std::move(key), std::move(domain)});
}

SearchSpace::Entry::Entry(std::string key, std::initializer_list<Entry> nested) {
  if (nested.size() == 0) items_.push_back({key, {}});
  for (const Entry& entry : nested)
    for (const Item& item : entry.items_) items_.push_back({key + "/" + item.key, item.source});
}

SearchSpace::Entry::Entry(std::string key, const SearchSpace& nested) {
  if (nested.empty()) items_.push_back({key, {}});
  for (const Item& item : nested.items_) items_.push_back({key + "/" + item.key, item.source});
}

SearchSpace::Entry::Entry(std::string key, const Config& nested)
    : Entry(std::move(key), SearchSpace(nested)) {}

SearchSpace::SearchSpace(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries)
    items_.insert(items_.end(), entry.items_.begin(), entry.items_.end());
  sort();
}

SearchSpace::SearchSpace(const Config& constants) {
  for (const auto& [name, value] : constants.entries())
    items_.push_back({name, value ? Source(*value) : Source()});
}

void SearchSpace::sort() { std::ranges::stable_sort(items_, PathLess(), &Item::key); }

std::vector<std::string> SearchSpace::variables() const {
  std::vector<std::string> names;
  for (const Item& item : items_)
    if (std::holds_alternative<Domain>(item.source)) names.push_back(item.key);
  return names;
}

void SearchSpace::add(std::string key, Source source) {
  items_.push_back({std::move(key), std::move(source)});
  sort();
}

void SearchSpace::add_defaults(const Config& defaults) {
  const auto is_named = [&](const std::string& key) {
    return std::ranges::any_of(items_, [&](const Item& item) {
      if (item.key == key || item.key.starts_with(key + "/")) return true;
      const bool is_nested = std::holds_alternative<std::monostate>(item.source);
      return !is_nested && key.starts_with(item.key + "/");
    });
  };
  std::vector<Item> added;
  for (const auto& [key, value] : defaults.entries())
    if (!is_named(key)) added.push_back({key, value ? Source(*value) : Source()});
  items_.insert(items_.end(), added.begin(), added.end());
  sort();
}

Result<void> SearchSpace::check() const {
  const Item* previous = nullptr;
  for (const Item& item : items_) {
    const std::string path = "/" + item.key + "/";
    if (path.find("//") != path.npos)
      return make_error(Errc::bad_request,
                        fmt::format("config key '{}' has an empty part; \"/\" stands between the "
                                    "names of nested keys",
                                    item.key));
    if (previous && previous->key == item.key)
      return make_error(Errc::bad_request,
                        fmt::format("config key '{}' is given twice; give it once", item.key));
    if (previous && item.key.starts_with(previous->key + "/") &&
        !std::holds_alternative<std::monostate>(previous->source))
      return make_error(Errc::bad_request,
                        fmt::format("config key '{}' has a value and also holds '{}'; give one of "
                                    "them another name",
                                    previous->key, item.key));
    if (const auto* domain = std::get_if<Domain>(&item.source))
      if (auto checked = domain->check(item.key); !checked) return checked;
    previous = &item;
  }
  return {};
}

std::optional<std::string> SearchSpace::warning(std::int64_t num_samples) const {
  if (num_samples == 1 || !variables().empty()) return std::nullopt;
  return fmt::format(
      "config has nothing to search, so its {} trials differ by their seeds only; give a key a "
      "domain, as in {{\"lr\", tune::loguniform(1e-4, 1e-1)}}, or num_samples 1",
      num_samples < 0 ? "endless" : std::to_string(num_samples));
}

std::string SearchSpace::spec() const {
  auto spec = internal::Json::object();
  for (const Item& item : items_) {
    auto& entry = spec[item.key] = internal::Json::object();
    if (const auto* value = std::get_if<Value>(&item.source))
      entry["constant"] = internal::json_of(*value);
    else if (const auto* domain = std::get_if<Domain>(&item.source))
      entry[std::string(domain->name())] = internal::json_of(domain->arguments());
    else
      entry["nested"] = internal::Json::object();
  }
  return internal::dump(spec);
}

}  // namespace troupe::tune
