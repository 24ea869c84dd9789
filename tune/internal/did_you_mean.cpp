#include "tune/internal/did_you_mean.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::tune::internal {
namespace {

constexpr std::size_t kNamesShown = 8;

/// Insertions, deletions and substitutions between two words (Levenshtein), one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view last_element(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0: the whole
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& names) {
  if (names.empty()) return "; there is none";

  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    std::size_t distance = edit_distance(name, candidate);
    // "crop" where "augment/crop" is meant
    if (name == last_element(candidate)) distance = std::min<std::size_t>(distance, 1);
    if (distance < least && distance < std::max(name.size(), candidate.size())) {
      least = distance;
      nearest = &candidate;
    }
  }
  if (nearest) return "; did you mean '" + *nearest + "'?";

  std::string text = "; there is ";
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kNamesShown)
    text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

}  // namespace troupe::tune::internal
