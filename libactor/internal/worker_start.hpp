#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/resources.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace troupe::internal {

/// What a worker process knows from its first instruction on.
struct WorkerStart {
  std::uint64_t lease = 0;
  std::uint64_t incarnation = 0;
  std::string entry = {};      ///< name in the entry table
  std::string id = {};         ///< of the trial
  std::string name = {};       ///< of the trial
  std::string directory = {};  ///< becomes the current folder; must exist; gets stdout and stderr
  Resources resources = {};
  int threads = 1;
  std::uint64_t seed = 0;
  /// CUDA_VISIBLE_DEVICES; none leaves it as it is.
  std::optional<std::string> devices = {};
  std::map<std::string, std::string> environment = {};  ///< added, for user code and its children
  bool forward_output = false;

  bool operator==(const WorkerStart&) const = default;
};

void write_worker_start(FrameWriter& out, const WorkerStart& start);
WorkerStart read_worker_start(FrameReader& in);

}  // namespace troupe::internal
