#include "sgd/internal/reduce.hpp"

#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cfenv>
#include <limits>
#include <random>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;

namespace {

/// The reduction of an example in one slice; all ranks must have the same then.
std::vector<std::byte> reduce(const test::Example& example) {
  auto values = example.before;
  std::vector<std::byte*> buffers;
  for (auto& value : values) buffers.push_back(value.data());
  const auto& what = example.contribution;
  const std::vector<double> ones(buffers.size(), 1);
  reduce_slice(what.dtype, what.reduce, buffers,
               what.reduce == Reduce::average ? shares(example.weights) : ones,
               values[0].size() / bytes_of(what.dtype));
  for (const auto& value : values) CHECK(value == values[0]);
  return values[0];
}

float sum_of(std::vector<float> values, Reduce reduce) {
  std::vector<std::byte*> buffers;
  for (auto& value : values) buffers.push_back(reinterpret_cast<std::byte*>(&value));
  const std::vector<double> ones(values.size(), 1);
  reduce_slice(DType::float32, reduce, buffers, ones, 1);
  return values[0];
}

}  // namespace

TEST_CASE("reduce: any number of ranks has the bits of a plain loop in rank order") {
  std::mt19937_64 random(1);
  for (int world_size = 1; world_size <= 11; ++world_size) {
    CAPTURE(world_size);
    for (int i = 0; i < 60; ++i) {
      const auto example = test::random_example(world_size, random() % 5000, random);
      if (example.contribution.kind != Contribution::Kind::reduce || world_size == 1) continue;
      CAPTURE(name_of(example.contribution.dtype));
      CHECK((reduce(example) == example.after[0]));
    }
  }
}

TEST_CASE("reduce: halves are rounded to the nearest, ties to the even one") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    CAPTURE(name_of(dtype));
    // a + b in float32 is exact for neighbours, so that sums fall between halves and on ties
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto one = static_cast<std::uint16_t>(bits);
      const auto other = static_cast<std::uint16_t>(bits * 40503U + 7);
      std::array<std::uint16_t, 2> values{one, other};
      std::array<std::byte*, 2> buffers{reinterpret_cast<std::byte*>(&values[0]),
                                        reinterpret_cast<std::byte*>(&values[1])};
      const std::array<double, 2> factors{0.75, 0.75};
      reduce_slice(dtype, Reduce::average, buffers, factors, 1);
      const float sum =
          test::half_to_float(dtype, one) * 0.75F + test::half_to_float(dtype, other) * 0.75F;
      const std::uint16_t right = test::round_to_half(dtype, sum);
      const std::uint16_t mantissa = dtype == DType::float16 ? 0x7c00 : 0x7f80;
      const bool both_nan = sum != sum && (values[0] & 0x7fff) > mantissa;
      if (!both_nan && values[0] != right) FAIL_CHECK(bits << ": " << values[0] << " " << right);
    }
  }
}

TEST_CASE("reduce: equal weights have the bits of 1/n, others their share, 0 leaves out") {
  const std::vector<double> thirds{0.1, 0.1, 0.1};
  CHECK(shares(thirds) == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3});
  const std::vector<double> uneven{3, 0, 1};
  CHECK(shares(uneven) == std::vector<double>{0.75, 0, 0.25});
  const std::vector<double> pair{5, 0, 5};
  CHECK(shares(pair) == std::vector<double>{0.5, 0, 0.5});
  const std::vector<double> none{0, 0};
  CHECK(shares(none) == std::vector<double>{0, 0});
}

TEST_CASE("reduce: a rank without weight brings not even its NaN, and with none all is 0") {
  std::array<float, 2> values{std::numeric_limits<float>::quiet_NaN(), 4};
  const std::array<std::byte*, 2> buffers{reinterpret_cast<std::byte*>(&values[0]),
                                          reinterpret_cast<std::byte*>(&values[1])};
  reduce_slice(DType::float32, Reduce::average, buffers, std::vector<double>{0, 1}, 1);
  CHECK(values == std::array<float, 2>{4, 4});
  reduce_slice(DType::float32, Reduce::average, buffers, std::vector<double>{0, 0}, 1);
  CHECK(values == std::array<float, 2>{0, 0});
}

TEST_CASE("reduce: NaN is let through by every operation, wherever it comes") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduce how : {Reduce::sum, Reduce::min, Reduce::max})
    for (std::size_t place = 0; place < 6; ++place) {
      std::vector<float> values{1, 2, 3, 4, 5, 6};
      values[place] = nan;
      CHECK(sum_of(values, how) != sum_of(values, how));
    }
}

TEST_CASE("reduce: a thread that rounds upward gets the same bits, and still rounds upward") {
  std::fesetround(FE_UPWARD);
  const float sum = sum_of({1, 0x1p-30F}, Reduce::sum);
  const int rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  CHECK(sum == 1);
  CHECK(rounding == FE_UPWARD);
}

TEST_CASE("reduce: what has no meaning is known") {
  CHECK_FALSE(can_reduce(DType::int64, Reduce::average));
  CHECK_FALSE(can_reduce(DType::boolean, Reduce::sum));
  CHECK_FALSE(can_reduce(DType::complex64, Reduce::max));
  CHECK_FALSE(can_reduce(DType::none, Reduce::sum));
  CHECK(can_reduce(DType::complex128, Reduce::average));
  CHECK(can_reduce(DType::boolean, Reduce::max));
}
