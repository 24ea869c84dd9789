#include "tune/searcher.hpp"

#include "tune/internal/did_you_mean.hpp"
#include "tune/naming.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace troupe::tune {
namespace {

Error bad_request(std::string text) { return make_error(Errc::bad_request, std::move(text)); }

const Domain* domain_of(const SearchSpace::Item& item) { return std::get_if<Domain>(&item.source); }

bool is_kind(const SearchSpace::Item& item, Domain::Kind kind) {
  const Domain* domain = domain_of(item);
  return domain && domain->kind() == kind;
}

const Value* fixed_by(const Config* point, const std::string& key) {
  if (!point) return nullptr;
  const auto found = point->entries().find(key);
  return found != point->entries().end() && found->second ? &*found->second : nullptr;
}

/// Combinations of the grid keys that `point` does not fix; nothing above 2^62.
std::optional<std::int64_t> grid_size(const SearchSpace& space, const Config* point) {
  std::int64_t size = 1;
  for (const auto& item : space.items()) {
    if (!is_kind(item, Domain::Kind::grid_search) || fixed_by(point, item.key)) continue;
    const auto count = static_cast<std::int64_t>(domain_of(item)->arguments().size());
    if (size > (std::int64_t{1} << 62) / count) return std::nullopt;
    size *= count;
  }
  return size;
}

Result<void> check_point(const SearchSpace& space, const Config& point, std::size_t number) {
  std::vector<std::string> names;
  for (const auto& item : space.items())
    if (!std::holds_alternative<std::monostate>(item.source)) names.push_back(item.key);
  for (const auto& [key, value] : point.entries())
    if (value && std::ranges::find(names, key) == names.end())
      return bad_request(fmt::format("points_to_evaluate[{}] has the key '{}', config has not{}",
                                     number, key, internal::did_you_mean(key, names)));
  return {};
}

/// Calls each `sample_from` with what is known so far, until all are known. One that asks for a key
/// that is not known yet throws ConfigError, and is asked again after the others.
Result<void> resolve_functions(std::vector<const SearchSpace::Item*> waiting, Random& random,
                               Config& config) {
  while (!waiting.empty()) {
    std::vector<const SearchSpace::Item*> still_waiting;
    std::string why;
    for (const auto* item : waiting) {
      const auto value = fence(Errc::user_code, [&]() -> std::optional<Value> {
        try {
          return domain_of(*item)->function()(config, random);
        } catch (const ConfigError& e) {
          why = e.what();
          return std::nullopt;
        }
      });
      if (!value)
        return with_context(value.error(), fmt::format("config key '{}': sample_from", item->key));
      if (*value)
        config.set(item->key, **value);
      else
        still_waiting.push_back(item);
    }
    if (still_waiting.size() == waiting.size()) {
      std::string keys;
      for (const auto* item : waiting) keys += (keys.empty() ? "'" : ", '") + item->key + "'";
      return bad_request(fmt::format(
          "config key {}: sample_from needs what is not there, or each other in a cycle: {}", keys,
          why));
    }
    waiting = std::move(still_waiting);
  }
  return {};
}

}  // namespace

Result<void> BasicVariantGenerator::begin(const SearchSpace& space, const SearchOptions& options) {
  if (auto checked = space.check(); !checked) return checked;
  if (options.num_samples == 0)
    return bad_request("num_samples is 0: nothing would run; give 1 or more, or -1 for endless");
  if (options.num_samples < -1)
    return bad_request(
        fmt::format("num_samples is {}; give 1 or more, or -1 for endless", options.num_samples));
  const auto size = grid_size(space, nullptr);
  if (!size) return bad_request("grid_search has more than 2^62 combinations; give fewer values");

  std::int64_t end = 0;
  std::vector<std::int64_t> ends;
  for (std::size_t i = 0; i < options.points_to_evaluate.size(); ++i) {
    const Config& point = options.points_to_evaluate[i];
    if (auto checked = check_point(space, point, i); !checked) return checked;
    const auto count = grid_size(space, &point);  // no more than *size
    if (*count > std::numeric_limits<std::int64_t>::max() - end)
      return bad_request("points_to_evaluate gives more than 2^63 trials; fix more grid keys");
    ends.push_back(end += *count);
  }
  const auto samples_left =
      options.num_samples - static_cast<std::int64_t>(options.points_to_evaluate.size());
  if (options.num_samples > 0 && samples_left > 0 &&
      samples_left > (std::numeric_limits<std::int64_t>::max() - end) / *size)
    return bad_request(fmt::format(
        "num_samples {} of a grid of {} gives more than 2^63 trials; give -1 for endless",
        options.num_samples, *size));

  space_ = space;
  seed_ = options.seed;
  points_ = options.points_to_evaluate;
  point_ends_ = std::move(ends);
  grid_size_ = *size;
  total_ = options.num_samples < 0 ? -1 : end + std::max<std::int64_t>(0, samples_left) * *size;
  return {};
}

BasicVariantGenerator::Variant BasicVariantGenerator::variant(std::int64_t index) const {
  const auto end = std::ranges::upper_bound(point_ends_, index);
  const std::int64_t begin = end == point_ends_.begin() ? 0 : *std::prev(end);
  if (end == point_ends_.end()) return {nullptr, (index - begin) % grid_size_};
  return {&points_[static_cast<std::size_t>(end - point_ends_.begin())], index - begin};
}

Result<std::optional<Suggestion>> BasicVariantGenerator::suggest(std::int64_t index) {
  if (index < 0 || (total_ >= 0 && index >= total_)) return std::optional<Suggestion>();

  auto [point, grid_index] = variant(index);
  Random random(seed_, static_cast<std::uint64_t>(index));
  Config config;
  std::vector<const SearchSpace::Item*> functions;
  for (const auto& item : space_.items()) {
    const Domain* domain = domain_of(item);
    if (const Value* fixed = fixed_by(point, item.key)) {
      config.set(item.key, *fixed);
    } else if (!domain) {
      if (const auto* value = std::get_if<Value>(&item.source))
        config.set(item.key, *value);
      else
        config.set_empty_nested(item.key);
    } else if (domain->kind() == Domain::Kind::grid_search) {
      const auto count = static_cast<std::int64_t>(domain->arguments().size());
      config.set(item.key, domain->arguments()[static_cast<std::size_t>(grid_index % count)]);
      grid_index /= count;
    } else if (domain->kind() == Domain::Kind::sample_from) {
      functions.push_back(&item);
    } else {
      config.set(item.key, domain->sample(random));
    }
  }
  if (auto resolved = resolve_functions(std::move(functions), random, config); !resolved)
    return resolved.error();

  std::vector<std::pair<std::string, Value>> resolved;
  for (const auto& item : space_.items())
    if (domain_of(item) && !fixed_by(point, item.key))
      resolved.emplace_back(item.key, *config.entries().at(item.key));
  return std::optional(Suggestion{std::move(config), experiment_tag(index, resolved)});
}

std::string BasicVariantGenerator::spec() const { return R"({"class":"BasicVariantGenerator"})"; }

std::string BasicVariantGenerator::state() const { return "{}"; }

AnySearcher::AnySearcher() : AnySearcher(BasicVariantGenerator()) {}

}  // namespace troupe::tune
