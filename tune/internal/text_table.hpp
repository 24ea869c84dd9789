#pragma once

#include "tune/config.hpp"

#include <string>
#include <vector>

namespace troupe::tune::internal {

/// A table in the "psql" style of Python's tabulate, which Ray's reports use: columns of numbers
/// are right-aligned by the decimal point and have six digits, others are left-aligned. No newline
/// at the end.
///
/// rows: each as long as `headers`; a null Value is an empty cell.
std::string psql_table(const std::vector<std::string>& headers,
                       const std::vector<std::vector<Value>>& rows);

}  // namespace troupe::tune::internal
