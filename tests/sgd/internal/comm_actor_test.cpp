#include "sgd/internal/comm_actor.hpp"

#include "libactor/internal/system.hpp"
#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <memory>

using namespace troupe;
using namespace troupe::sgd::internal;

TEST_CASE("comm actor: ranks of one process exchange as every mail must") {
  troupe::internal::System system({.threads = 1});
  test::exchange_suite([&](int world_size) {
    return std::make_unique<LocalGroup>(world_size, 1, comm_actors(system.actors()));
  });
}

TEST_CASE("comm actor: a group leaves no actor behind") {
  troupe::internal::System system({.threads = 1});
  const auto before = system.actors().registry().running();
  {
    LocalGroup group(4, 1, comm_actors(system.actors()));
    CHECK(system.actors().registry().running() == before + 4);
  }
  CHECK(system.actors().registry().running() == before);
}
