#pragma once

#include "libactor/internal/log_file.hpp"
#include "libactor/internal/socket.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::internal {

/// A pipe, close-on-exec; the first end is read, without waiting.
Result<std::pair<Fd, Fd>> output_pipe();

/// Standard output or error of one worker: what comes out of its pipe goes into a log file and, in
/// whole lines, to somebody else.
class WorkerOutput {
 public:
  /// Gets whole lines, long ones in pieces. Returns false when it can't take them now; later it is
  /// told how much it has missed.
  using Forward = std::function<bool(std::string lines)>;

  WorkerOutput(Fd pipe, std::filesystem::path file, Forward forward)
      : pipe_(std::move(pipe)), file_(std::move(file)), forward_(std::move(forward)) {}

  const Fd& pipe() const { return pipe_; }  ///< none when the other end is closed
  /// Takes what is there, at most about `budget_bytes`; returns how much it was.
  std::size_t pump(std::size_t budget_bytes);
  /// The worker has ended: takes what is there now, whoever else holds the other end, and forwards
  /// the line that has no end.
  void finish();

 private:
  void forward(std::string_view bytes);

  Fd pipe_;
  LogFile file_;
  Forward forward_;
  std::string unfinished_line_;
  std::size_t missed_bytes_ = 0;
};

}  // namespace troupe::internal
