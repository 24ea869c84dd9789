#pragma once

#include <string_view>

namespace troupe {

/// Prints at once. What can't be written, on a full disk or into a closed pipe, is lost and told on
/// the log, the first time.
void print(std::string_view text);

/// From now on this program ends with a sentence on standard error, and with 1 instead of 0, when
/// something that it has printed could not be written. Descriptors 0 to 2 that are closed are kept
/// from becoming files of ours. `init` calls it; a program without a cluster may, first in `main`.
void guard_output();

}  // namespace troupe
