#include "tune/internal/journal_disk.hpp"

#include "libactor/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace troupe::tune::internal {
namespace {

template <class F>
auto again_when_interrupted(F&& call) {
  decltype(call()) done;
  do done = call();
  while (done < 0 && errno == EINTR);
  return done;
}

class FileDisk final : public JournalDisk {
 public:
  FileDisk(Fd file, std::filesystem::path path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::int64_t> size() const override {
    struct stat status {};
    if (::fstat(file_.value(), &status) != 0) return errno_error("look at", path_);
    return std::int64_t{status.st_size};
  }

  Result<std::int64_t> read(std::int64_t offset, std::span<std::byte> into) const override {
    std::size_t got = 0;
    while (got < into.size()) {
      const auto count = again_when_interrupted([&] {
        return ::pread(file_.value(), into.data() + got, into.size() - got,
                       offset + static_cast<std::int64_t>(got));
      });
      if (count < 0) return errno_error("read", path_);
      if (count == 0) break;
      got += static_cast<std::size_t>(count);
    }
    return static_cast<std::int64_t>(got);
  }

  Result<std::int64_t> write(std::int64_t offset, std::span<const std::byte> bytes) override {
    if (auto there = check_still_there(); !there) return there.error();
    const auto count = again_when_interrupted(
        [&] { return ::pwrite(file_.value(), bytes.data(), bytes.size(), offset); });
    if (count < 0) return errno_error("write", path_);
    return std::int64_t{count};
  }

  Result<void> truncate(std::int64_t size) override {
    if (again_when_interrupted([&] { return ::ftruncate(file_.value(), size); }) != 0)
      return errno_error("cut", path_);
    return {};
  }

  Result<void> sync() override {
    if (again_when_interrupted([&] { return ::fdatasync(file_.value()); }) != 0)
      return errno_error("sync", path_);
    return {};
  }

 private:
  /// Writes to a file that was moved away or removed succeed, and nobody would look for them there.
  Result<void> check_still_there() const {
    struct stat ours {
    }, there{};
    if (::fstat(file_.value(), &ours) != 0) return errno_error("look at", path_);
    if (::lstat(path_.c_str(), &there) == 0 && there.st_ino == ours.st_ino &&
        there.st_dev == ours.st_dev)
      return {};
    return make_error(Errc::io, fmt::format("{} was moved away or removed; the run goes on when "
                                            "its folder is back",
                                            path_.string()));
  }

  Fd file_;
  std::filesystem::path path_;
};

/// Who holds the lock, from /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF".
std::optional<long> lock_holder(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return std::nullopt;
  const auto file =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  std::string line, number, kind, advisory, access, where;
  while (std::getline(locks, line)) {
    long pid = 0;
    std::istringstream fields(line);
    if (fields >> number >> kind >> advisory >> access >> pid >> where && kind == "FLOCK" &&
        where == file)
      return pid;
  }
  return std::nullopt;
}

Result<void> lock(int fd, const std::filesystem::path& path) {
  if (again_when_interrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) return {};
  if (errno != EWOULDBLOCK) return errno_error("lock", path);
  const auto holder = lock_holder(fd);
  return make_error(
      Errc::refused,
      fmt::format("{} is being written by {}: two runs never share a folder; wait for its end or "
                  "take another name",
                  path.string(),
                  holder && *holder > 0 ? fmt::format("process {}", *holder) : "another process"));
}

/// What lies there, when it is something else than a file.
const char* other_kind(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return nullptr;
  return S_ISLNK(status.st_mode)    ? "a symbolic link"
         : S_ISDIR(status.st_mode)  ? "a folder"
         : S_ISFIFO(status.st_mode) ? "a pipe"
                                    : "no regular file";
}

}  // namespace

Result<std::unique_ptr<JournalDisk>> open_journal_file(const std::filesystem::path& path,
                                                       JournalAccess access) {
  const int flags = access == JournalAccess::write ? O_RDWR | O_CREAT : O_RDONLY;
  Fd file(again_when_interrupted(
      [&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666); }));
  const int code = errno;
  if (const char* kind = other_kind(path))
    return make_error(Errc::corrupt,
                      fmt::format("{} is {} where a run's journal must be; move it away, or give "
                                  "this run another name",
                                  path.string(), kind));
  errno = code;
  if (!file) return errno_error("open", path);
  if (access == JournalAccess::write) {
    if (auto locked = lock(file.value(), path); !locked) return locked.error();
    auto folder = path.parent_path();  // a new file's name survives a power cut
    if (auto synced = fsync_folder(folder.empty() ? "." : folder); !synced) return synced.error();
  }
  return std::unique_ptr<JournalDisk>(std::make_unique<FileDisk>(std::move(file), path));
}

}  // namespace troupe::tune::internal
