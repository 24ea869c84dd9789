#pragma once

#include "sgd/internal/exchange_group.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::sgd::internal {

/// Who of a group lives in this process.
struct SharedPlace {
  std::string path = {};  ///< `SharedSegment::path` of the process that made it
  std::uint64_t epoch = 0;
  int first_rank = 0;
  int rank_count = 1;
};

/// The exchanges of these ranks, in a group whose other ranks live in other processes of this
/// machine. The bits are those of a `LocalGroup`. A thread for each rank waits on its bell and
/// takes its slices; it looks after `limits::kBell` at the latest, so that no other process, dead,
/// stopped or mad, can hold this one: what it waits for it gets, or an error. Errors: those of
/// `SharedSegment::open`; bad_request: other ranks, another epoch, or somebody is one of them
/// already.
Result<std::unique_ptr<ExchangeGroup>> join_shared_group(const SharedPlace& place);

}  // namespace troupe::sgd::internal
