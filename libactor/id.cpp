#include "libactor/id.hpp"

#include <climits>
#include <random>
#include <string_view>

#include <unistd.h>

namespace troupe {

std::string random_id(int length) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLetterCount = 26;
  std::random_device source;
  std::string id;
  for (int i = 0; i < length; ++i) {
    const int choices = i == 0 ? kLetterCount : static_cast<int>(kCharacters.size());
    id += kCharacters[std::uniform_int_distribution<std::size_t>(0, choices - 1)(source)];
  }
  return id;
}

std::uint64_t random_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 && name[0] != 0 ? name : "localhost";
}

}  // namespace troupe
