#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"

#include <string>
#include <string_view>

namespace troupe::tune::internal {

/// "config" and what is below it: not the user's to report.
bool is_config(std::string_view key);

/// One row as JSON in one line, in the order of telling: "a/b" is nested as {"a":{"b":…}}; since
/// JSON has no NaN and no infinities they are null and named in "nan_keys":{"loss":"nan",
/// "list/1":"-inf"}. By hand, since thousands of rows are written each second.
///
/// config_json: an object in one line, which goes where Ray has the config; empty: no config.
void append_row_json(std::string& out, const Metrics& row, std::string_view config_json);

/// A line of result.json.
struct ResultLine {
  TrialResult row = {};  ///< as it was appended, NaN and infinities too
  Config config = {};
};

/// Errors: corrupt.
Result<ResultLine> parse_result_line(std::string_view line);

}  // namespace troupe::tune::internal
