#pragma once

#include "libactor/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace troupe::tune::internal {

/// All that a journal asks of a disk: one file. Tests have one that fails.
class JournalDisk {
 public:
  virtual ~JournalDisk() = default;

  virtual Result<std::int64_t> size() const = 0;
  /// Bytes read: fewer than asked for only at the end of the file.
  virtual Result<std::int64_t> read(std::int64_t offset, std::span<std::byte> into) const = 0;
  /// One try; may write fewer than asked for.
  virtual Result<std::int64_t> write(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Result<void> truncate(std::int64_t size) = 0;
  /// Thread-safe.
  virtual Result<void> sync() = 0;
};

enum class JournalAccess {
  write,      ///< made if there is none; locked until the disk is destroyed
  read_only,  ///< not locked
};

/// The file at `path`, never through a symbolic link. Errors: refused (another process writes it;
/// the text has its pid when the kernel tells), not_found, corrupt (there is something else), io.
///
/// The lock is the kernel's (`flock`): it ends with its process, however that ends. Over NFS it
/// holds between processes of one machine only.
Result<std::unique_ptr<JournalDisk>> open_journal_file(const std::filesystem::path& path,
                                                       JournalAccess access);

}  // namespace troupe::tune::internal
