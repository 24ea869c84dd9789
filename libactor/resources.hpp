#pragma once

#include "libactor/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// An amount in ten-thousandths: 0.1 ten times is exactly 1. Never floats (specs: Ray counts the
/// same way).
class Amount {
 public:
  static constexpr std::int64_t kScale = 10'000;

  constexpr Amount() = default;
  /// Rounds to the nearest ten-thousandth. Implicit on purpose: `.cpus = 0.5`. NaN and negative
  /// numbers are kept as -1 and found by `Resources::check`.
  constexpr Amount(double units)
      : parts_(units >= 0 && units < 1e12 ? static_cast<std::int64_t>(units * kScale + 0.5) : -1) {}
  constexpr Amount(int units) : Amount(static_cast<double>(units)) {}
  static constexpr Amount of_parts(std::int64_t parts) {
    Amount result;
    result.parts_ = parts;
    return result;
  }

  constexpr std::int64_t parts() const { return parts_; }
  constexpr double units() const { return static_cast<double>(parts_) / kScale; }
  std::string text() const;  ///< "2", "0.5"
  constexpr auto operator<=>(const Amount&) const = default;
  constexpr Amount operator+(Amount other) const { return of_parts(parts_ + other.parts_); }
  constexpr Amount operator-(Amount other) const { return of_parts(parts_ - other.parts_); }

 private:
  std::int64_t parts_ = 0;
};

/// "640B", "2.0GiB".
std::string bytes_text(std::int64_t bytes);

/// What one trial, worker or machine has or wants.
struct Resources {
  Amount cpus = 1;
  /// Not said and 0 differ: not said means no device and one line of warning on a machine that has
  /// some.
  std::optional<Amount> gpus = {};
  std::int64_t memory_bytes = 0;  ///< 0: no limit is asked for or enforced
  std::map<std::string, Amount> custom =
      {};  ///< amounts of anything that a machine was said to have

  /// bad_request when an amount is negative, NaN or above 1 but not whole for gpus; names the
  /// amount.
  Result<void> check() const;
  /// "cpus=2 gpus=1 memory=2.0GiB licences=1"; amounts that are 0 or not said are left out.
  std::string text() const;

  bool operator==(const Resources&) const = default;
};

}  // namespace troupe
