#include "sgd/internal/thread_link.hpp"

#include "sgd/internal/local_group.hpp"
#include "sgd/internal/thread_mail.hpp"
#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;

namespace {

/// A world of several groups in one process.
class World final : public ExchangeGroup {
 public:
  explicit World(const std::vector<int>& rank_counts) : rank_counts_(rank_counts) {
    if (rank_counts.size() > 1) links_ = std::make_unique<ThreadLinks>(rank_counts, 1);
    for (int g = 0; g < static_cast<int>(rank_counts.size()); ++g) {
      if (links_)
        groups_.push_back(std::make_unique<LocalGroup>(
            Groups{.group = g, .rank_counts = rank_counts}, 1, comm_threads(), (*links_)[g]));
      else
        groups_.push_back(std::make_unique<LocalGroup>(rank_counts[0], 1, comm_threads()));
    }
  }
  Exchange& exchange(int rank) override { return group_of(rank).exchange(rank); }
  void fail(const Error& error) override { groups_.back()->fail(error); }

 private:
  LocalGroup& group_of(int rank) {
    return *groups_[static_cast<std::size_t>(Groups{.rank_counts = rank_counts_}.group_of(rank))];
  }

  std::vector<int> rank_counts_;
  std::unique_ptr<ThreadLinks> links_;
  std::vector<std::unique_ptr<LocalGroup>> groups_;  // last: they close their links
};

}  // namespace

TEST_CASE("thread link: ranks in several groups exchange as those of one") {
  test::exchange_suite(
      [](int world_size) { return std::make_unique<World>(test::two_or_three_groups(world_size)); },
      test::two_or_three_groups);
}

TEST_CASE("thread link: who fails is told to the ranks of all groups") {
  World world({2, 1, 2});
  std::vector<std::thread> ranks;
  std::vector<std::string> errors(5);
  for (int rank = 0; rank < 5; ++rank)
    ranks.emplace_back([&, rank] {
      Exchange& exchange = world.exchange(rank);
      if (rank == 4) return exchange.fail(make_error(Errc::io, "alone"));  // only its own
      const auto waited = exchange.wait(
          exchange.start(0, {.kind = Contribution::Kind::barrier, .dtype = DType::none}), 60s);
      errors[static_cast<std::size_t>(rank)] = waited ? "" : describe(waited.error());
    });
  world.fail(make_error(Errc::user_code, "rank 3: bad batch"));
  for (auto& rank : ranks) rank.join();
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(errors[rank] == "user code: rank 3: bad batch");
}
