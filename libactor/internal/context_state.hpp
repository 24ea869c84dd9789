#pragma once

#include "libactor/context.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

namespace troupe {

/// The worker's side of a Context. Who makes it fills in the first part before user code runs and
/// never touches it again; the second part is written while user code runs, from any thread.
struct Context::State {
  std::string id = {};
  std::string name = {};
  std::filesystem::path directory = {};
  Resources resources = {};
  int threads = 1;
  int device_index = -1;
  std::uint64_t seed = 0;
  /// Where `Context::log` goes. None: the process's log. Called from any thread.
  std::function<void(std::string_view)> log_sink = {};

  std::atomic<std::int64_t> iteration{0};
  std::atomic<bool> cancelled{false};

  void set_progress(std::int64_t done, std::int64_t total, std::string_view unit);
  /// "17/938 batch"; "17 batch" without a total; empty before the first call.
  std::string progress_text() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::string unit_ = {};
  bool has_progress_ = false;
};

}  // namespace troupe
