#pragma once

#include "libactor/result.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace troupe::tune::internal {

/// A thread that makes what was written survive a power cut: once every `limits::kSync` when
/// something was written, and at once when asked. `sync` runs on it and takes milliseconds; nobody
/// waits for it but `finish`.
class Syncer {
 public:
  explicit Syncer(std::function<Result<void>()> sync);
  ~Syncer();

  void written();  ///< something is to be synced within limits::kSync
  void hurry();    ///< now
  /// Waits until everything written so far is synced; the last error.
  Result<void> finish();

 private:
  void loop();

  std::function<Result<void>()> sync_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  bool dirty_ = false;
  bool hurry_ = false;
  bool busy_ = false;
  bool stop_ = false;
  Result<void> last_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace troupe::tune::internal
