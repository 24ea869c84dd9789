#include "tune/table.hpp"

#include "libactor/file.hpp"
#include "tune/internal/format.hpp"
#include "tune/internal/text_table.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

bool looks_like_formula(const Value& value) {
  return value.is_text() && !value.as_text().empty() &&
         std::string_view("=+-@").find(value.as_text().front()) != std::string_view::npos;
}

void append_cell(std::string& out, const Value& value, const CsvOptions& options) {
  if (options.for_spreadsheets && looks_like_formula(value))
    internal::append_csv_text(out, "'" + value.as_text());
  else
    internal::append_csv(out, value);
}

}  // namespace

const Value* Table::find(std::size_t row, std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end() || row >= rows.size()) return nullptr;
  return &rows[row][static_cast<std::size_t>(found - columns.begin())];
}

Result<void> Table::to_csv(const std::filesystem::path& path, CsvOptions options) const {
  std::string out;
  const auto append_record = [&](const auto& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) out += ',';
      append_cell(out, cells[i], options);
    }
    out += '\n';
  };
  append_record(columns);
  for (const auto& row : rows) append_record(row);
  return write_atomically(path, out, {.durable = false});
}

std::string Table::text() const { return internal::psql_table(columns, rows); }

}  // namespace troupe::tune
