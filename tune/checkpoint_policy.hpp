#pragma once

#include "tune/metrics.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// Which checkpoints of one trial are kept: the best by score, and the newest always beside them,
/// since the trial goes on from it.
class CheckpointPolicy {
 public:
  struct Kept {
    std::int64_t iteration = 0;
    std::string name = {};             ///< of its folder
    std::optional<double> score = {};  ///< larger is better; nothing when the result lacked it
  };

  /// keep_count: how many of the best; 0: all. score_attr: a metric, or "min-" and a metric of
  /// which small values are best; empty: the newest are best.
  explicit CheckpointPolicy(std::int64_t keep_count = 1, const std::string& score_attr = {});

  /// A checkpoint is published; `result` is the row of its iteration. Returns the names that are to
  /// be deleted. A checkpoint without a score, or with NaN, counts as worse than any other; of
  /// equal ones the newer is better. One of a known name replaces that.
  std::vector<std::string> on_saved(std::int64_t iteration, const std::string& name,
                                    const TrialResult& result);

  const std::vector<Kept>& kept() const { return kept_; }  ///< oldest first
  const Kept* newest() const;                              ///< nullptr when there is none
  const Kept* best() const;                                ///< nullptr when there is none

 private:
  std::optional<double> score_of(std::int64_t iteration, const TrialResult& result) const;

  std::int64_t keep_count_;
  bool smallest_is_best_ = false;
  std::string metric_;  // empty: the iteration
  std::vector<Kept> kept_;
};

}  // namespace troupe::tune
