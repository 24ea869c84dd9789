#pragma once

#include "libactor/result.hpp"
#include "tune/internal/journal_disk.hpp"
#include "tune/internal/journal_record.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::tune::internal {

/// Called with each record in order; an error ends the reading and is returned.
using RecordFn = std::function<Result<void>(const Record&)>;

/// Where the good part of a journal ends. Torn bytes behind it are normal after a crash.
struct JournalEnd {
  std::int64_t good_bytes = 0;
  std::int64_t torn_bytes = 0;
  std::int64_t record_count = 0;
};

/// The append-only log from which an experiment resumes; `<experiment>/journal`.
///
/// The file: 16 bytes (8 of magic, u32 version, u32 zero), then records: u32 length of the payload,
/// u32 sum (low half of its XXH3-64, seeded with the length), payload (journal.capnp). Numbers are
/// little-endian, everything is in whole words of 8 bytes.
///
/// Records are on their way to the disk when `append` has returned: the death of the process loses
/// none of them; a power cut loses those after the last `sync`. One thread appends; `sync` may be
/// called from another.
class Journal {
 public:
  /// Reads what is there through `each` and is ready to append; a torn end is cut off before the
  /// first write. An empty file becomes a journal. Errors: corrupt (an invalid record in the
  /// middle, a file that is no journal; the text names the offset), refused (written by another
  /// version), io, and those of `each`.
  static Result<Journal> open(std::unique_ptr<JournalDisk> disk, const RecordFn& each);

  /// One write of whole records. When it fails, none of them is there, and the next call first cuts
  /// off what a half write has left. Errors: io; bad_request: a record is too large.
  Result<void> append(std::span<const Record> records);
  Result<void> append(const Record& record) { return append(std::span(&record, 1)); }
  Result<void> sync();

  const JournalEnd& opened_at() const { return opened_at_; }
  std::int64_t size_bytes() const { return size_; }

 private:
  Journal(std::unique_ptr<JournalDisk> disk, JournalEnd end);
  Result<void> write(std::span<const std::byte> bytes);

  std::unique_ptr<JournalDisk> disk_;
  JournalEnd opened_at_;
  std::int64_t size_;             // of the good part
  bool dirty_;                    // something may lie behind it
  std::vector<std::byte> batch_;  // kept for its memory
};

/// Reads a journal that another process may be writing: no lock, nothing is changed.
Result<JournalEnd> read_journal(const JournalDisk& disk, const RecordFn& each);

}  // namespace troupe::tune::internal
