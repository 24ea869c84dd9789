#pragma once

#include "libactor/result.hpp"
#include "sgd/internal/collectives.hpp"
#include "sgd/internal/generators.hpp"
#include "sgd/internal/local_group.hpp"
#include "sgd/internal/thread_mail.hpp"

#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <torch/torch.h>

/// Ranks of one group, each on a thread of its own, for tests with LibTorch.
namespace troupe::test {

inline constexpr std::chrono::milliseconds kRankLimit{20'000};

/// Runs `body` once a rank, with random numbers of its own (seed = rank). What one rank throws
/// fails the group, as the group's owner does. Returns each rank's sentence, "" for those that
/// ended well.
inline std::vector<std::string> run_ranks(
    int world_size, const std::function<void(sgd::internal::Collectives&)>& body) {
  sgd::internal::LocalGroup group(world_size, 1, sgd::internal::comm_threads());
  std::vector<std::string> sentences(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      sgd::internal::RankGenerator generator(static_cast<std::uint64_t>(rank), torch::kCPU);
      const auto use = generator.use();
      sgd::internal::Collectives collectives(group.exchange(rank), kRankLimit);
      const auto ended = fence(Errc::user_code, [&] { body(collectives); });
      if (ended) return;
      sentences[static_cast<std::size_t>(rank)] = text_of(ended.error());
      group.fail(ended.error());
    });
  for (auto& thread : threads) thread.join();
  return sentences;
}

/// What `body` returned on each rank, all of which must end well.
template <class F>
auto on_ranks(int world_size, F body) {
  using Value = std::invoke_result_t<F, sgd::internal::Collectives&>;
  std::vector<Value> values(static_cast<std::size_t>(world_size));
  const auto sentences = run_ranks(world_size, [&](sgd::internal::Collectives& collectives) {
    values[static_cast<std::size_t>(collectives.rank())] = body(collectives);
  });
  for (const auto& sentence : sentences) REQUIRE(sentence == "");
  return values;
}

}  // namespace troupe::test
