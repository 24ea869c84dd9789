#pragma once

#include <chrono>
#include <cstdint>

/// Every bound and time-out of training in step.
namespace troupe::sgd::limits {

using namespace std::chrono_literals;

inline constexpr std::chrono::milliseconds kSlow =
    5s;  ///< a rank that others wait for so long is reported, with what it does
inline constexpr double kSnapshotCost = 0.01;  ///< of the time of a pass, that snapshots may take
inline constexpr std::chrono::milliseconds kSnapshotInterval =
    500ms;  ///< at least so much training between two: what a lost process repeats

inline constexpr std::int64_t kMaxBatch = 1 << 30;  ///< samples; more is a mistake
inline constexpr std::int64_t kMaxPrefetch = 1024;  ///< batches

}  // namespace troupe::sgd::limits
