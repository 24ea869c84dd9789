#include "tune/internal/format.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <iterator>

namespace troupe::tune::internal {

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first < 0xE0  ? 2
                             : first >= 0xE0 && first < 0xF0  ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Longer than needed, surrogates, and beyond the last character.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

namespace {

void append_json_escape(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}",
                     static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
}

void append_int(std::string& out, std::int64_t value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}

/// Lists differ from form to form only in how an element looks.
template <class AppendElement>
void append_list(std::string& out, const Value::List& list, std::string_view separator,
                 AppendElement append_element) {
  out += '[';
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += separator;
    append_element(out, list[i]);
  }
  out += ']';
}

}  // namespace

void append_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";  // also where the sign bit is set
    return;
  }
  std::array<char, 40> buffer;
  char* end = fmt::format_to(buffer.data(), FMT_COMPILE("{}"), value);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  out += text;
  if (text.find_first_of(".ei") == std::string_view::npos) out += ".0";
}

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  std::size_t plain = 0;  // where the stretch that is copied as it is begins
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = c < 0x80 ? 1 : utf8_length(text.substr(i));
    if (length > 0 && c >= 0x20 && c != '"' && c != '\\') {
      i += length;
      continue;
    }
    out.append(text, plain, i - plain);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else
      append_json_escape(out, text[i]);
    plain = ++i;
  }
  out.append(text, plain);
  out += '"';
}

void append_json(std::string& out, const Value& value) {
  if (value.is_double()) {
    if (std::isfinite(value.as_double()))
      append_double(out, value.as_double());
    else
      out += "null";
  } else if (value.is_int()) {
    append_int(out, value.as_int());
  } else if (value.is_text()) {
    append_json_text(out, value.as_text());
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_list()) {
    append_list(out, value.as_list(), ",", append_json);
  } else {
    out += "null";
  }
}

void append_csv_text(std::string& out, std::string_view text) {
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

void append_csv(std::string& out, const Value& value) {
  if (value.is_double()) {
    append_double(out, value.as_double());
  } else if (value.is_int()) {
    append_int(out, value.as_int());
  } else if (value.is_text()) {
    append_csv_text(out, value.as_text());
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_list()) {
    std::string json;
    append_json(json, value);
    append_csv_text(out, json);
  }
}

void append_repr(std::string& out, const Value& value) {
  if (value.is_double()) {
    append_double(out, value.as_double());
  } else if (value.is_int()) {
    append_int(out, value.as_int());
  } else if (value.is_text()) {
    const char quote = value.as_text().find('\'') == std::string::npos ? '\'' : '"';
    out += quote;
    for (const char c : value.as_text()) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    out += quote;
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_list()) {
    append_list(out, value.as_list(), ", ", append_repr);
  } else {
    out += "None";
  }
}

std::string format_time(Clock::WallTime time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 64> buffer;
  return {buffer.data(), std::strftime(buffer.data(), buffer.size(), format, &local)};
}

}  // namespace troupe::tune::internal
