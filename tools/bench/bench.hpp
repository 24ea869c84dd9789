#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

/// What the benches share: they print ours and the peer's in one run, as a ratio of medians.
namespace troupe::bench {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// One line: what, the figure, the target and whether it is met.
inline void print_figure(const std::string& what, double value, const std::string& unit,
                         double target, bool more_is_better) {
  const bool met = more_is_better ? value >= target : value <= target;
  std::printf("%-58s %12.2f %-10s target %s %.2f: %s\n", what.c_str(), value, unit.c_str(),
              more_is_better ? ">=" : "<=", target, met ? "met" : "NOT met");
  std::fflush(stdout);
}

/// Figures of a build without optimisation are no figures.
inline bool optimised() {
#ifdef __OPTIMIZE__
  return true;
#else
  std::fputs("this build is not optimised; use the release preset\n", stderr);
  return false;
#endif
}

}  // namespace troupe::bench
