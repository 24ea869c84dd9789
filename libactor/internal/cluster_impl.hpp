#pragma once

#include "libactor/cluster.hpp"
#include "libactor/internal/machine.hpp"
#include "libactor/internal/system.hpp"

#include <caf/actor.hpp>

#include <memory>

namespace troupe {

/// A cluster of this machine: head and node are actors of this process, workers hang on socket
/// pairs, nothing listens.
struct Cluster::Impl {
  std::unique_ptr<internal::System> system = {};
  internal::Machine machine = {};
  caf::actor head = {};
  caf::actor node = {};
  NodeInfo info = {};

  ~Impl();
};

namespace internal {

struct ClusterOptions {
  Machine machine = {};
  bool strict = false;
};

Result<std::unique_ptr<Cluster::Impl>> start_cluster(ClusterOptions options);

}  // namespace internal
}  // namespace troupe
