#pragma once

#include "sgd/internal/local_group.hpp"

namespace caf {
class actor_system;
}

namespace troupe::sgd::internal {

/// One detached actor a rank: on CAF's pool they were up to 1.5 times slower. A note is a message
/// that CAF refuses to send to another process: it holds an address.
///
/// `system` must outlive the group.
MakeCarrier comm_actors(caf::actor_system& system);

}  // namespace troupe::sgd::internal
