#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/limits.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace troupe::internal {

/// A log file that never grows past its limit: when full it is renamed to `<path>.1`, which
/// replaces the one before, and a new one begins. So the newest lines are always there, at most
/// twice the limit on the disk. Made by the first write, appended to when it exists.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path path, std::int64_t limit_bytes = limits::kLogBytes)
      : path_(std::move(path)), limit_bytes_(limit_bytes) {}

  /// Cannot fail: what the disk does not take is dropped, and one line says how much it was when
  /// the disk takes some again.
  void write(std::string_view bytes);

 private:
  void open(int extra_flags);
  void append(std::string_view bytes);
  void rotate();

  std::filesystem::path path_;
  std::int64_t limit_bytes_;
  Fd fd_;
  std::int64_t size_bytes_ = 0;
  std::int64_t dropped_bytes_ = 0;
};

}  // namespace troupe::internal
