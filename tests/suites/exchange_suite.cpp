#include "tests/suites/exchange_suite.hpp"

#include "sgd/internal/reduce.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

namespace troupe::sgd::internal::test {
namespace {

using namespace std::chrono_literals;
constexpr auto kLimit = 60s;  // nothing here takes so long, unless it hangs
using Kind = Contribution::Kind;

// --- the plainest way -------------------------------------------------------------------------

template <class T>
T read(const std::vector<std::byte>& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

template <class T>
T join(Reduce reduce, T a, T b) {
  switch (reduce) {
    case Reduce::sum:
    case Reduce::average:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      else
        return a + b;
    case Reduce::min:
      if (a != a) return a;
      return b != b ? b : std::min(a, b);
    case Reduce::max:
      if (a != a) return a;
      return b != b ? b : std::max(a, b);
  }
  return a;
}

std::vector<double> factors(const Example& example) {
  const auto& weights = example.weights;
  if (example.contribution.reduce != Reduce::average) return std::vector<double>(weights.size(), 1);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const auto some = std::find_if(weights.begin(), weights.end(), [](double w) { return w != 0; });
  const bool equal =
      std::all_of(weights.begin(), weights.end(), [&](double w) { return w == 0 || w == *some; });
  const auto count = std::count_if(weights.begin(), weights.end(), [](double w) { return w != 0; });
  std::vector<double> result;
  for (const double weight : weights)
    result.push_back(weight == 0 ? 0 : equal ? 1 / double(count) : weight / sum);
  return result;
}

/// `load` and `store` are between what lies in memory and what is added up.
template <class Stored, class Load, class Store>
void reduce_plainly(Example& example, std::size_t count, const Load& load, const Store& store) {
  using Sum = decltype(load(Stored{}));
  const auto shares = factors(example);
  const auto& groups = example.rank_counts;
  // What is large goes around a ring: each of as many parts as there are groups begins at another.
  const std::size_t size = count * sizeof(Stored);
  const bool ring = groups.size() > 2 && size > std::size_t{64} << 10;
  const std::size_t part = ((size + groups.size() - 1) / groups.size() + 63) / 64 * 64;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<Stored> sums;
    std::size_t rank = 0;
    for (const int rank_count : groups) {
      std::optional<Sum> sum;
      for (const std::size_t end = rank + static_cast<std::size_t>(rank_count); rank < end;
           ++rank) {
        if (shares[rank] == 0) continue;
        Sum x = load(read<Stored>(example.before[rank], i));
        if (example.contribution.reduce == Reduce::average)
          x = static_cast<Sum>(x * static_cast<Sum>(shares[rank]));
        sum = sum ? join(example.contribution.reduce, *sum, x) : x;
      }
      sums.push_back(store(sum.value_or(0)));
    }
    std::size_t group = ring ? i * sizeof(Stored) / part : 0;
    Stored all = sums[group];
    for (std::size_t more = 1; more < sums.size(); ++more) {
      group = (group + 1) % sums.size();
      all = store(join(example.contribution.reduce, load(all), load(sums[group])));
    }
    for (auto& after : example.after) put(after, i, all);
  }
}

template <class T>
void reduce_plainly(Example& example, std::size_t count) {
  const auto same = [](T x) { return x; };
  reduce_plainly<T>(example, count, same, same);
}

void reduce_plainly(Example& example, std::size_t count) {
  const DType dtype = example.contribution.dtype;
  switch (dtype) {
    case DType::float32: return reduce_plainly<float>(example, count);
    case DType::float64: return reduce_plainly<double>(example, count);
    case DType::float16:
    case DType::bfloat16:
      return reduce_plainly<std::uint16_t>(
          example, count, [dtype](std::uint16_t x) { return half_to_float(dtype, x); },
          [dtype](float x) { return round_to_half(dtype, x); });
    case DType::int8: return reduce_plainly<std::int8_t>(example, count);
    case DType::int16: return reduce_plainly<std::int16_t>(example, count);
    case DType::int32: return reduce_plainly<std::int32_t>(example, count);
    case DType::int64: return reduce_plainly<std::int64_t>(example, count);
    case DType::uint8:
    case DType::boolean: return reduce_plainly<std::uint8_t>(example, count);
    case DType::complex64: return reduce_plainly<float>(example, 2 * count);
    case DType::complex128: return reduce_plainly<double>(example, 2 * count);
    case DType::none: break;
  }
  FAIL("no such type");
}

/// A few of the values are special.
std::vector<std::byte> random_values(DType dtype, std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count * bytes_of(dtype));
  std::normal_distribution<double> normal(0, 3);
  constexpr std::array special{0.0,     -0.0, 1e-40, std::numeric_limits<double>::infinity(),
                               65519.0, 6e-8};
  const auto draw = [&] { return random() % 16 == 0 ? special[random() % 6] : normal(random); };
  switch (dtype) {
    case DType::float32:
    case DType::complex64:
      for (std::size_t i = 0; i < bytes.size() / 4; ++i) put(bytes, i, static_cast<float>(draw()));
      break;
    case DType::float64:
    case DType::complex128:
      for (std::size_t i = 0; i < bytes.size() / 8; ++i) put(bytes, i, draw());
      break;
    case DType::float16:
    case DType::bfloat16:
      for (std::size_t i = 0; i < count; ++i)
        put(bytes, i, round_to_half(dtype, static_cast<float>(draw())));
      break;
    case DType::boolean:
      for (auto& byte : bytes) byte = static_cast<std::byte>(random() % 2);
      break;
    default:
      for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  }
  return bytes;
}

// --- ranks as threads -------------------------------------------------------------------------

/// Runs `body` for each rank on a thread of its own.
void run_ranks(int world_size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

Contribution contribution(const Example& example, std::size_t rank, std::span<std::byte> data) {
  Contribution mine = example.contribution;
  mine.data = data;
  if (!example.weights.empty()) mine.weight = example.weights[rank];
  return mine;
}

Contribution barrier() { return {.kind = Kind::barrier, .dtype = DType::none}; }

/// What `body` says for each rank, to be looked at on the test's own thread.
std::vector<std::string> each_rank(int world_size, const std::function<std::string(int)>& body) {
  std::vector<std::string> said(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](int rank) { said[static_cast<std::size_t>(rank)] = body(rank); });
  return said;
}

std::string said(const Result<void>& waited) { return waited ? "" : describe(waited.error()); }

}  // namespace

