#include "libactor/checkpoint_folder.hpp"

#include "libactor/file.hpp"
#include "libactor/id.hpp"
#include "libactor/internal/checkpoint_format.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

namespace troupe {
namespace {

constexpr std::string_view kPrefix = "checkpoint_";
constexpr std::string_view kTrash = ".trash-";
constexpr std::string_view kTemp = ".tmp-";

/// Names in a folder, sorted; links and files are left out.
Result<std::vector<std::string>> folders_in(const std::filesystem::path& path) {
  auto folder = open_folder(path);
  if (!folder) return folder.error();
  std::vector<std::string> names;
  std::error_code error, gone;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error))
    if (at->symlink_status(gone).type() == std::filesystem::file_type::directory)
      names.push_back(at->path().filename().string());
  if (error) return make_error(Errc::io, "list " + path.string() + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_unfinished(const std::string& name) { return name.find(kTemp) != std::string::npos; }
bool is_trash(const std::string& name) { return name.starts_with(kTrash); }

bool writer_lives(int parent_fd, const std::string& name) {
  const auto path = name + "/" + std::string(internal::checkpoint_format::kCheckpointFile);
  const Fd file(::openat(parent_fd, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  return file && ::flock(file.value(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace

std::string checkpoint_name(std::int64_t iteration) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%06lld", static_cast<long long>(iteration));
  return std::string(kPrefix) + digits;
}

std::optional<std::int64_t> iteration_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t iteration = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), iteration);
  if (error != std::errc() || end != name.data() + name.size() || iteration < 0)
    return std::nullopt;
  return iteration;
}

CheckpointScan newest_valid_checkpoint(const std::filesystem::path& trial_folder,
                                       std::int64_t up_to) {
  CheckpointScan scan;
  const auto names = folders_in(trial_folder);
  if (!names) {
    scan.refused.push_back(names.error());
    return scan;
  }
  std::vector<CheckpointReader> readable;
  for (const auto& name : *names) {
    if (is_unfinished(name) || is_trash(name)) continue;
    auto reader = CheckpointReader::open(trial_folder / name);
    if (reader && reader->info().iteration <= up_to)
      readable.push_back(std::move(*reader));
    else if (!reader &&
             code_of(reader.error()) != Errc::not_found)  // some other folder of the trial
      scan.refused.push_back(reader.error());
  }
  std::stable_sort(readable.begin(), readable.end(), [](const auto& a, const auto& b) {
    return a.info().iteration > b.info().iteration;
  });
  for (auto& reader : readable) {
    if (auto sound = reader.verify(); !sound) {
      scan.refused.push_back(sound.error());
      continue;
    }
    scan.newest = std::move(reader);
    break;
  }
  return scan;
}

Result<void> remove_checkpoint(const std::filesystem::path& folder) {
  const auto path = folder.has_filename() ? folder : folder.parent_path();
  const auto parent_path = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  auto parent = open_folder(parent_path);
  if (!parent) return parent.error();
  const std::string trash = std::string(kTrash) + random_id();
  const std::string name = path.filename().string();
  if (::renameat(parent->value(), name.c_str(), parent->value(), trash.c_str()) != 0)
    return errno_error("remove checkpoint", path);
  if (auto removed = remove_tree_at(parent->value(), trash); !removed)
    return with_context(removed.error(), "remove checkpoint " + path.string());
  return {};
}

Result<void> remove_checkpoints(const std::filesystem::path& trial_folder) {
  const auto names = folders_in(trial_folder);
  if (!names) return names.error();
  for (const auto& name : *names)
    if (name.starts_with(kPrefix))
      if (auto gone = remove_checkpoint(trial_folder / name); !gone) return gone;
  return {};
}

Result<void> clean_checkpoints(const std::filesystem::path& trial_folder) {
  const auto names = folders_in(trial_folder);
  if (!names) return names.error();
  auto parent = open_folder(trial_folder);
  if (!parent) return parent.error();
  for (const auto& name : *names) {
    if (!is_trash(name) && (!is_unfinished(name) || writer_lives(parent->value(), name))) continue;
    if (auto removed = remove_tree_at(parent->value(), name); !removed)
      return with_context(removed.error(), "clean " + trial_folder.string());
  }
  return {};
}

}  // namespace troupe
