#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every bound and time-out of training in step.
namespace troupe::sgd::limits {

using namespace std::chrono_literals;

inline constexpr std::chrono::milliseconds kStatus = 250ms;  ///< between two looks at the ranks
inline constexpr std::chrono::milliseconds kSlow =
    5s;  ///< a rank that others wait for so long is reported, with what it does
inline constexpr std::chrono::milliseconds kStuck =
    2s;  ///< when no rank computes any more and each waits for another: until that is an error
inline constexpr std::chrono::milliseconds kSilent =
    10s;  ///< a process of ranks that does not answer for so long is given up
inline constexpr std::chrono::milliseconds kStart = 60s;  ///< of all processes of a group
inline constexpr std::chrono::milliseconds kGather =
    5s;  ///< then a smaller group begins, where that is allowed
inline constexpr std::chrono::milliseconds kSetUp = 10min;  ///< the user's `setup` on all ranks
inline constexpr std::chrono::milliseconds kLeave = 5s;  ///< until ranks that are told to end have

inline constexpr double kSnapshotCost = 0.01;  ///< of the time of a pass, that snapshots may take
inline constexpr std::chrono::milliseconds kSnapshotInterval =
    500ms;  ///< at least so much training between two: what a lost process repeats
inline constexpr int kFirstSnapshot = 8;  ///< steps, while nothing is known of their time

inline constexpr std::int64_t kMaxBatch = 1 << 30;  ///< samples; more is a mistake
inline constexpr std::int64_t kMaxPrefetch = 1024;  ///< batches

// --- the exchange ---------------------------------------------------------------------------

inline constexpr std::uint32_t kChannels = 1024;  ///< of a group: one a model, and the user's
inline constexpr std::uint64_t kOpenCollectives = 4096;  ///< begun and not over, in one channel
inline constexpr std::size_t kEarlyNotes = 65536;        ///< of epochs to come, kept for them
inline constexpr std::size_t kDirectBytes =
    std::size_t{256} << 10;  ///< up to here whoever comes last adds up for all ranks: it takes less
                             ///< time than to wake them
inline constexpr std::chrono::microseconds kSpin =
    20us;  ///< a rank that waits yields so long before it sleeps: waking it takes as much

// --- between groups -------------------------------------------------------------------------

inline constexpr std::size_t kWindow = 4;  ///< chunks to one peer that it has not acknowledged
inline constexpr std::size_t kLeastChunkBytes =
    std::size_t{128} << 10;  ///< smaller ones cost more than cutting a buffer gains
inline constexpr std::size_t kDoublingBytes =
    std::size_t{64} << 10;  ///< larger sums of three and more groups go around a ring
inline constexpr std::chrono::milliseconds kBye =
    1s;  ///< a group that leaves waits so long until the others have taken what it sent

// --- between processes of a machine ---------------------------------------------------------

inline constexpr int kSharedRanks = 256;  ///< of a group: it has a ring for each two
inline constexpr std::uint64_t kRingNotes =
    64;  ///< that lie in a ring; more wait in the process that sends them
inline constexpr std::size_t kFailureBytes = 2000;  ///< of an error's sentence
inline constexpr std::uint32_t kFailures = 64;      ///< errors at once; the others are not noted
inline constexpr std::chrono::milliseconds kBell =
    100ms;  ///< without a bell: until a rank looks by itself
inline constexpr std::chrono::milliseconds kFullRing = 1ms;  ///< until the next try

}  // namespace troupe::sgd::limits
