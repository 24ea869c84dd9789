#pragma once

#include "libactor/clock.hpp"
#include "sgd/internal/messages.hpp"

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::sgd::internal {

/// How far the present pass is: a bar that is drawn over itself on a terminal, a line every ten
/// seconds elsewhere; on standard error, as it is no result. Thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(bool on);

  void show(const std::vector<RankStatus>& ranks);
  /// A sentence of its own, above the bar. Also when off: it may be what a rank printed.
  void say(const std::string& line);
  /// The pass is over: the bar goes.
  void end();

 private:
  void clear();

  std::mutex mutex_;
  bool on_ = false;
  bool terminal_ = false;
  bool drawn_ = false;
  Clock::Time next_ = {};
};

/// "train  37 % [#######             ] 345/938 batches, 3 ranks": pure.
std::string progress_text(const std::vector<RankStatus>& ranks);

}  // namespace troupe::sgd::internal
