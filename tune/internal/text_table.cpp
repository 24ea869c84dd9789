#include "tune/internal/text_table.hpp"

#include "tune/internal/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace troupe::tune::internal {
namespace {

constexpr std::size_t kHeaderPadding = 2;  // tabulate's least width beyond the header

struct Column {
  bool right = false;
  std::size_t width = 0;
  std::vector<std::string> cells = {};
};

/// Characters, not bytes.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

/// Characters after the point, or after the e where there is no point; -1 where there is neither.
std::ptrdiff_t after_point(std::string_view number) {
  auto position = number.rfind('.');
  if (position == std::string_view::npos) position = number.rfind('e');
  if (position == std::string_view::npos) return -1;
  return static_cast<std::ptrdiff_t>(number.size() - position - 1);
}

std::string text_cell(const Value& value) {
  if (value.is_null()) return {};
  if (value.is_text()) return one_line(value.as_text());
  std::string text;
  append_repr(text, value);
  return one_line(text);
}

std::string number_cell(const Value& value, bool as_double) {
  if (value.is_null()) return {};
  if (!as_double) return fmt::format("{}", value.as_int());
  return std::isnan(value.as_double()) ? "nan" : fmt::format("{:g}", value.as_double());
}

void align_by_point(std::vector<std::string>& cells) {
  std::ptrdiff_t most = -1;
  for (const auto& cell : cells) most = std::max(most, after_point(cell));
  for (auto& cell : cells) cell.append(static_cast<std::size_t>(most - after_point(cell)), ' ');
}

Column make_column(const std::string& header, const std::vector<std::vector<Value>>& rows,
                   std::size_t index) {
  bool any_number = false, any_double = false, any_other = false;
  for (const auto& row : rows) {
    const Value& value = row[index];
    any_number = any_number || value.is_number();
    any_double = any_double || value.is_double();
    any_other = any_other || !(value.is_number() || value.is_null());
  }
  Column column{.right = any_number && !any_other, .width = width_of(header) + kHeaderPadding};
  for (const auto& row : rows)
    column.cells.push_back(column.right ? number_cell(row[index], any_double)
                                        : text_cell(row[index]));
  if (column.right) align_by_point(column.cells);
  for (const auto& cell : column.cells) column.width = std::max(column.width, width_of(cell));
  return column;
}

void append_cell(std::string& out, const Column& column, std::string_view text) {
  const std::string padding(column.width - width_of(text), ' ');
  out += ' ';
  if (column.right) out += padding;
  out += text;
  if (!column.right) out += padding;
  out += ' ';
}

void append_line(std::string& out, const std::vector<Column>& columns, char edge) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    out += i == 0 ? edge : '+';
    out.append(columns[i].width + 2, '-');
  }
  out += edge;
}

}  // namespace

std::string psql_table(const std::vector<std::string>& headers,
                       const std::vector<std::vector<Value>>& rows) {
  std::vector<Column> columns;
  for (std::size_t i = 0; i < headers.size(); ++i)
    columns.push_back(make_column(headers[i], rows, i));

  std::string out;
  append_line(out, columns, '+');
  out += '\n';
  for (std::size_t i = 0; i < columns.size(); ++i) {
    out += '|';
    append_cell(out, columns[i], headers[i]);
  }
  out += "|\n";
  append_line(out, columns, '|');
  out += '\n';
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const auto& column : columns) {
      out += '|';
      append_cell(out, column, column.cells[row]);
    }
    out += "|\n";
  }
  append_line(out, columns, '+');
  return out;
}

}  // namespace troupe::tune::internal
