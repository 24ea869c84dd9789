#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/result.hpp"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The checkpoints of one trial: folders beside each other. Code of the trial may have put anything
/// among them, so nothing here follows a link.
namespace troupe {

/// "checkpoint_000012": the folder of the checkpoint after that iteration.
std::string checkpoint_name(std::int64_t iteration);
/// The other way round; nothing when it is no such name, as "checkpoint_000004.tmp-…" of one that
/// is half written.
std::optional<std::int64_t> iteration_of_name(std::string_view name);

/// What `newest_valid_checkpoint` found.
struct CheckpointScan {
  std::optional<CheckpointReader> newest = {};
  std::vector<Error> refused = {};  ///< newer ones that can't be used, and why
};

/// The checkpoint of the highest iteration whose every byte is sound. For recovery: what a journal
/// says, or a file's time, may be older than what is there. Reads the candidate whole.
/// up_to: those of later iterations are passed over; after a power cut they may be ahead of the
/// journal.
CheckpointScan newest_valid_checkpoint(
    const std::filesystem::path& trial_folder,
    std::int64_t up_to = std::numeric_limits<std::int64_t>::max());

/// Removes a checkpoint: renamed out of sight first, so that a crash leaves it whole or gone.
Result<void> remove_checkpoint(const std::filesystem::path& folder);

/// Removes every checkpoint of a trial that starts from its beginning: the folders named
/// "checkpoint_…".
Result<void> remove_checkpoints(const std::filesystem::path& trial_folder);

/// Removes what killed processes left: unfinished checkpoints of writers that are gone, and
/// checkpoints whose removal was cut short. Call before a trial starts; what a living writer has
/// in hand stays.
Result<void> clean_checkpoints(const std::filesystem::path& trial_folder);

}  // namespace troupe
