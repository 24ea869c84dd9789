#pragma once

#include "sgd/internal/local_group.hpp"

namespace troupe::sgd::internal {

/// Plain threads and queues, one a rank: no CAF, so that the thread sanitizer sees everything.
MakeCarrier comm_threads();

}  // namespace troupe::sgd::internal