Result<void> run_example(Exchange& exchange, std::uint32_t channel, const Example& example) {
  const auto rank = static_cast<std::size_t>(exchange.place().rank);
  std::span<std::byte> data;
  if (!example.before[rank].empty()) {
    data = exchange.mail().allocate(example.before[rank].size());
    std::copy(example.before[rank].begin(), example.before[rank].end(), data.begin());
  }
  const auto ticket = exchange.start(channel, contribution(example, rank, data));
  if (auto waited = exchange.wait(ticket, kLimit); !waited) return waited;
  if (!std::equal(data.begin(), data.end(), example.after[rank].begin(), example.after[rank].end()))
    return make_error(Errc::corrupt, "other bits");
  return {};
}

float half_to_float(DType dtype, std::uint16_t bits) {
  if (dtype == DType::bfloat16) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0F : 1.0F;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

std::uint16_t round_to_half(DType dtype, float value) {
  const std::uint16_t infinity = dtype == DType::bfloat16 ? 0x7f80 : 0x7c00;
  const std::uint16_t nan = dtype == DType::bfloat16 ? 0x7fc0 : 0x7e00;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value != value)
    return dtype == DType::bfloat16 ? nan : static_cast<std::uint16_t>(sign | nan);
  const double magnitude = std::fabs(static_cast<double>(value));
  // The greatest that is not above it. Infinity counts as the power of two that would follow.
  const auto worth = [&](std::uint32_t bits) {
    return bits == infinity
               ? 2 * double{half_to_float(dtype,
                                          static_cast<std::uint16_t>(
                                              infinity - (dtype == DType::bfloat16 ? 128 : 1024)))}
               : double{half_to_float(dtype, static_cast<std::uint16_t>(bits))};
  };
  if (magnitude >= worth(infinity)) return sign | infinity;
  std::uint32_t below = 0, above = infinity;
  while (above - below > 1) {
    const std::uint32_t middle = (below + above) / 2;
    (worth(middle) <= magnitude ? below : above) = middle;
  }
  const double down = magnitude - worth(below), up = worth(above) - magnitude;
  const std::uint32_t nearest = down < up ? below : up < down ? above : below + (below & 1);
  return static_cast<std::uint16_t>(sign | nearest);
}

