#pragma once

#include "libactor/result.hpp"

namespace troupe::internal {

/// Whether CAF really uses what `caf_fixes.cpp` puts in the place of its own functions.
///
/// `init` calls this first and refuses to start on an error, which names what is lost. Calling it
/// is also what keeps the object file in the program.
Result<void> caf_fixes_self_test();

}  // namespace troupe::internal
