#include "libactor/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace troupe::internal {

void assert_failed(const char* condition, const char* file, int line, const std::string& values) {
  std::fprintf(stderr, "troupe: a bug of ours: %s:%d: %s does not hold:%s\n", file, line, condition,
               values.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace troupe::internal
