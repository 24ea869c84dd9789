#include "tune/internal/host_memory.hpp"

#include <fstream>
#include <string>

namespace troupe::tune::internal {

HostMemory host_memory() {
  std::ifstream in("/proc/meminfo");
  std::int64_t total = 0, available = 0, kib = 0;
  std::string name, unit;
  while (in >> name >> kib && std::getline(in, unit)) {
    if (name == "MemTotal:") total = kib * 1024;
    if (name == "MemAvailable:") available = kib * 1024;
  }
  return {.used_bytes = total - available, .total_bytes = total};
}

}  // namespace troupe::tune::internal
