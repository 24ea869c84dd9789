#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What trials, their folders and experiments are called. The same run gives the same names.
namespace troupe::tune {

/// "a1b2c": what all trial ids of a run begin with, drawn from its seed. A letter a-f comes first,
/// so that no tool reads an id as a number.
std::string head_from_seed(std::uint64_t seed);
/// "a1b2c_00003".
std::string trial_id(std::string_view head, std::int64_t index);
/// The seed of trial `index`'s own random numbers, from the run's.
std::uint64_t trial_seed(std::uint64_t run_seed, std::int64_t index);

/// "3_lr=0.001,momentum=0.5", or "3" when nothing was resolved.
///
/// resolved: by full name, in path order; the last element of the path becomes the name. Five
/// significant digits; "/" becomes "_".
std::string experiment_tag(std::int64_t index,
                           const std::vector<std::pair<std::string, Value>>& resolved);

/// Whether a run may be called so: its name becomes a folder, and stands on terminals and in JSON.
/// bad_request: empty, longer than 200 bytes, "." or "..", with "/", a control character, or bytes
/// that are no UTF-8.
Result<void> check_run_name(std::string_view name);

/// "2026-12-01_09-30-00", local time: for names of folders.
std::string date_for_name(std::chrono::system_clock::time_point time);

/// Where results go, absolute: what was chosen, else TROUPE_RESULT_DIR, else ~/troupe_results. Not
/// made.
Result<std::filesystem::path> results_folder(const std::filesystem::path& chosen);

/// "MnistTrainable_a1b2c_00003_3_lr=0.001_2026-12-01_09-30-00": `<name>_<tag>` cut to 130 bytes,
/// then the date. "/", backslashes, brackets, control characters and bytes that are no UTF-8 become
/// "_".
std::string trial_directory(std::string_view name, std::string_view tag, std::string_view date);
/// `directory` with "_" and four hexadecimal digits, others for each attempt: for a folder that is
/// there already.
std::string with_suffix(std::string_view directory, std::uint64_t attempt);

}  // namespace troupe::tune
