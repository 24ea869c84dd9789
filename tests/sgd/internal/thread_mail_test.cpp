#include "sgd/internal/thread_mail.hpp"

#include "tests/suites/exchange_suite.hpp"

#include <doctest/doctest.h>

#include <memory>

using namespace troupe;
using namespace troupe::sgd::internal;

namespace {

class ThreadGroup final : public test::Group {
 public:
  explicit ThreadGroup(int world_size) : group_(world_size, 1, comm_threads()) {}
  Exchange& exchange(int rank) override { return group_.exchange(rank); }
  void fail(const Error& error) override { group_.fail(error); }

 private:
  LocalGroup group_;
};

}  // namespace

TEST_CASE("thread mail: ranks in threads exchange as every mail must") {
  test::exchange_suite([](int world_size) { return std::make_unique<ThreadGroup>(world_size); });
}
