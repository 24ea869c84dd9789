#pragma once

#include "libactor/internal/messages.hpp"
#include "libactor/internal/placement.hpp"

#include <caf/stateful_actor.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace troupe::internal {

/// Who is in the cluster and what goes where: the only ledger of resources. Its deciding core is
/// `placement.hpp`.
struct HeadState {
  struct Wanted {
    StartRequest start = {};
    caf::actor supervisor = {};
    std::string told = {};  ///< the last sentence on why it waits
  };
  Placement placement;
  std::map<RequestId, Wanted> waiting;  ///< not granted yet
  std::map<std::string, caf::actor> nodes;
  std::set<caf::actor> supervisors;  ///< that are watched
  std::string host = {};

  static inline const char* name = "head";
};

/// node: the one of this machine, `total` its resources. More join with the cluster.
/// Takes (place_atom, StartRequest, supervisor), (unplace_atom, request), (freed_atom, request),
/// (nodes_atom).
caf::behavior head(caf::stateful_actor<HeadState>* self, NodeInfo info, caf::actor node);

}  // namespace troupe::internal
