#pragma once

#include <sstream>
#include <string>

namespace troupe::internal {

[[noreturn]] void assert_failed(const char* condition, const char* file, int line,
                                const std::string& values);

template <class... Values>
std::string join_values(const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  return out.str();
}

}  // namespace troupe::internal

/// For bugs of ours only: prints the condition and the values that follow it, and ends this one
/// process, in every build. Never on anything that came from outside (a peer, a file, a user): that
/// is a Result.
#define TROUPE_ASSERT(condition, ...)                                                  \
  do {                                                                                 \
    if (!(condition))                                                                  \
      ::troupe::internal::assert_failed(#condition, __FILE__, __LINE__,                \
                                        ::troupe::internal::join_values(__VA_ARGS__)); \
  } while (false)
