#include "libactor/internal/worker_output.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace troupe::internal {
namespace {

constexpr std::size_t kReadBytes = 32 << 10;       // lines of one read fit a frame
constexpr std::size_t kLineBytes = 4 << 10;        // a longer line is forwarded in pieces
constexpr std::size_t kLastOutputBytes = 1 << 20;  // after the end, if somebody writes on

}  // namespace

Result<std::pair<Fd, Fd>> output_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

std::size_t WorkerOutput::pump(std::size_t budget_bytes) {
  std::array<char, kReadBytes> buffer;
  std::size_t done = 0;
  while (pipe_ && done < budget_bytes) {
    const ssize_t size = ::read(pipe_.value(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      pipe_.reset();
      break;
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(size));
    file_.write(bytes);
    if (forward_) forward(bytes);
    done += bytes.size();
  }
  return done;
}

void WorkerOutput::finish() {
  pump(kLastOutputBytes);
  if (!unfinished_line_.empty()) forward("\n");
}

void WorkerOutput::forward(std::string_view bytes) {
  unfinished_line_ += bytes;
  const auto line_end = unfinished_line_.rfind('\n');
  std::size_t count = 0;
  if (line_end != std::string::npos)
    count = line_end + 1;
  else if (unfinished_line_.size() > kLineBytes)
    count = unfinished_line_.size();
  if (count == 0) return;
  std::string lines = unfinished_line_.substr(0, count);
  if (missed_bytes_ > 0)
    lines.insert(0, "[troupe: " + std::to_string(missed_bytes_) + " bytes are in the file only]\n");
  missed_bytes_ = forward_(std::move(lines)) ? 0 : missed_bytes_ + count;
  unfinished_line_.erase(0, count);
}

}  // namespace troupe::internal
