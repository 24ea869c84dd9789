#pragma once

#include "libactor/result.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::tools {

/// What came of a file of scheduler cases (format: `tests/golden/scheduler-cases.json` tells it).
struct Replay {
  nlohmann::json cases = nlohmann::json::array();  ///< decision and side effects of every event
  std::vector<std::string> differences = {};  ///< "asha-01 event 7 (result of b): decision …"
  int passed_count = 0;                       ///< without `check`: replayed
  int failed_count = 0;
  int unsupported_count = 0;  ///< a scheduler, or an option of one, that does not exist here

  /// 0, 1: something differs, 2: nothing differs but something is unsupported.
  int exit_code() const;
  /// "2 passed, 0 failed, 4 unsupported".
  std::string summary() const;
};

/// Feeds the events of every case to the real scheduler. With `check`, what a case expects is
/// compared: text exactly, numbers within a relative 1e-12, also those inside a debug string.
/// bad_request when the file is not what the format says; the text names case and event.
Result<Replay> replay(const nlohmann::json& file, bool check);

}  // namespace troupe::tools
