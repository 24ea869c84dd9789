#pragma once

#include <vector>

namespace troupe::sgd::internal {

/// The ranks of a world in groups that each reach the same memory, one machine each: group 0 has
/// the first ranks, and so on. The first rank of a group is its leader, which speaks with the other
/// leaders.
struct Groups {
  int group = 0;  ///< this one
  std::vector<int> rank_counts = {1};

  int count() const { return static_cast<int>(rank_counts.size()); }
  int rank_count(int of_group) const { return rank_counts[static_cast<std::size_t>(of_group)]; }
  int first_rank(int of_group) const {
    int first = 0;
    for (int g = 0; g < of_group; ++g) first += rank_count(g);
    return first;
  }
  int world_size() const { return first_rank(count()); }
  int group_of(int rank) const {
    int g = 0;
    while (rank >= first_rank(g + 1)) ++g;
    return g;
  }
};

}  // namespace troupe::sgd::internal
