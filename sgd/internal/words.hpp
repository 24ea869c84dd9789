#pragma once

#include <span>
#include <string>
#include <vector>

/// For sentences.
namespace troupe::sgd::internal {

/// "a, b and c".
inline std::string enumerate(std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

/// "rank 1", "ranks 0, 2 and 3".
inline std::string name_ranks(std::span<const int> ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + enumerate(words);
}

}  // namespace troupe::sgd::internal
