#include "libactor/id.hpp"

#include <doctest/doctest.h>

#include <cctype>
#include <set>

using namespace troupe;

TEST_CASE("id: a letter first, then letters and digits, and never the same twice") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = random_id();
    REQUIRE(id.size() == 8);
    CHECK(std::islower(static_cast<unsigned char>(id[0])) != 0);
    CHECK(id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos);
    CHECK(seen.insert(id).second);
  }
  CHECK(random_seed() != random_seed());
}

TEST_CASE("id: one kind does not compare with another") {
  static_assert(!std::equality_comparable_with<NodeId, WorkerId>);
  CHECK(NodeId("a") < NodeId("b"));
  CHECK(NodeId().empty());
}
