#include "libactor/id.hpp"

#include <random>
#include <string_view>

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

}  // namespace troupe
