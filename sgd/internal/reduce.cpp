// Compiled with -O3, so that the loops over blocks become vector code, and -ffp-contract=off.
#include "sgd/internal/reduce.hpp"

#include "libactor/assert.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __SSE2__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace troupe::sgd::internal {
namespace {

// --- elements ---------------------------------------------------------------------------------

/// How an element lies in memory, and what it is added up in.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return x; }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
  static Stored store(Sum x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t even = bits + 0x7fff + ((bits >> 16) & 1);
    return static_cast<Stored>(x != x ? 0x7fc0 : even >> 16);
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Sum = float;

  /// Its exponent and fraction, put where a float32 has them, are 2^112 times too small.
  static Sum load(Stored x) {
    const std::uint32_t sign = (std::uint32_t{x} & 0x8000) << 16;
    const std::uint32_t magnitude = (std::uint32_t{x} & 0x7fff) << 13;
    const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
    const bool infinite_or_nan = magnitude >= 0x7c00U << 13;
    return std::bit_cast<float>(sign | (infinite_or_nan ? magnitude | 0x7f800000 : finite));
  }

  static Stored store(Sum x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112U << 23)) >> 13;
    // 0.5 has the last place of the smallest float16, so that the sum is rounded there
    const auto subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000;
    std::uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;  // half a place above the greatest
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return static_cast<Stored>(half | ((bits >> 16) & 0x8000));
  }
};

// --- operations -------------------------------------------------------------------------------

struct Add {
  template <class T>
  static T join(T sum, T x) {
    if constexpr (std::is_integral_v<T>) {
      using Wide = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wide>(sum) + static_cast<Wide>(x));
    } else {
      return sum + x;
    }
  }
};

struct Least {
  template <class T>
  static T join(T least, T x) {
    return x < least || x != x ? x : least;
  }
};

struct Greatest {
  template <class T>
  static T join(T greatest, T x) {
    return x > greatest || x != x ? x : greatest;
  }
};

// --- blocks -----------------------------------------------------------------------------------

constexpr std::size_t kBlock = 2048;  // elements; the sums of a block stay in the nearest cache
constexpr std::size_t kAtOnce = 4;    // ranks that are read in one pass over a block

template <class Element>
struct Input {
  const typename Element::Stored* values = nullptr;
  typename Element::Sum factor = 1;
};

/// Adds `Count` ranks to the sums of a block; the first ones make them.
template <class Element, class Operation, std::size_t Count, bool First>
void pass(typename Element::Sum* __restrict sums, const Input<Element>* inputs, std::size_t begin,
          std::size_t count) {
  using Sum = typename Element::Sum;
  constexpr bool scaled = std::is_floating_point_v<Sum> && std::is_same_v<Operation, Add>;
  std::array<const typename Element::Stored*, Count> values;
  std::array<Sum, Count> factors;
  for (std::size_t k = 0; k < Count; ++k) {
    values[k] = inputs[k].values + begin;
    factors[k] = inputs[k].factor;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](std::size_t k) {
      const Sum x = Element::load(values[k][i]);
      return scaled ? static_cast<Sum>(x * factors[k]) : x;
    };
    Sum sum = First ? value(0) : Operation::join(sums[i], value(0));
    for (std::size_t k = 1; k < Count; ++k) sum = Operation::join(sum, value(k));
    sums[i] = sum;
  }
}

template <class Element, class Operation, bool First>
void pass(typename Element::Sum* sums, std::span<const Input<Element>> inputs, std::size_t begin,
          std::size_t count) {
  switch (inputs.size()) {
    case 1: return pass<Element, Operation, 1, First>(sums, inputs.data(), begin, count);
    case 2: return pass<Element, Operation, 2, First>(sums, inputs.data(), begin, count);
    case 3: return pass<Element, Operation, 3, First>(sums, inputs.data(), begin, count);
    case 4: return pass<Element, Operation, 4, First>(sums, inputs.data(), begin, count);
    default: TROUPE_ASSERT(false, inputs.size());
  }
}

template <class Element>
void write(const typename Element::Sum* __restrict sums, std::byte* __restrict to,
           std::size_t count) {
  if constexpr (std::is_same_v<typename Element::Sum, typename Element::Stored>) {
    std::memcpy(to, sums, count * sizeof(*sums));
  } else {
    auto* values = reinterpret_cast<typename Element::Stored*>(to);
    for (std::size_t i = 0; i < count; ++i) values[i] = Element::store(sums[i]);
  }
}

template <class Element, class Operation>
void reduce_with(std::span<const std::byte* const> from, std::span<const double> factors,
                 std::span<std::byte* const> to, std::size_t element_count) {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  std::vector<Input<Element>> inputs;
  for (std::size_t rank = 0; rank < from.size(); ++rank)
    if (factors[rank] != 0)
      inputs.push_back(
          {reinterpret_cast<const Stored*>(from[rank]), static_cast<Sum>(factors[rank])});
  const std::span<const Input<Element>> all = inputs;

  alignas(64) std::array<Sum, kBlock> sums;
  for (std::size_t begin = 0; begin < element_count; begin += kBlock) {
    const std::size_t count = std::min(kBlock, element_count - begin);
    if (all.empty()) sums.fill(0);
    for (std::size_t k = 0; k < all.size(); k += kAtOnce) {
      const auto some = all.subspan(k, std::min(kAtOnce, all.size() - k));
      if (k == 0)
        pass<Element, Operation, true>(sums.data(), some, begin, count);
      else
        pass<Element, Operation, false>(sums.data(), some, begin, count);
    }
    for (std::byte* buffer : to)
      write<Element>(sums.data(), buffer + begin * sizeof(Stored), count);
  }
}

