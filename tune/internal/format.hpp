#pragma once

#include "libactor/clock.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"

#include <cstddef>
#include <string>
#include <string_view>

/// The written forms of values. Appending and by hand: a result row has 20 values and thousands of
/// rows are written each second.
namespace troupe::tune::internal {

/// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none. Not for an
/// empty text.
std::size_t utf8_length(std::string_view text);

/// The shortest text that reads back as the same double, with a point or an exponent, so that it
/// stays a double: "1.0", "1e+20"; "nan", "inf", "-inf".
void append_double(std::string& out, double value);

/// Quoted and escaped; bytes that are no UTF-8 become U+FFFD, so that every reader takes the file.
void append_json_text(std::string& out, std::string_view text);

/// JSON has no NaN and no infinities: they become null.
void append_json(std::string& out, const Value& value);

/// One cell of a CSV file: nothing for null, True and False, lists as JSON; quoted when it has to
/// be. An empty text is "", which differs from nothing.
void append_csv(std::string& out, const Value& value);
void append_csv_text(std::string& out, std::string_view text);

/// As Python's repr, which is how Ray's reports show values: 'adam', True, [1, 0.5].
void append_repr(std::string& out, const Value& value);

/// strftime in local time: "%Y-%m-%d_%H-%M-%S".
std::string format_time(Clock::WallTime time, const char* format);

}  // namespace troupe::tune::internal
