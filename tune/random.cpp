#include "tune/random.hpp"

#include <cmath>
#include <numbers>

namespace troupe::tune {
namespace {

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t index, std::uint64_t purpose)
    : state_(mixed(mixed(mixed(seed) ^ purpose) ^ index)) {}

std::uint64_t Random::bits() { return mixed(state_ += 0x9e3779b97f4a7c15); }

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

std::uint64_t Random::below(std::uint64_t count) {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t uneven = -count % count;  // 2^64 mod count: so many low halves are too many
  for (;;) {
    const Wide product = static_cast<Wide>(bits()) * count;
    if (static_cast<std::uint64_t>(product) >= uneven)
      return static_cast<std::uint64_t>(product >> 64);
  }
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // 1 - u is never 0
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace troupe::tune
