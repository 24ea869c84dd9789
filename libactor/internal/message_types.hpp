#pragma once

#include "libactor/internal/system.hpp"

#include <vector>

namespace troupe::internal {

/// Ours, and what `add_message_types` has added before `main`.
std::vector<AddTypes> message_types();

}  // namespace troupe::internal
