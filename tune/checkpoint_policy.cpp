#include "tune/checkpoint_policy.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

namespace troupe::tune {
namespace {

constexpr std::string_view kMinPrefix = "min-";

/// Missing, then NaN, then numbers.
std::pair<int, double> rank(const CheckpointPolicy::Kept& kept) {
  if (!kept.score) return {0, 0};
  if (std::isnan(*kept.score)) return {1, 0};
  return {2, *kept.score};
}

bool worse(const CheckpointPolicy::Kept& a, const CheckpointPolicy::Kept& b) {
  return rank(a) < rank(b);
}

}  // namespace

CheckpointPolicy::CheckpointPolicy(std::int64_t keep_count, const std::string& score_attr)
    : keep_count_(keep_count), smallest_is_best_(score_attr.starts_with(kMinPrefix)) {
  metric_ = smallest_is_best_ ? score_attr.substr(kMinPrefix.size()) : score_attr;
}

std::vector<std::string> CheckpointPolicy::on_saved(std::int64_t iteration, const std::string& name,
                                                    const TrialResult& result) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.name == name; });
  kept_.push_back({.iteration = iteration, .name = name, .score = score_of(iteration, result)});

  std::vector<std::string> gone;
  while (keep_count_ > 0 && std::ssize(kept_) > keep_count_) {
    const auto newest = std::prev(kept_.end());
    const auto worst = std::min_element(kept_.begin(), newest, worse);  // the oldest of equals
    // The newest stays, and takes no place of the best unless it is one of them.
    if (std::ssize(kept_) == keep_count_ + 1 && worse(*newest, *worst)) break;
    gone.push_back(worst->name);
    kept_.erase(worst);
  }
  return gone;
}

std::optional<double> CheckpointPolicy::score_of(std::int64_t iteration,
                                                 const TrialResult& result) const {
  const auto value = metric_.empty() ? static_cast<double>(iteration) : result.number(metric_);
  if (!value) return std::nullopt;
  return smallest_is_best_ ? -*value : *value;
}

const CheckpointPolicy::Kept* CheckpointPolicy::newest() const {
  return kept_.empty() ? nullptr : &kept_.back();
}

const CheckpointPolicy::Kept* CheckpointPolicy::best() const {
  const auto best = std::max_element(kept_.rbegin(), kept_.rend(), worse);  // the newest of equals
  return best == kept_.rend() ? nullptr : &*best;
}

}  // namespace troupe::tune
