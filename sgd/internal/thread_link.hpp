#pragma once

#include "sgd/internal/groups.hpp"
#include "sgd/internal/link.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::sgd::internal {

/// The links of all groups of a world that lies in one process, a plain thread each: no CAF, so
/// that the thread sanitizer sees everything.
class ThreadLinks {
 public:
  ThreadLinks(const std::vector<int>& rank_counts, std::uint64_t epoch);
  ~ThreadLinks();
  ThreadLinks(const ThreadLinks&) = delete;
  ThreadLinks& operator=(const ThreadLinks&) = delete;

  Link& operator[](int group);

 private:
  class One;
  std::vector<std::unique_ptr<One>> links_;
};

}  // namespace troupe::sgd::internal
