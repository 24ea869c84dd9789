#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/fd.hpp"
#include "libactor/result.hpp"
#include "sgd/internal/collectives.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

/// The state of a group in memory that outlives its processes: written by the ranks, all at the
/// same step, kept by the trainer's process. Each process of ranks has two places and writes them
/// in turn, so that one is whole whenever it dies.
namespace troupe::sgd::internal {

/// The trainer's side: two memfds, which go with this object and leave nothing behind.
class SnapshotMemory {
 public:
  static Result<SnapshotMemory> make();

  /// What another process of this user opens them by, as long as this one lives.
  std::vector<std::string> paths() const;

  struct Kept {
    int place = 0;
    CheckpointReader reader;
  };
  /// Those that are whole, the newest first. Their number is `info().iteration`.
  std::vector<Kept> kept() const;

 private:
  std::array<Fd, 2> memory_ = {};
};

/// A snapshot by a path of SnapshotMemory::paths, or a checkpoint's folder.
Result<CheckpointReader> open_state(const std::string& path);

/// The blob in which a snapshot says which call it is the end of; 0: none.
inline constexpr std::string_view kCallBlob = "trainer/call";
inline constexpr std::string_view kResultBlob = "trainer/result";
/// How many processes wrote this snapshot; stands beside what ranks share.
inline constexpr std::string_view kProcessesBlob = "trainer/processes";
/// "rank/3/": one rank's part.
std::string rank_part(int rank);

struct SnapshotPlan {
  std::vector<std::string> memory = {};  ///< none: nothing is ever written
  int next_place = 0;
  std::int64_t next_number = 1;
  bool within_calls = true;   ///< every few steps too
  bool writes_shared = true;  ///< it is the process that has rank 0
};

/// The ranks' side: one object a process, used by all its ranks.
class Snapshots {
 public:
  explicit Snapshots(SnapshotPlan plan) : plan_(std::move(plan)) {}

  bool enabled() const { return !plan_.memory.empty(); }
  bool within_calls() const { return enabled() && plan_.within_calls; }

  /// Every rank of the group calls it at the same step. `save_shared` is called on one rank of the
  /// process that has rank 0, `save_own` on every rank, within its part. Throws what they throw. A
  /// memory that is full is logged, and the snapshot before stays.
  void take(Collectives& collectives, int local_rank,
            const std::function<void(CheckpointWriter&)>& save_shared,
            const std::function<void(CheckpointWriter&)>& save_own);

 private:
  void begin();
  void commit();

  SnapshotPlan plan_;
  std::mutex mutex_;  ///< writing is one rank's at a time
  std::unique_ptr<CheckpointWriter> writer_;
};

/// After how many steps the next one is due: often enough that little is repeated, seldom enough
/// that it costs nothing. Pure.
std::int64_t steps_until_next(std::chrono::nanoseconds step, std::chrono::nanoseconds snapshot);

}  // namespace troupe::sgd::internal
