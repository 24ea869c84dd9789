#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::internal {

/// The folders in which this process's control groups keep the files of `controller` ("cpu",
/// "cpuset", "memory"): own group first, then its ancestors up to the mount; first of version 1,
/// then of version 2, since a machine may have both (file names differ, so each reader looks for
/// both names). Found by <root>/proc/self/cgroup and mountinfo; empty where there are none.
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root,
                                                  std::string_view controller);

/// A small file of /proc or /sys, without the newline at its end; nullopt when it can't be read.
std::optional<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace troupe::internal