template <class Element>
void reduce_as(Reduce reduce, std::span<const std::byte* const> from,
               std::span<const double> factors, std::span<std::byte* const> to,
               std::size_t element_count) {
  switch (reduce) {
    case Reduce::sum:
    case Reduce::average: return reduce_with<Element, Add>(from, factors, to, element_count);
    case Reduce::min: return reduce_with<Element, Least>(from, factors, to, element_count);
    case Reduce::max: return reduce_with<Element, Greatest>(from, factors, to, element_count);
  }
}

/// The user may have told a thread to flush denormal numbers or to round otherwise; a slice must
/// not depend on the thread that takes it.
class DefaultArithmetic {
 public:
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;
#ifdef __SSE2__
  // fesetenv would set the old floating-point unit too, and takes longer than a small sum
  DefaultArithmetic() { _mm_setcsr(_MM_MASK_MASK); }
  ~DefaultArithmetic() { _mm_setcsr(before_); }

 private:
  unsigned before_ = _mm_getcsr();
#else
  DefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }
  ~DefaultArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_ = [] {
    std::fenv_t now;
    std::fegetenv(&now);
    return now;
  }();
#endif
};

struct TypeFacts {
  std::string_view name;
  std::size_t bytes;
};

TypeFacts facts(DType dtype) {
  switch (dtype) {
    case DType::none: return {"bytes", 1};
    case DType::float32: return {"float32", 4};
    case DType::float64: return {"float64", 8};
    case DType::float16: return {"float16", 2};
    case DType::bfloat16: return {"bfloat16", 2};
    case DType::int8: return {"int8", 1};
    case DType::int16: return {"int16", 2};
    case DType::int32: return {"int32", 4};
    case DType::int64: return {"int64", 8};
    case DType::uint8: return {"uint8", 1};
    case DType::boolean: return {"bool", 1};
    case DType::complex64: return {"complex64", 8};
    case DType::complex128: return {"complex128", 16};
  }
  return {"unknown", 1};
}

}  // namespace

std::string_view name_of(DType dtype) { return facts(dtype).name; }
std::size_t bytes_of(DType dtype) { return facts(dtype).bytes; }

bool can_reduce(DType dtype, Reduce reduce) {
  switch (dtype) {
    case DType::float32:
    case DType::float64:
    case DType::float16:
    case DType::bfloat16: return true;
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint8: return reduce != Reduce::average;
    case DType::boolean: return reduce == Reduce::min || reduce == Reduce::max;
    case DType::complex64:
    case DType::complex128: return reduce == Reduce::sum || reduce == Reduce::average;
    case DType::none: return false;
  }
  return false;
}

std::vector<double> shares(std::span<const double> weights) {
  double sum = 0;
  double one = 0;
  std::size_t count = 0;
  bool equal = true;
  for (const double weight : weights) {
    sum += weight;
    if (weight == 0) continue;
    equal = equal && (count == 0 || weight == one);
    one = weight;
    ++count;
  }
  std::vector<double> factors;
  for (const double weight : weights)
    factors.push_back(weight == 0 ? 0 : equal ? 1 / static_cast<double>(count) : weight / sum);
  return factors;
}

void reduce_slice(DType dtype, Reduce reduce, std::span<const std::byte* const> from,
                  std::span<const double> factors, std::span<std::byte* const> to,
                  std::size_t element_count) {
  const DefaultArithmetic arithmetic;
  const std::size_t n = element_count;
  switch (dtype) {
    case DType::float32: return reduce_as<Plain<float>>(reduce, from, factors, to, n);
    case DType::float64: return reduce_as<Plain<double>>(reduce, from, factors, to, n);
    case DType::float16: return reduce_as<Float16>(reduce, from, factors, to, n);
    case DType::bfloat16: return reduce_as<BFloat16>(reduce, from, factors, to, n);
    case DType::int8: return reduce_as<Plain<std::int8_t>>(reduce, from, factors, to, n);
    case DType::int16: return reduce_as<Plain<std::int16_t>>(reduce, from, factors, to, n);
    case DType::int32: return reduce_as<Plain<std::int32_t>>(reduce, from, factors, to, n);
    case DType::int64: return reduce_as<Plain<std::int64_t>>(reduce, from, factors, to, n);
    case DType::uint8:
    case DType::boolean: return reduce_as<Plain<std::uint8_t>>(reduce, from, factors, to, n);
    case DType::complex64: return reduce_as<Plain<float>>(reduce, from, factors, to, 2 * n);
    case DType::complex128: return reduce_as<Plain<double>>(reduce, from, factors, to, 2 * n);
    case DType::none: break;
  }
  TROUPE_ASSERT(false, name_of(dtype));
}

}  // namespace troupe::sgd::internal
