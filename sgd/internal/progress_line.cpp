#include "sgd/internal/progress_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace troupe::sgd::internal {
namespace {

constexpr int kBarWidth = 20;
constexpr auto kBetweenLines = std::chrono::seconds(10);

}  // namespace

std::string progress_text(const std::vector<RankStatus>& ranks) {
  if (ranks.empty()) return {};
  // The slowest one: the others wait for it.
  const auto& slowest = *std::min_element(
      ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
  const auto counts = std::to_string(slowest.batch) +
                      (slowest.batch_count > 0 ? "/" + std::to_string(slowest.batch_count) : "") +
                      " batches, " + std::to_string(ranks.size()) +
                      (ranks.size() == 1 ? " rank" : " ranks");
  if (slowest.batch_count <= 0) return slowest.doing + " " + counts;
  const auto done = std::clamp<std::int64_t>(slowest.batch, 0, slowest.batch_count);
  const auto filled = static_cast<std::size_t>(kBarWidth * done / slowest.batch_count);
  char percent[24];
  std::snprintf(percent, sizeof percent, "%3lld %%",
                static_cast<long long>(100 * done / slowest.batch_count));
  return std::string(percent) + " [" + std::string(filled, '#') +
         std::string(kBarWidth - filled, ' ') + "] " + counts;
}

ProgressLine::ProgressLine(bool on) : on_(on), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::vector<RankStatus>& ranks) {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  const auto text = progress_text(ranks);
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
    std::fflush(stderr);
    drawn_ = true;
    return;
  }
  const auto now = SystemClock().now();
  if (next_ == Clock::Time{}) next_ = now + kBetweenLines;
  if (now < next_) return;
  next_ = now + kBetweenLines;
  std::fprintf(stderr, "%s\n", text.c_str());
}

void ProgressLine::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  clear();
  std::fprintf(stderr, "%s%s", line.c_str(), line.ends_with('\n') ? "" : "\n");
}

void ProgressLine::end() {
  const std::lock_guard lock(mutex_);
  clear();
  next_ = {};
}

void ProgressLine::clear() {
  if (drawn_) std::fprintf(stderr, "\r\x1b[K");
  drawn_ = false;
}

}  // namespace troupe::sgd::internal
