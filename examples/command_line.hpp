#pragma once

// What every command line of the examples and tools has in common.

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>

namespace examples {

/// Reads argv. --help ends the process with 0, misuse with a sentence and 2.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
}

/// A number from `least` to `most`. CLI11's own reading takes -1 for a large number, and what is
/// too large for the largest.
template <class Number>
CLI::Validator number_in(Number least, Number most = std::numeric_limits<Number>::max()) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole_text = end == text.data() + text.size();
        if (error == std::errc() && whole_text && value >= least && value <= most) return {};
        return "'" + text + "' is no number from " + CLI::detail::to_string(least) + " to " +
               CLI::detail::to_string(most);
      },
      "");
}

inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "must not be empty" : ""; }, "");
}

}  // namespace examples
