#pragma once

#include "libactor/result.hpp"
#include "tune/scheduler.hpp"
#include "tune/trial.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// What a journal says (journal.capnp), as C++ values.
namespace troupe::tune::internal {

struct RunBegun {
  std::string name = {};
  std::string experiment_id = {};
  std::string trainable = {};
  std::uint64_t seed = 0;
  double started_s = 0;  ///< since 1970
  std::string metric = {};
  std::optional<Mode> mode = {};
  std::int64_t num_samples = 0;
  std::string scheduler = {};  ///< class and parameters, JSON; so the next two
  std::string searcher = {};
  std::string space = {};
  std::string build_id = {};
  bool operator==(const RunBegun&) const = default;
};

struct RunResumed {
  double resumed_s = 0;  ///< since 1970
  std::string mode = {};
  bool operator==(const RunResumed&) const = default;
};

struct TrialAdded {
  std::uint64_t trial = 0;  ///< index, in order of creation
  std::string id = {};
  std::string tag = {};
  std::string directory = {};  ///< relative to the experiment's folder
  std::string config = {};     ///< encoded
  bool operator==(const TrialAdded&) const = default;
};

struct TrialStarted {
  std::uint64_t trial = 0;
  std::uint64_t incarnation = 0;
  std::int64_t from_iteration = 0;  ///< of the checkpoint that it goes on from
  bool operator==(const TrialStarted&) const = default;
};

struct ResultRow {
  std::uint64_t trial = 0;
  std::int64_t iteration = 0;
  std::string row = {};  ///< encoded Metrics
  Decision decision = Decision::proceed;
  bool by_stopper = false;  ///< else by the scheduler
  bool operator==(const ResultRow&) const = default;
};

struct CheckpointSaved {
  std::uint64_t trial = 0;
  std::int64_t iteration = 0;
  std::string name = {};  ///< of the folder in the trial's
  std::string uuid = {};
  bool operator==(const CheckpointSaved&) const = default;
};

struct CheckpointDeleted {
  std::uint64_t trial = 0;
  std::string name = {};
  bool operator==(const CheckpointDeleted&) const = default;
};

struct TrialFailed {
  std::uint64_t trial = 0;
  bool user = false;  ///< by its own code; else by machine or process
  std::string text = {};
  std::int64_t failure_count = 0;  ///< those that count against max_failures, this one included
  bool operator==(const TrialFailed&) const = default;
};

struct TrialEnded {
  std::uint64_t trial = 0;
  TrialState state = TrialState::terminated;
  std::string why = {};
  bool operator==(const TrialEnded&) const = default;
};

struct TrialReopened {
  std::uint64_t trial = 0;
  bool from_beginning = false;
  bool operator==(const TrialReopened&) const = default;
};

struct TimeUsed {
  double seconds = 0;  ///< of the budget, by all drivers so far
  bool operator==(const TimeUsed&) const = default;
};

struct RunEnded {
  std::string why = {};
  bool operator==(const RunEnded&) const = default;
};

using Record =
    std::variant<RunBegun, RunResumed, TrialAdded, TrialStarted, ResultRow, CheckpointSaved,
                 CheckpointDeleted, TrialFailed, TrialEnded, TrialReopened, TimeUsed, RunEnded>;

/// Puts one Cap'n Proto message of one segment behind what is in `out`: whole words.
void append_encoded(const Record& record, std::vector<std::byte>& out);

/// `bytes` must begin at a multiple of 8. corrupt for anything that `append_encoded` did not write,
/// whatever the bytes are.
Result<Record> decode_record(std::span<const std::byte> bytes);

}  // namespace troupe::tune::internal
