#include "sgd/internal/thread_mail.hpp"

#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <memory>

using namespace troupe;
using namespace troupe::sgd::internal;

TEST_CASE("thread mail: ranks in threads exchange as every mail must") {
  test::exchange_suite(
      [](int world_size) { return std::make_unique<LocalGroup>(world_size, 1, comm_threads()); });
}
