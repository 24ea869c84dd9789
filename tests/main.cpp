#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/support/before_tests.hpp"
#include "tests/support/skip.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace {

constexpr int kSkipped = 77;  // what ctest takes for "skipped"
int skipped_count = 0;
int run_count = 0;

/// Counts the cases that ran: the exit code says "skipped" only when all of them were.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override { ++run_count; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void skip(std::string_view why) {
  ++skipped_count;
  std::printf("SKIPPED: %s\n", std::string(why).c_str());
}

[[gnu::weak]] void before_tests(int&, char**) {}

int main(int argc, char** argv) {
  before_tests(argc, argv);
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (failed != 0 || context.shouldExit()) return failed;
  if (run_count == 0) {
    std::printf("no test case passes the filters\n");  // else a misspelt name would be a success
    return 1;
  }
  return skipped_count == run_count ? kSkipped : 0;
}