Example random_example(int world_size, std::size_t element_count, std::mt19937_64& random,
                       std::vector<int> rank_counts) {
  constexpr std::array types{DType::float32, DType::float64, DType::float16,   DType::bfloat16,
                             DType::int8,    DType::int16,   DType::int32,     DType::int64,
                             DType::uint8,   DType::boolean, DType::complex64, DType::complex128};
  Example example;
  example.rank_counts = rank_counts.empty() ? std::vector{world_size} : std::move(rank_counts);
  auto& what = example.contribution;
  constexpr std::array kinds{Kind::reduce,    Kind::reduce, Kind::reduce,
                             Kind::broadcast, Kind::gather, Kind::barrier};
  what.kind = kinds[random() % kinds.size()];
  do {
    what.dtype = types[random() % types.size()];
    what.reduce = static_cast<Reduce>(random() % 4);
  } while (what.kind == Kind::reduce && !can_reduce(what.dtype, what.reduce));
  what.root = static_cast<int>(random() % static_cast<std::uint64_t>(world_size));
  if (what.kind == Kind::barrier) {
    what.dtype = DType::none;
    element_count = 0;
  }
  const bool equal = random() % 2 == 0;
  for (int rank = 0; rank < world_size; ++rank) {
    example.weights.push_back(equal ? 0.1 : static_cast<double>(random() % 4));
    const std::size_t parts = what.kind == Kind::gather ? static_cast<std::size_t>(world_size) : 1;
    example.before.push_back(random_values(what.dtype, parts * element_count, random));
  }
  example.after = example.before;
  if (world_size == 1) return example;
  if (what.kind == Kind::reduce) {
    reduce_plainly(example, element_count);
  } else if (what.kind == Kind::broadcast) {
    for (auto& after : example.after) after = example.before[static_cast<std::size_t>(what.root)];
  } else if (what.kind == Kind::gather && element_count > 0) {
    const std::size_t part = element_count * bytes_of(what.dtype);
    for (auto& after : example.after)
      for (std::size_t rank = 0; rank < example.before.size(); ++rank)
        std::memcpy(after.data() + rank * part, example.before[rank].data() + rank * part, part);
  }
  return example;
}

