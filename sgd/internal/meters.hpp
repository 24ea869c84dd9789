#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/clock.hpp"
#include "tune/metrics.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::sgd::internal {

inline constexpr std::string_view kNumSamples = "num_samples";
inline constexpr std::string_view kBatchCount = "batch_count";
inline constexpr std::string_view kEpoch = "epoch";

/// What the batches of a pass report, as one result.
class Meters {
 public:
  /// Weighs by its `num_samples`, or by 1 when it has none.
  void add(const tune::Metrics& metrics);
  bool empty() const { return meters_.empty() && samples_ == 0; }

  /// num_samples (sum of the weights); then for each number m its mean "m" and the last batch's
  /// "last_m". What is no number is there as the last batch had it. NaN stays NaN.
  tune::Metrics summary() const;

  void save(CheckpointWriter& out, std::string_view name) const;
  void load(const CheckpointReader& in, std::string_view name);

 private:
  struct Meter {
    std::string name = {};
    tune::Value last = {};
    double sum = 0;     ///< weighted
    double weight = 0;  ///< 0: not a number
  };
  Meter& meter(std::string_view name);

  std::vector<Meter> meters_ = {};  ///< in the order of telling
  double samples_ = 0;
};

/// Where the time of a pass goes.
class Profile {
 public:
  enum class Part : std::uint8_t { forward, backward, exchange, apply, data, pass };

  void add(Part part, std::chrono::nanoseconds time, std::int64_t count = 1);
  std::chrono::nanoseconds total(Part part) const { return rows_[index(part)].time; }
  /// Of the exchange: how much of it was waited for, with nothing left to compute.
  void waited(std::chrono::nanoseconds time) { waited_ += time; }

  /// "profile/mean_fwd_s" and others, of the parts that occurred (sgd/README.md has the table).
  tune::Metrics summary(bool training) const;

  /// Adds the time until its end.
  class Timed {
   public:
    Timed(Profile& profile, Part part)
        : profile_(profile), part_(part), start_(SystemClock().now()) {}
    ~Timed() { profile_.add(part_, SystemClock().now() - start_); }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    Profile& profile_;
    Part part_;
    std::chrono::steady_clock::time_point start_;
  };

 private:
  static std::size_t index(Part part) { return static_cast<std::size_t>(part); }

  struct Row {
    std::chrono::nanoseconds time = {};
    std::int64_t count = 0;
  };
  std::array<Row, 6> rows_ = {};
  std::chrono::nanoseconds waited_ = {};
};

/// The ranks' metrics as one: num_samples is added up; other numbers are means weighted by each
/// rank's num_samples, and NaN stays NaN; epoch and batch_count are plain means; what is no number,
/// and the profile, come from the first rank that has it.
tune::Metrics merge(const std::vector<tune::Metrics>& ranks);

}  // namespace troupe::sgd::internal
