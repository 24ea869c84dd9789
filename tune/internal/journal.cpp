#include "tune/internal/journal.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "libactor/limits.hpp"

namespace troupe::tune::internal {
namespace {

/// The first and the last bytes show a file that was sent as text.
constexpr std::array<char, 8> kMagic = {'\x89', 'T', 'R', 'J', '\r', '\n', '\x1a', '\n'};
constexpr std::uint32_t kVersion = 1;

struct FileHead {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
};
static_assert(sizeof(FileHead) == 16);

struct RecordHead {
  std::uint32_t length = 0;
  std::uint32_t sum = 0;
};
static_assert(sizeof(RecordHead) == 8);

constexpr std::int64_t kHeadBytes = sizeof(RecordHead);
constexpr std::int64_t kWindowBytes = std::int64_t{1} << 20;
/// One torn write leaves less than this; what is longer was damaged otherwise.
constexpr std::int64_t kTornBytes = 4 * limits::kJournalRecordBytes;
/// A file made to look like records at every word shall not cost hours.
constexpr std::int64_t kSearchBytes = std::int64_t{1} << 30;

std::uint32_t sum_of(std::span<const std::byte> payload) {
  return static_cast<std::uint32_t>(
      XXH3_64bits_withSeed(payload.data(), payload.size(), payload.size()));
}

/// A file by pieces. Offsets are multiples of 8, and so are the addresses of what it gives.
class Window {
 public:
  static Result<Window> over(const JournalDisk& disk) {
    auto size = disk.size();
    if (!size) return size.error();
    return Window(disk, *size);
  }

  std::int64_t file_bytes() const { return file_bytes_; }
  std::int64_t summed_bytes() const { return summed_bytes_; }

  /// Valid until the next call; `count` bytes must be there.
  Result<std::span<const std::byte>> at(std::int64_t offset, std::int64_t count) {
    const auto held = static_cast<std::int64_t>(buffer_.size());
    if (offset < begin_ || offset + count > begin_ + held) {
      const auto wanted = std::min(std::max(count, kWindowBytes), file_bytes_ - offset);
      buffer_.resize(static_cast<std::size_t>(wanted));
      begin_ = offset;
      auto got = disk_.read(offset, buffer_);
      if (!got) return got.error();
      if (*got < count) return make_error(Errc::io, "the file became shorter while it was read");
      buffer_.resize(static_cast<std::size_t>(*got));
    }
    return std::span<const std::byte>(buffer_).subspan(static_cast<std::size_t>(offset - begin_),
                                                       static_cast<std::size_t>(count));
  }

  /// The payload of the record that begins at `offset`; nothing when there is no whole one.
  Result<std::optional<std::span<const std::byte>>> payload_at(std::int64_t offset) {
    using Found = std::optional<std::span<const std::byte>>;
    const auto left = file_bytes_ - offset - kHeadBytes;
    if (left <= 0) return Found();
    auto head_bytes = at(offset, kHeadBytes);
    if (!head_bytes) return head_bytes.error();
    RecordHead head;
    std::memcpy(&head, head_bytes->data(), sizeof(head));
    if (head.length == 0 || head.length % 8 != 0 || head.length > left ||
        head.length > limits::kJournalRecordBytes)
      return Found();
    auto payload = at(offset + kHeadBytes, head.length);
    if (!payload) return payload.error();
    summed_bytes_ += head.length;
    return sum_of(*payload) == head.sum ? Found(*payload) : Found();
  }

 private:
  Window(const JournalDisk& disk, std::int64_t file_bytes) : disk_(disk), file_bytes_(file_bytes) {}

