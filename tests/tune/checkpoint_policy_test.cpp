#include "tune/checkpoint_policy.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace troupe::tune;

namespace {

using Names = std::vector<std::string>;

/// Saves c1, c2, … with these values of "score"; returns what is left.
Names left_of(CheckpointPolicy& policy, const std::vector<Value>& scores) {
  std::int64_t iteration = 0;
  for (const auto& score : scores) {
    ++iteration;
    policy.on_saved(iteration, "c" + std::to_string(iteration), {{"score", score}});
  }
  Names left;
  for (const auto& kept : policy.kept()) left.push_back(kept.name);
  return left;
}
Names left_of(CheckpointPolicy&& policy, const std::vector<Value>& scores) {
  return left_of(policy, scores);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("checkpoint_policy: without a score the newest are best") {
  CheckpointPolicy policy(2);
  CHECK(policy.best() == nullptr);
  CHECK(policy.newest() == nullptr);
  CHECK(policy.on_saved(5, "c5", {}).empty());
  CHECK(policy.on_saved(9, "c9", {}).empty());
  CHECK(policy.on_saved(12, "c12", {}) == Names{"c5"});
  CHECK(policy.best()->name == "c12");
}

TEST_CASE(
    "checkpoint_policy: the newest stays beside the best, and goes when it is newest no more") {
  CheckpointPolicy policy(1, "score");
  CHECK(policy.on_saved(1, "c1", {{"score", 0.9}}).empty());
  CHECK(policy.on_saved(2, "c2", {{"score", 0.5}}).empty());
  CHECK(policy.on_saved(3, "c3", {{"score", 0.6}}) == Names{"c2"});
  CHECK(policy.best()->name == "c1");
  CHECK(policy.newest()->name == "c3");
  CHECK(policy.on_saved(4, "c4", {{"score", 0.95}}) == Names{"c3", "c1"});
}

TEST_CASE("checkpoint_policy: min- makes small values best") {
  CHECK(left_of(CheckpointPolicy(1, "min-score"), {3, 1, 2}) == Names{"c2", "c3"});
  CHECK(left_of(CheckpointPolicy(1, "score"), {3, 1, 2}) == Names{"c1", "c3"});
}

TEST_CASE("checkpoint_policy: no score is worse than NaN, and NaN worse than any number") {
  const double inf = std::numeric_limits<double>::infinity();
  CheckpointPolicy policy(1, "score");
  CHECK(left_of(policy, {-inf, kNan, Value()}) == Names{"c1", "c3"});
  CHECK_FALSE(policy.newest()->score);  // so that its lack can be told
  CHECK(left_of(CheckpointPolicy(1, "score"), {Value(), kNan, Value("good")}) == Names{"c2", "c3"});
  CHECK(left_of(CheckpointPolicy(1, "min-score"), {inf, kNan, kNan}) == Names{"c1", "c3"});
}

TEST_CASE("checkpoint_policy: of equal ones the newer is better") {
  CheckpointPolicy policy(2, "score");
  CHECK(left_of(policy, {1, 1, 1}) == Names{"c2", "c3"});
  CHECK(policy.best()->name == "c3");
}

TEST_CASE("checkpoint_policy: 0 keeps all") {
  CHECK(left_of(CheckpointPolicy(0, "score"), {3, 1, 2}) == Names{"c1", "c2", "c3"});
}

TEST_CASE("checkpoint_policy: a name that is saved again replaces the old one and is not deleted") {
  CheckpointPolicy policy(1);
  policy.on_saved(4, "c4", {});
  CHECK(policy.on_saved(4, "c4", {}).empty());
  CHECK(policy.kept().size() == 1);
}

TEST_CASE("checkpoint_policy: at all times the k best and the newest are there, and no other") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto keep = std::int64_t(1 + random() % 4);
    CheckpointPolicy policy(keep, "score");
    std::vector<double> all;
    for (int i = 0; i < 12; ++i) {
      all.push_back(double(random() % 6));
      policy.on_saved(i, std::to_string(i), {{"score", all.back()}});
      Names expected;
      for (std::size_t a = 0; a < all.size(); ++a) {
        std::int64_t better = 0;
        for (std::size_t b = 0; b < all.size(); ++b)
          better += all[b] > all[a] || (all[b] == all[a] && b > a);
        if (better < keep || a + 1 == all.size()) expected.push_back(std::to_string(a));
      }
      Names kept;
      for (const auto& checkpoint : policy.kept()) kept.push_back(checkpoint.name);
      INFO("seed ", seed, " step ", i);
      REQUIRE(kept == expected);
    }
  }
}
