#pragma once

#include <cstdint>

namespace troupe::tune::internal {

/// Of this machine, for the status table.
struct HostMemory {
  std::int64_t used_bytes = 0;  ///< total less available
  std::int64_t total_bytes = 0;
};
HostMemory host_memory();

}  // namespace troupe::tune::internal
