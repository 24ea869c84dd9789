#include "libactor/internal/log_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::internal {
namespace {

/// Returns how many bytes the disk took.
std::int64_t write_all(int fd, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    done += static_cast<std::size_t>(size);
  }
  return static_cast<std::int64_t>(done);
}

}  // namespace

void LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!fd_) open(0);
    const auto room =
        static_cast<std::size_t>(std::max<std::int64_t>(0, limit_bytes_ - size_bytes_));
    if (bytes.size() <= room) return append(bytes);
    // The full file ends with a line where it can.
    const auto line_end = bytes.substr(0, room).rfind('\n');
    const auto count = line_end != bytes.npos ? line_end + 1 : size_bytes_ == 0 ? room : 0;
    append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (!fd_) {  // never rotate then: it would cost the older lines
      dropped_bytes_ += static_cast<std::int64_t>(bytes.size());
      return;
    }
    rotate();
  }
}

void LogFile::open(int extra_flags) {
  fd_ = Fd(::open(path_.c_str(),
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | extra_flags, 0644));
  struct stat status {};
  size_bytes_ = fd_ && ::fstat(fd_.value(), &status) == 0 ? status.st_size : 0;
}

void LogFile::append(std::string_view bytes) {
  std::int64_t written = 0;
  if (fd_) {
    if (dropped_bytes_ > 0) {
      const std::string note =
          "[troupe: the disk did not take " + std::to_string(dropped_bytes_) + " bytes here]\n";
      const std::int64_t noted = write_all(fd_.value(), note);
      size_bytes_ += noted;
      if (noted == static_cast<std::int64_t>(note.size())) dropped_bytes_ = 0;
    }
    if (dropped_bytes_ == 0) written = write_all(fd_.value(), bytes);
    size_bytes_ += written;
  }
  const std::int64_t dropped = static_cast<std::int64_t>(bytes.size()) - written;
  dropped_bytes_ += dropped;
  if (dropped > 0) fd_.reset();  // by the next try the path may lead to a better place
}

void LogFile::rotate() {
  const std::filesystem::path older = path_.string() + ".1";
  // When the rename fails the old lines are given up, never the limit.
  const bool renamed = ::rename(path_.c_str(), older.c_str()) == 0;
  open(renamed ? 0 : O_TRUNC);
}

}  // namespace troupe::internal
