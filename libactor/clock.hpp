#pragma once

#include <chrono>

namespace troupe {

/// Where time comes from. Deciding code takes one by constructor, so that tests can turn it by
/// hand.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using WallTime = std::chrono::system_clock::time_point;

  virtual ~Clock() = default;
  virtual Time now() const = 0;       ///< monotonic: for durations and deadlines
  virtual WallTime wall() const = 0;  ///< for people: dates in files
};

/// The machine's clocks. Thread-safe.
class SystemClock final : public Clock {
 public:
  Time now() const override;
  WallTime wall() const override;
};

}  // namespace troupe
