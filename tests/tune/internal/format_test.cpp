#include "tune/internal/format.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace troupe::tune;
using namespace troupe::tune::internal;

namespace {

template <class Append, class T>
std::string text_of(Append append, const T& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace

TEST_CASE("format: a double is the shortest text that reads back, and never looks like an int") {
  CHECK(text_of(append_double, 1.0) == "1.0");
  CHECK(text_of(append_double, 0.1) == "0.1");
  CHECK(text_of(append_double, 100000.0) == "100000.0");
  CHECK(text_of(append_double, 1e20) == "1e+20");
  CHECK(text_of(append_double, -0.0) == "-0.0");
  CHECK(text_of(append_double, 5e-324) == "5e-324");
  CHECK(text_of(append_double, -std::nan("")) == "nan");
  CHECK(text_of(append_double, -std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("format: JSON text is escaped, and bytes that are no UTF-8 are replaced one by one") {
  CHECK(text_of(append_json_text, "a\"b\\c\n\x01") == R"("a\"b\\c\n\u0001")");
  CHECK(text_of(append_json_text, "\xC3\xA4") == "\"\xC3\xA4\"");
  CHECK(text_of(append_json_text, "x\xC3") == "\"x\xEF\xBF\xBD\"");
  CHECK(text_of(append_json_text, "\xED\xA0\x80") ==
        "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
  CHECK(text_of(append_json_text, "\xC0\x80") == "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK(text_of(append_json_text, "\xF0\x9F\x98\x80") == "\"\xF0\x9F\x98\x80\"");
  CHECK(text_of(append_json, Value(list({1, std::nan(""), "x"}))) == R"([1,null,"x"])");
}

TEST_CASE("format: a CSV cell is quoted when it has to be, and nothing differs from empty text") {
  CHECK(text_of(append_csv, Value()) == "");
  CHECK(text_of(append_csv, Value("")) == "\"\"");
  CHECK(text_of(append_csv, Value("a b")) == "a b");
  CHECK(text_of(append_csv, Value("a,b\"c\nd")) == "\"a,b\"\"c\nd\"");
  CHECK(text_of(append_csv, Value("=cmd()")) == "=cmd()");
  CHECK(text_of(append_csv, Value(true)) == "True");
  CHECK(text_of(append_csv, Value(list({1, 2}))) == "\"[1,2]\"");
}

TEST_CASE("format: Python's repr") {
  CHECK(text_of(append_repr, Value("it's")) == "\"it's\"");
  CHECK(text_of(append_repr, Value(list({1, 0.5, "a", false}))) == "[1, 0.5, 'a', False]");
  CHECK(text_of(append_repr, Value()) == "None");
}
