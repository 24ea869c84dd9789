#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every bound and time-out of Troupe, in one place.
namespace troupe::limits {

using namespace std::chrono_literals;

// --- time -----------------------------------------------------------------------------------

inline constexpr std::chrono::milliseconds kHandshake =
    5s;  ///< TCP, TLS and hello of a new connection
inline constexpr std::chrono::milliseconds kRequest =
    30s;  ///< one request to an actor and its reply
inline constexpr std::chrono::milliseconds kZygoteStart =
    30s;  ///< exec of the user's binary to a ready zygote
inline constexpr std::chrono::milliseconds kTerminateGrace = 10s;  ///< asked to end, then SIGKILL
inline constexpr std::chrono::milliseconds kTrialEnd =
    60s;  ///< a trial that was told to stop or pause, until it is killed
inline constexpr std::chrono::milliseconds kShutdown =
    5s;  ///< an actor system that does not end is left hard
inline constexpr std::chrono::milliseconds kMemorySample =
    250ms;                                              ///< how often a worker's PSS is looked at
inline constexpr std::chrono::milliseconds kSync = 1s;  ///< how often result files go to the disk
inline constexpr std::chrono::milliseconds kRetryWrite =
    1s;  ///< after a failed write, until the next try
inline constexpr std::chrono::milliseconds kStatus = 5s;  ///< between two status tables
inline constexpr std::chrono::milliseconds kTick =
    250ms;  ///< how often an experiment looks at the clock
inline constexpr std::chrono::milliseconds kTimeNoted =
    10s;  ///< how often it journals the time that it has used
inline constexpr std::chrono::milliseconds kGotOn =
    10s;  ///< a process that lived this long is restarted at once, whatever was before
inline constexpr std::chrono::milliseconds kAcceptPause =
    50ms;  ///< without descriptors: until the next accept
inline constexpr std::chrono::milliseconds kCheckpointInterval =
    30s;  ///< between two automatic checkpoints of a trial, and
inline constexpr double kCheckpointCost =
    0.02;  ///< of the trial's time that saving may have taken by then

// --- size -----------------------------------------------------------------------------------

inline constexpr std::int64_t kChunkBytes = std::int64_t{1}
                                            << 20;  ///< bulk goes in pieces of at most this
inline constexpr std::int64_t kFrameBytes = std::int64_t{1}
                                            << 16;  ///< one frame between node and zygote
inline constexpr std::int64_t kMessageBytes = std::int64_t{64}
                                              << 20;  ///< one message between actors
inline constexpr std::int64_t kLogBytes = std::int64_t{64}
                                          << 20;  ///< one log file; the one before it is kept
inline constexpr std::int64_t kTocBytes = std::int64_t{16}
                                          << 20;  ///< table of contents of a checkpoint
inline constexpr std::int64_t kJournalRecordBytes = std::int64_t{16} << 20;
inline constexpr std::size_t kParametersBytes = 4096;  ///< names and values, all together
inline constexpr std::size_t kNameBytes = 1024;        ///< a blob's name
inline constexpr int kConnections = 256;           ///< unauthenticated connections of one acceptor
inline constexpr int kConnectionsPerAddress = 64;  ///< … from one address

// --- counts ---------------------------------------------------------------------------------

inline constexpr int kActorThreads = 2;   ///< CAF's threads in a worker
inline constexpr int kDriverThreads = 4;  ///< and in a driver
inline constexpr int kThreadsAtStart =
    12;  ///< of a driver: those, CAF's network, clock and printer, the node, the zygote's reader
inline constexpr int kZygoteTries =
    3;  ///< in a row, none got ready: the program can't start at all
inline constexpr int kSchedulerTries =
    3;                                   ///< deaths without an answer between: it won't get better
inline constexpr int kDescriptors = 32;  ///< fewer open files than this are no way to begin
inline constexpr int kPretended = 10'000;  ///< CPUs or GPUs, by --troupe-cpus and --troupe-gpus
inline constexpr int kPendingTrials = 16;  ///< trials that are made ahead of free resources
inline constexpr int kNotes = 1'000;       ///< different sentences of trials that are logged
inline constexpr int kMessageDepth = 16;   ///< messages nested in messages

static_assert(kHandshake < kRequest);
static_assert(kChunkBytes < kMessageBytes);
static_assert(kFrameBytes <= kChunkBytes);

}  // namespace troupe::limits
