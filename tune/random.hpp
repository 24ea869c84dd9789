#pragma once

#include <cstdint>

namespace troupe::tune {

/// Random numbers of a specification of our own, since std's distributions differ from library to
/// library. A value: what it gives follows from its three numbers, so trial i's are known without
/// those of the trials before it.
///
/// With m(z) the finaliser of SplitMix64 (Steele, Lea & Flood 2014), the state begins as
/// m(m(m(seed) ^ purpose) ^ index); each number adds 0x9e3779b97f4a7c15 to the state and gives m of
/// it.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t index = 0, std::uint64_t purpose = 0);

  std::uint64_t bits();
  /// [0, 1): the upper 53 bits of one number.
  double uniform();
  /// 0 … count-1, each equally likely; count > 0. Source: Lemire 2019, multiplying and rejecting.
  std::uint64_t below(std::uint64_t count);
  /// Mean 0, standard deviation 1. Source: Box & Muller 1958, the cosine of each pair. The last
  /// digit is the C library's.
  double normal();

 private:
  std::uint64_t state_;
};

}  // namespace troupe::tune