void exchange_suite(const MakeGroup& make, const Layout& layout) {
  const auto example_of = [&](int world_size, std::size_t count, std::mt19937_64& random) {
    return random_example(world_size, count, random,
                          layout ? layout(world_size) : std::vector<int>());
  };
  SUBCASE("all kinds, types and odd sizes: the bits of a plain loop") {
    for (const int world_size : {1, 2, 3, 4}) {
      CAPTURE(world_size);
      std::mt19937_64 random(static_cast<std::uint64_t>(world_size));
      std::vector<Example> examples;
      for (const std::size_t count : {0, 1, 2, 3, 7, 16, 17, 100, 1000, 2047, 2049})
        for (int i = 0; i < 8; ++i) examples.push_back(example_of(world_size, count, random));
      for (const std::size_t count : {30'000, 100'001})
        for (int i = 0; i < 3; ++i) examples.push_back(example_of(world_size, count, random));
      const auto group = make(world_size);
      const auto wrong = each_rank(world_size, [&](int rank) {
        for (std::size_t i = 0; i < examples.size(); ++i)
          if (const auto ran = run_example(group->exchange(rank), 0, examples[i]); !ran)
            return "example " + std::to_string(i) + ": " + said(ran);
        return std::string();
      });
      for (const auto& which : wrong) CHECK(which == "");
    }
  }

  SUBCASE("many at once, in several channels, started and waited for in different orders") {
    constexpr int kWorldSize = 3, kRounds = 20;
    constexpr std::size_t kChannels = 3, kAtOnce = 5;
    std::mt19937_64 random(7);
    std::vector<Example> examples;  // by round, channel and place in it
    for (std::size_t i = 0; i < kRounds * kChannels * kAtOnce; ++i)
      examples.push_back(example_of(kWorldSize, random() % 60'000, random));
    const auto group = make(kWorldSize);
    const auto wrong = each_rank(kWorldSize, [&](int rank) {
      Exchange& exchange = group->exchange(rank);
      std::mt19937_64 own(static_cast<std::uint64_t>(rank));
      for (std::size_t channel = 1; channel < kChannels; ++channel) exchange.open_channel("more");
      for (std::size_t round = 0; round < kRounds; ++round) {
        struct Begun {
          const Example* example;
          std::span<std::byte> data;
          Exchange::Ticket ticket;
        };
        std::vector<Begun> begun;
        std::array<std::size_t, kChannels> next{};
        while (begun.size() < kChannels * kAtOnce) {
          const std::size_t channel = own() % kChannels;
          if (next[channel] == kAtOnce) continue;
          const Example& one = examples[(round * kChannels + channel) * kAtOnce + next[channel]++];
          const auto& before = one.before[static_cast<std::size_t>(rank)];
          const auto data = exchange.mail().allocate(std::max<std::size_t>(1, before.size()));
          std::copy(before.begin(), before.end(), data.begin());
          const auto used = data.first(before.size());
          begun.push_back(
              {&one, used,
               exchange.start(static_cast<std::uint32_t>(channel),
                              contribution(one, static_cast<std::size_t>(rank), used))});
        }
        std::shuffle(begun.begin(), begun.end(), own);
        for (const Begun& one : begun) {
          if (auto waited = exchange.wait(one.ticket, kLimit); !waited) return said(waited);
          const auto& after = one.example->after[static_cast<std::size_t>(rank)];
          if (!std::equal(one.data.begin(), one.data.end(), after.begin(), after.end()))
            return "other bits in round " + std::to_string(round);
        }
      }
      return std::string();
    });
    for (const auto& which : wrong) CHECK(which == "");
  }

  SUBCASE("different collectives: every rank gets the same sentence, and nothing was changed") {
    const auto group = make(3);
    const auto errors = each_rank(3, [&](int rank) {
      Exchange& exchange = group->exchange(rank);
      const auto data = exchange.mail().allocate(400'000);
      std::fill(data.begin(), data.end(), static_cast<std::byte>(rank + 1));
      Contribution mine{.data = data};
      if (rank == 1) mine = {.kind = Kind::broadcast, .data = data.first(8), .root = 2};
      const auto error = said(exchange.wait(exchange.start(0, mine), kLimit));
      const bool same = std::all_of(data.begin(), data.end(), [&](std::byte x) {
        return x == static_cast<std::byte>(rank + 1);
      });
      return same ? error : "changed: " + error;
    });
    for (const auto& error : errors)
      CHECK(error ==
            "bad request: ranks do not do the same: number 1 of 'the operator's own calls' is a "
            "sum of 100000 float32 for ranks 0 and 2 and a broadcast of 2 float32 from rank 2 for "
            "rank 1; every rank must call the same collectives in the same order");
  }

  SUBCASE("a rank that does not come: the others are told which, after the limit") {
    const auto group = make(3);
    const auto errors = each_rank(3, [&](int rank) -> std::string {
      Exchange& exchange = group->exchange(rank);
      std::string error = said(exchange.wait(exchange.start(0, barrier()), kLimit));
      if (rank == 2 || !error.empty()) return error;
      return said(exchange.wait(exchange.start(0, barrier()), 50ms));
    });
    CHECK(errors[0] == errors[1]);
    CHECK(errors[2] == "");
    CHECK(errors[0].find("has waited 50 ms in a barrier (number 2 of 'the operator's own calls') "
                         "for rank 2, last seen in a barrier (number 1 of") != std::string::npos);
    CHECK(errors[0].starts_with("timed out: "));
    CHECK(describe(group->exchange(0).failure()) == errors[0]);
  }

  SUBCASE("a failure wakes everybody, wherever they are, and is the first one on all ranks") {
    for (int after = 0; after < 12; ++after) {
      CAPTURE(after);
      const auto group = make(3);
      const auto errors = each_rank(3, [&](int rank) -> std::string {
        Exchange& exchange = group->exchange(rank);
        const auto data = exchange.mail().allocate(200'000);
        for (int i = 0;; ++i) {
          if (rank == 1 && i == after) {  // once before, and once after it has begun
            if (after % 2 == 1) std::ignore = exchange.start(0, {.data = data});
            group->fail(make_error(Errc::peer_lost, "rank 1 is lost"));
            group->fail(make_error(Errc::io, "and this came later"));
          }
          const auto ticket = exchange.start(0, {.data = data});
          if (auto waited = exchange.wait(ticket, kLimit); !waited) return said(waited);
        }
      });
      for (const auto& error : errors) CHECK(error == "peer lost: rank 1 is lost");
      CHECK(code_of(group->exchange(2).failure()) == Errc::peer_lost);
    }
  }

  SUBCASE("who waits knows for whom") {
    const auto group = make(2);
    Exchange& waiting = group->exchange(0);
    CHECK(waiting.missing().collective == "");
    std::thread rank([&] { std::ignore = waiting.wait(waiting.start(0, barrier()), kLimit); });
    while (waiting.missing().collective.empty()) std::this_thread::yield();
    const auto missing = waiting.missing();
    CHECK(missing.collective == "a barrier (number 1 of 'the operator's own calls')");
    CHECK(missing.ranks == std::vector<int>{1});
    CHECK(said(group->exchange(1).wait(group->exchange(1).start(0, barrier()), kLimit)) == "");
    rank.join();
    CHECK(waiting.missing().collective == "");
  }
}

std::vector<int> two_or_three_groups(int world_size) {
  switch (world_size) {
    case 1: return {1};
    case 2: return {1, 1};
    case 3: return {2, 1};
    default: return {1, world_size - 2, 1};
  }
}

}  // namespace troupe::sgd::internal::test
