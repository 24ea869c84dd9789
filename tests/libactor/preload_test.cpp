#include "libactor/preload.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace troupe;

namespace {

int loads = 0;

std::string greeting() {
  ++loads;
  return "hello " + parameter("who", "nobody");
}

int broken() { throw std::runtime_error("no such folder"); }

int user_of_greeting() { return static_cast<int>(preloaded<&greeting>().size()); }

}  // namespace

TEST_CASE("preload: in a process without a zygote the first use loads, and only the first") {
  internal::set_parameters({{"who", "you"}});
  CHECK(preloaded<&greeting>() == "hello you");
  CHECK(preloaded<&user_of_greeting>() == 9);
  CHECK(&preloaded<&greeting>() == &preloaded<&greeting>());
  CHECK(loads == 1);
}

TEST_CASE("preload: what the function threw is thrown at each use, with its name") {
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_WITH_AS(preloaded<&broken>(), "user code: preloaded 'broken': no such folder",
                         Exception);
}

TEST_CASE("preload: the zygote's run tells each name first, and what failed") {
  std::vector<std::string> names;
  const auto errors =
      internal::run_preloads([&](const std::string& name) { names.push_back(name); });
  for (const auto& error : errors) CHECK(code_of(error) == Errc::user_code);
  CHECK(internal::run_preloads([&](const std::string&) { FAIL("loaded twice"); }).empty());
}

TEST_CASE("parameter: the fallback when there is none") {
  internal::set_parameters({{"data", "/data"}});
  CHECK(parameter("data", "/x") == "/data");
  CHECK(parameter("date", "/x") == "/x");
  CHECK(internal::parameters() == internal::Parameters{{"data", "/data"}});
}
