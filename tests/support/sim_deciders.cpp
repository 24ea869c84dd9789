#include "tests/support/sim_deciders.hpp"

namespace troupe::tune::sim {

double curve(std::uint64_t trial, std::int64_t iteration) {
  std::uint64_t x = trial * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(iteration);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  return static_cast<double>((x ^ (x >> 27)) % 1000) / 1000;
}

Result<void> HalvingScheduler::begin(const std::string&, std::optional<Mode>, std::uint64_t) {
  return {};
}

void HalvingScheduler::on_trial_add(const TrialView& trial) {
  told_ += "add " + trial.id + "\n";
  if (groups_.empty() || groups_.back().added == 3) groups_.emplace_back();
  groups_.back().members[trial.id] = {};
  ++groups_.back().added;
  group_of_[trial.id] = groups_.size() - 1;
}

Verdict HalvingScheduler::on_trial_result(const TrialView& trial, const TrialResult& result) {
  const auto iteration = *result.number(kTrainingIteration);
  told_ += "result " + trial.id + " " + std::to_string(iteration) + "\n";
  Group& group = groups_[group_of_.at(trial.id)];
  if (iteration != 2 || group.halved) return {};
  group.members[trial.id] = result.number("score");
  auto verdict = halve(group, trial.id);
  if (!group.halved) verdict.decision = Decision::pause;
  return verdict;
}

Verdict HalvingScheduler::on_trial_complete(const TrialView& trial, const TrialResult&) {
  told_ += "complete " + trial.id + "\n";
  return left(trial.id);
}

Verdict HalvingScheduler::on_trial_remove(const TrialView& trial) {
  told_ += "remove " + trial.id + "\n";
  return left(trial.id);
}

Verdict HalvingScheduler::left(const std::string& id) {
  Group& group = groups_[group_of_.at(id)];
  group.members.erase(id);
  return group.halved ? Verdict{} : halve(group, id);
}

Verdict HalvingScheduler::halve(Group& group, const std::string& reporter) {
  Verdict verdict{.why = "group of three"};
  if (group.added < 3 || group.members.empty()) return verdict;
  const std::string* best = nullptr;
  for (const auto& [id, reached] : group.members) {
    if (!reached) return verdict;
    if (!best || *reached > *group.members.at(*best)) best = &id;
  }
  group.halved = true;
  for (const auto& [id, reached] : group.members) {
    const bool goes_on = id == *best;
    if (id == reporter)
      verdict.decision = goes_on ? Decision::proceed : Decision::stop;
    else
      (goes_on ? verdict.resume : verdict.stop).push_back(id);
  }
  return verdict;
}

Result<void> NotingSearcher::begin(const SearchSpace&, const SearchOptions& options) {
  total_ = options.num_samples;
  return {};
}

Result<std::optional<Suggestion>> NotingSearcher::suggest(std::int64_t index) {
  if (index >= total_) return std::optional<Suggestion>();
  told_ += "suggest " + std::to_string(index) + "\n";
  return std::optional(
      Suggestion{.config = {{"x", static_cast<double>(index) / 7}}, .tag = std::to_string(index)});
}

void NotingSearcher::on_trial_result(std::int64_t index, const TrialResult& result) {
  told_ += "result " + std::to_string(index) + " " +
           std::to_string(*result.number(kTrainingIteration)) + "\n";
}

void NotingSearcher::on_trial_complete(std::int64_t index, const TrialResult& last, bool failed) {
  told_ +=
      "complete " + std::to_string(index) + " " + last.to_json() + (failed ? " failed" : "") + "\n";
}

}  // namespace troupe::tune::sim