  const JournalDisk& disk_;
  std::int64_t file_bytes_;
  std::int64_t summed_bytes_ = 0;
  std::int64_t begin_ = 0;
  std::vector<std::byte> buffer_;
};

/// 0 for an empty file and for one whose head is torn, else where the first record begins.
Result<std::int64_t> read_file_head(Window& file) {
  const FileHead ours;
  FileHead found;
  if (file.file_bytes() == 0) return std::int64_t{0};
  const auto count = std::min<std::int64_t>(file.file_bytes(), sizeof(found));
  auto bytes = file.at(0, count);
  if (!bytes) return bytes.error();
  std::memcpy(&found, bytes->data(), bytes->size());
  const auto magic_count = std::min(bytes->size(), kMagic.size());
  if (std::memcmp(found.magic.data(), kMagic.data(), magic_count) != 0)
    return make_error(Errc::corrupt,
                      "this is no journal: its first bytes are others. Move it away, or "
                      "give this run another name");
  if (bytes->size() < sizeof(found)) return std::int64_t{0};
  if (found.version != ours.version)
    return make_error(Errc::refused,
                      fmt::format("its version is {}, this program knows version {}: take the "
                                  "program that wrote it",
                                  found.version, ours.version));
  return std::int64_t{sizeof(found)};
}

/// Whether there is a whole record anywhere behind `offset`, where there is none.
Result<bool> is_in_the_middle(Window& file, std::int64_t offset) {
  if (file.file_bytes() - offset > kTornBytes) return true;
  const auto stop = file.summed_bytes() + kSearchBytes;
  for (auto at = offset + 8; at < file.file_bytes(); at += 8) {
    auto payload = file.payload_at(at);
    if (!payload) return payload.error();
    if (*payload || file.summed_bytes() > stop) return true;
  }
  return false;
}

Error at_offset(const Error& error, std::int64_t offset) {
  return with_context(error, fmt::format("journal, byte {}", offset));
}

}  // namespace

Result<JournalEnd> read_journal(const JournalDisk& disk, const RecordFn& each) {
  auto file = Window::over(disk);
  if (!file) return file.error();
  auto begin = read_file_head(*file);
  if (!begin) return at_offset(begin.error(), 0);

  JournalEnd end{.good_bytes = *begin};
  while (*begin > 0) {
    auto payload = file->payload_at(end.good_bytes);
    if (!payload) return payload.error();
    if (!*payload) break;
    auto record = decode_record(**payload);
    if (!record) return at_offset(record.error(), end.good_bytes);
    const auto length = static_cast<std::int64_t>((*payload)->size());
    if (auto taken = each(*record); !taken) return at_offset(taken.error(), end.good_bytes);
    end.good_bytes += kHeadBytes + length;
    ++end.record_count;
  }
  end.torn_bytes = file->file_bytes() - end.good_bytes;
  auto damaged = is_in_the_middle(*file, end.good_bytes);
  if (!damaged) return damaged.error();
  if (*damaged)
    return at_offset(make_error(Errc::corrupt,
                                "a record is damaged and others follow it: this is no torn end. "
                                "Cut the file here to go on from what is before"),
                     end.good_bytes);
  return end;
}

Journal::Journal(std::unique_ptr<JournalDisk> disk, JournalEnd end)
    : disk_(std::move(disk)), opened_at_(end), size_(end.good_bytes), dirty_(end.torn_bytes > 0) {}

Result<Journal> Journal::open(std::unique_ptr<JournalDisk> disk, const RecordFn& each) {
  auto end = read_journal(*disk, each);
  if (!end) return end.error();
  Journal journal(std::move(disk), *end);
  if (journal.size_ == 0) {
    const FileHead head;
    if (auto written = journal.write(std::as_bytes(std::span(&head, 1))); !written)
      return written.error();
  }
  return journal;
}

Result<void> Journal::append(std::span<const Record> records) {
  batch_.clear();
  for (const auto& record : records) {
    const auto at = batch_.size();
    batch_.resize(at + sizeof(RecordHead));
    if (auto encoded = fence(Errc::bad_request, [&] { append_encoded(record, batch_); }); !encoded)
      return encoded;
    const auto payload = std::span<const std::byte>(batch_).subspan(at + sizeof(RecordHead));
    if (payload.size() > static_cast<std::size_t>(limits::kJournalRecordBytes))
      return make_error(Errc::bad_request,
                        fmt::format("a journal record of {} bytes is larger than {}: report less "
                                    "in one result",
                                    payload.size(), limits::kJournalRecordBytes));
    const RecordHead head{.length = static_cast<std::uint32_t>(payload.size()),
                          .sum = sum_of(payload)};
    std::memcpy(batch_.data() + at, &head, sizeof(head));
  }
  return write(batch_);
}

Result<void> Journal::write(std::span<const std::byte> bytes) {
  if (dirty_)
    if (auto cut = disk_->truncate(size_); !cut) return cut;
  dirty_ = true;
  auto written = disk_->write(size_, bytes);
  if (!written) return written.error();
  if (*written != static_cast<std::int64_t>(bytes.size()))
    return make_error(Errc::io, fmt::format("journal: only {} of {} bytes could be written, the "
                                            "disk may be full",
                                            *written, bytes.size()));
  dirty_ = false;
  size_ += *written;
  return {};
}

Result<void> Journal::sync() { return disk_->sync(); }

}  // namespace troupe::tune::internal
