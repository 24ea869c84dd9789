#pragma once

#include "libactor/fd.hpp"
#include "libactor/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

/// Files as a program needs them that may be killed at any instant and shares its folders with code
/// that it doesn't trust: whole or not at all, bounded, and never through a symbolic link in the
/// last part of a path. (Links further up are the user's own choice: a result folder may lie behind
/// one.)
namespace troupe {

/// The error for `errno` as it is now: "open /x/y: Permission denied". not_found for ENOENT, else
/// io.
Error errno_error(std::string_view doing, const std::filesystem::path& path);

/// The folder itself, for the *at calls and fsync. corrupt when it is a symbolic link.
Result<Fd> open_folder(const std::filesystem::path& folder);

/// A regular file in an open folder, for reading. not_found; corrupt when it is a symbolic link, a
/// pipe or anything else. `path` is for the sentence.
Result<Fd> open_regular(int folder_fd, const std::string& name, const std::filesystem::path& path);

/// All of `bytes`, at the file's position or at `offset`. False: see errno.
bool write_fully(int fd, std::span<const std::byte> bytes);
bool write_fully_at(int fd, std::span<const std::byte> bytes, std::int64_t offset);

struct WriteOptions {
  bool durable = true;  ///< fsync file and folder: about 12 ms; without it a power cut may lose the
                        ///< file, a crash of the process never
};

/// Replaces `path` whole: a reader, or a process that is started after this one was killed, sees
/// the old content or the new. A link at `path` is replaced, not followed.
Result<void> write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes,
                              WriteOptions options = {});
Result<void> write_atomically(const std::filesystem::path& path, std::string_view text,
                              WriteOptions options = {});

/// Makes renames and removals in `folder` survive a power cut. (On NFS and overlays this may do
/// nothing.)
Result<void> fsync_folder(const std::filesystem::path& folder);

/// The whole of a regular file. Errors: not_found; corrupt when it is longer than `max_bytes` or
/// not a regular file; io.
Result<std::string> read_bounded(const std::filesystem::path& path, std::int64_t max_bytes);

/// Removes a file, a link (not what it points to) or a folder with everything in it. No error when
/// it isn't there.
Result<void> remove_tree(const std::filesystem::path& path);
/// The same by its name in an open folder.
Result<void> remove_tree_at(int folder_fd, const std::string& name);

}  // namespace troupe
