#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

struct CsvOptions {
  /// Puts ' before texts that a spreadsheet would take for a formula (= + - @ at the start).
  bool for_spreadsheets = false;
};

/// Rows under named columns, as plain values. A cell that has nothing is a null Value.
struct Table {
  std::vector<std::string> columns = {};
  std::vector<std::vector<Value>> rows = {};  ///< each as long as `columns`

  /// nullptr when there is no such column or row.
  const Value* find(std::size_t row, std::string_view column) const;
  /// Quotes what needs it; nan and inf as words; empty where there is nothing. Errors: io.
  Result<void> to_csv(const std::filesystem::path& path, CsvOptions options = {}) const;
  /// For people.
  std::string text() const;
};

}  // namespace troupe::tune
