#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune::internal {

/// The rest of a sentence about a name that is not there: "; did you mean 'hidden'?", or
/// "; there is 'lr', 'hidden'" when none is near, or "; there is none" when there are no names.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);

}  // namespace troupe::tune::internal
