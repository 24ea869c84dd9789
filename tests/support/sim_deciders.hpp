#pragma once

#include "tune/scheduler.hpp"
#include "tune/searcher.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// A scheduler and a searcher for the simulator. Both show in `state` all that they were told, in
/// its order.
namespace troupe::tune::sim {

/// A trial's metric: scattered, and the same whenever it is asked.
double curve(std::uint64_t trial, std::int64_t iteration);

/// Trials in groups of three, in order of creation. Who reports its second row pauses until all
/// three of the group have; then the best goes on and the others end.
class HalvingScheduler final : public TrialScheduler {
 public:
  Result<void> begin(const std::string& metric, std::optional<Mode> mode,
                     std::uint64_t seed) override;
  void on_trial_add(const TrialView& trial) override;
  Verdict on_trial_result(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_complete(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_remove(const TrialView& trial) override;
  std::string debug_string() const override { return "halving"; }
  std::string spec() const override { return "{}"; }
  std::string state() const override { return told_; }

 private:
  struct Group {
    int added = 0;
    bool halved = false;
    std::map<std::string, std::optional<double>> members = {};  ///< and what they have reached
  };
  Verdict left(const std::string& id);
  Verdict halve(Group& group, const std::string& reporter);

  std::vector<Group> groups_;
  std::map<std::string, std::size_t> group_of_;
  std::string told_;
};

/// "x" of trial i comes from i alone.
class NotingSearcher final : public Searcher {
 public:
  Result<void> begin(const SearchSpace& space, const SearchOptions& options) override;
  Result<std::optional<Suggestion>> suggest(std::int64_t index) override;
  std::optional<std::int64_t> total() const override { return total_; }
  void on_trial_result(std::int64_t index, const TrialResult& result) override;
  void on_trial_complete(std::int64_t index, const TrialResult& last, bool failed) override;
  std::string spec() const override { return "{}"; }
  std::string state() const override { return told_; }

 private:
  std::int64_t total_ = 0;
  std::string told_;
};

}  // namespace troupe::tune::sim
