#include "tune/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

using troupe::tune::Random;

TEST_CASE("random: the numbers are SplitMix64's, and the same for ever") {
  Random zero(0);
  CHECK(zero.bits() == 0xe220a8397b1dcdaf);
  CHECK(zero.bits() == 0x6e789e6aa1b965f4);
  CHECK(zero.bits() == 0x06c45d188009454f);
  Random random(42, 7);
  CHECK(random.bits() == 0x6149e22599801a0b);
  CHECK(random.bits() == 0xffed9bcd0d2b0475);
  CHECK(random.bits() == 0x27982b000a893ed0);
}

TEST_CASE("random: what is made of the numbers is the same for ever too") {
  Random uniform(42, 7);
  CHECK(uniform.uniform() == 0.3800336210056233);
  CHECK(uniform.uniform() == 0.9997193694700108);
  CHECK(uniform.uniform() == 0.1546656489468078);
  Random below(42, 7);
  for (const std::uint64_t expected : {3, 9, 1, 4, 3, 4, 9, 2}) CHECK(below.below(10) == expected);
  Random normal(42, 7);
  CHECK(normal.normal() == doctest::Approx(0.9778430788538015).epsilon(1e-14));
  CHECK(normal.normal() == doctest::Approx(-0.5720228373997711).epsilon(1e-14));
}

TEST_CASE("random: seed, index and purpose each give other numbers") {
  std::array<std::uint64_t, 5> first = {Random(1).bits(), Random(2).bits(), Random(1, 1).bits(),
                                        Random(1, 0, 1).bits(), Random(1, 1, 1).bits()};
  std::ranges::sort(first);
  CHECK(std::ranges::adjacent_find(first) == first.end());
}

TEST_CASE("random: neighbouring indices do not resemble each other") {
  // First uniform numbers of 100,000 trials: 100 cells of 1,000; chi-square with 99 degrees of
  // freedom is between 49 and 166 but for one seed in 100,000.
  std::array<int, 100> cells{};
  double product_sum = 0, previous = 0.5;
  for (int i = 0; i < 100'000; ++i) {
    const double u = Random(7, static_cast<std::uint64_t>(i)).uniform();
    ++cells[static_cast<std::size_t>(u * 100)];
    product_sum += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  double chi_square = 0;
  for (const int count : cells) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_square > 49);
  CHECK(chi_square < 166);
  CHECK(std::abs(product_sum / 100'000 * 12) < 5 / std::sqrt(100'000.0));  // correlation, 5 sigma
}

TEST_CASE("random: below gives each number equally often, and nothing above") {
  Random random(3);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) CHECK(std::abs(count - 10'000) < 500);
  CHECK(random.below(1) == 0);
  const std::uint64_t most = ~std::uint64_t{0};
  CHECK(random.below(most) < most);
}

TEST_CASE("random: normal has mean 0 and deviation 1") {
  Random random(5);
  double sum = 0, squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / kCount) < 0.016);  // 5 sigma
  CHECK(std::abs(squares / kCount - 1) < 0.023);
}
