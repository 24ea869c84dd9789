#include "tune/search_space.hpp"

#include "tune/stopper.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;

namespace {

constexpr int kCount = 20'000;

std::vector<double> samples(const Domain& domain) {
  REQUIRE(domain.check("x"));
  std::vector<double> values;
  for (int i = 0; i < kCount; ++i) {
    Random random(11, static_cast<std::uint64_t>(i));
    values.push_back(domain.sample(random).as_double());
  }
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::map<double, int> counts(const Domain& domain) {
  std::map<double, int> result;
  for (const double value : samples(domain)) ++result[value];
  return result;
}

std::string fault(const SearchSpace& space) {
  const auto checked = space.check();
  if (checked) return "none";
  CHECK(code_of(checked.error()) == Errc::bad_request);
  return text_of(checked.error());
}

}  // namespace

TEST_CASE("search space: all forms of braces are read as they look") {
  const std::vector<std::string> names = {"a", "b"};
  const Config nested_config = {{"k", 1}};
  const SearchSpace inner = {{"k", uniform(0, 1)}};
  const SearchSpace space = {
      {"lr", loguniform(1e-4, 1e-1)},
      {"batch_size", choice({32, 64, 128})},
      {"hidden", 128},
      {"pair", "of texts"},
      {"blocks", choice({list({2, 2, 2, 2}), list({3, 4, 6, 3})})},
      {"augment", {{"flip", true}, {"crop", uniform(0, 4)}}},
      {"one", {{"x", randint(0, 3)}}},
      {"texts", {{"a", "b"}, {"c", "d"}}},
      {"none", {}},
      {"grid", grid_search(names)},
      {"list", names},
      {"config", nested_config},
      {"space", inner},
      {"twice", sample_from([](const Config& c) { return 2 * c.get<int>("hidden"); })},
      {"words", choice({"adam", "sgd"})},
      {"mixed", choice({1, 2.5, "three", true, Value()})},
  };
  CHECK(fault(space) == "none");
  CHECK(space.spec() ==
        R"({"augment/crop":{"uniform":[0.0,4.0]},"augment/flip":{"constant":true},)"
        R"("batch_size":{"choice":[32,64,128]},"blocks":{"choice":[[2,2,2,2],[3,4,6,3]]},)"
        R"("config/k":{"constant":1},"grid":{"grid_search":["a","b"]},)"
        R"("hidden":{"constant":128},"list":{"constant":["a","b"]},)"
        R"("lr":{"loguniform":[0.0001,0.1]},"mixed":{"choice":[1,2.5,"three",true,null]},)"
        R"("none":{"nested":{}},"one/x":{"randint":[0,3]},"pair":{"constant":"of texts"},)"
        R"("space/k":{"uniform":[0.0,1.0]},"texts/a":{"constant":"b"},"texts/c":{"constant":"d"},)"
        R"("twice":{"sample_from":[]},"words":{"choice":["adam","sgd"]}})");
  CHECK(space.variables() == std::vector<std::string>{"augment/crop", "batch_size", "blocks",
                                                      "grid", "lr", "mixed", "one/x", "space/k",
                                                      "twice", "words"});
}

TEST_CASE("search space: it stands in options beside the others, as users write it") {
  struct Options {
    SearchSpace config = {};
    Stop stop = {};
    std::vector<Config> points_to_evaluate = {};
  };
  const auto kept = [](const Options& options) { return options; };
  CHECK(kept({}).config.empty());
  CHECK(kept({.config = {{"lr", grid_search({1e-3, 1e-2})}}}).config.items().size() == 1);
  CHECK(kept({.config = {{"a", "b"}}}).config.spec() == R"({"a":{"constant":"b"}})");
  CHECK(kept({.config = {{"a", "b"}, {"c", "d"}}}).config.items().size() == 2);
  CHECK(kept({.config = {{"a", {{"b", "c"}}}}}).config.items()[0].key == "a/b");
  CHECK(kept({.config = Config{{"a", 1}}}).config.items().size() == 1);
  CHECK(kept({.stop = {{"training_iteration", 20}}}).stop.criteria().size() == 1);
  const Options points = kept({.points_to_evaluate = {{{"x", 1}}, {{"x", 2}, {"y", "z"}}}});
  REQUIRE(points.points_to_evaluate.size() == 2);
  CHECK(points.points_to_evaluate[1] == Config{{"x", 2}, {"y", "z"}});
}

TEST_CASE("search space: a mistake is told with key, domain and way out") {
  CHECK(fault({{"a", {{"x", uniform(3, 1)}}}}) ==
        "config key 'a/x': uniform(3, 1): the lower bound is above the upper one; swap them");
  CHECK(fault({{"x", randint(5, 5)}}) ==
        "config key 'x': randint(5, 5): the bounds are equal; give 5 itself for a constant");
  CHECK(fault({{"lr", loguniform(0, 0.1)}}) ==
        "config key 'lr': loguniform(0, 0.1): the lower bound 0 has no logarithm; give one above "
        "0");
  CHECK(fault({{"n", lograndint(-1, 10)}}).find("has no logarithm") != std::string::npos);
  CHECK(fault({{"x", uniform(0, std::numeric_limits<double>::infinity())}}) ==
        "config key 'x': uniform(0, inf): inf is no bound; give finite numbers");
  CHECK(fault({{"x", uniform(std::nan(""), 1)}}).find("nan is no bound") != std::string::npos);
  CHECK(fault({{"x", quniform(0, 1, 0)}}) ==
        "config key 'x': quniform(0, 1, 0): the quantum 0 is not above 0; give the distance of two "
        "values");
  CHECK(fault({{"x", qrandint(1, 9, -2)}}).find("quantum -2") != std::string::npos);
  CHECK(fault({{"x", quniform(0.1, 0.2, 0.5)}}) ==
        "config key 'x': quniform(0.1, 0.2, 0.5): no multiple of the quantum lies between; give a "
        "smaller quantum");
  CHECK(fault({{"x", qrandint(1, 4, 5)}}).find("no multiple") != std::string::npos);
  CHECK(fault({{"x", quniform(0, 1e300, 1e-300)}}).find("too small") != std::string::npos);
  CHECK(fault({{"x", randn(0, 0)}}).find("standard deviation") != std::string::npos);
  CHECK(fault({{"x", qrandn(0, 1, 0)}}).find("quantum") != std::string::npos);
  CHECK(fault({{"x", grid_search({})}}) ==
        "config key 'x': grid_search([]): of nothing there is no trial; give at least one value");
  CHECK(fault({{"x", choice(std::vector<int>{})}}).find("of nothing") != std::string::npos);
  CHECK(fault({{"x", Domain(Domain::Function())}}).find("no function") != std::string::npos);
}

TEST_CASE("search space: keys that clash or have empty parts are told") {
  CHECK(fault({{"lr", 1}, {"lr", uniform(0, 1)}}) ==
        "config key 'lr' is given twice; give it once");
  CHECK(fault({{"a", {{"b", 1}}}, {"a/b", 2}}) == "config key 'a/b' is given twice; give it once");
  CHECK(fault({{"a", 1}, {"a/b", 2}}) ==
        "config key 'a' has a value and also holds 'a/b'; give one of them another name");
  CHECK(fault({{"a", {}}, {"a/b", 2}}) == "none");
  for (const char* key : {"", "/a", "a/", "a//b"})
    CHECK(fault({{key, 1}}).find("has an empty part") != std::string::npos);
}

TEST_CASE("search space: nothing to search is legal, and more than one sample of it is remarked") {
  CHECK(fault({}) == "none");
  CHECK(fault({{"hidden", 128}}) == "none");
  CHECK_FALSE(SearchSpace().warning(1));
  CHECK_FALSE(SearchSpace({{"x", grid_search({1})}}).warning(5));
  CHECK(*SearchSpace().warning(5) ==
        "config has nothing to search, so its 5 trials differ by their seeds only; give a key a "
        "domain, as in {\"lr\", tune::loguniform(1e-4, 1e-1)}, or num_samples 1");
  CHECK(SearchSpace({{"hidden", 1}}).warning(-1)->find("endless") != std::string::npos);
}

TEST_CASE("search space: defaults fill what is not named, nested keys one by one") {
  SearchSpace space = {{"lr", uniform(0, 1)}, {"augment", {{"crop", 4}}}, {"flat", choice({1})}};
  space.add_defaults({{"lr", 0.1},
                      {"hidden", 128},
                      {"augment", {{"crop", 1}, {"flip", true}}},
                      {"flat", {{"x", 1}}},
                      {"none", {}}});
  CHECK(fault(space) == "none");
  CHECK(space.spec() ==
        R"({"augment/crop":{"constant":4},"augment/flip":{"constant":true},)"
        R"("flat":{"choice":[1]},"hidden":{"constant":128},"lr":{"uniform":[0.0,1.0]},)"
        R"("none":{"nested":{}}})");
}

TEST_CASE("domain: uniform fills its range evenly and never gives the upper bound") {
  const auto values = samples(uniform(-2, 6));
  CHECK(std::ranges::min(values) >= -2);
  CHECK(std::ranges::max(values) < 6);
  CHECK(std::abs(mean(values) - 2) < 0.082);  // 5 sigma
  const double low = 1, high = std::nextafter(1.0, 2);
  for (const double value : samples(uniform(low, high))) CHECK(value == low);
  for (const double value : samples(uniform(-1e308, 1e308))) CHECK(std::isfinite(value));
}

TEST_CASE("domain: loguniform has as many values in each decade") {
  const auto values = samples(loguniform(1e-4, 1e-1));
  CHECK(std::ranges::min(values) >= 1e-4);
  CHECK(std::ranges::max(values) < 1e-1);
  std::map<int, int> decades;
  for (const double value : values) ++decades[static_cast<int>(std::floor(std::log10(value)))];
  CHECK(decades.size() == 3);
  for (const auto& [decade, count] : decades) CHECK(std::abs(count - kCount / 3) < 340);
}

TEST_CASE("domain: quniform gives each multiple in range equally often, the ends too") {
  const auto found = counts(quniform(0.1, 0.5, 0.1));
  CHECK(found.size() == 5);
  for (const double value : {0.1, 0.2, 0.3, 0.4, 0.5}) {
    REQUIRE(found.contains(value));  // to the last bit
    CHECK(std::abs(found.at(value) - kCount / 5) < 290);
  }
  const auto uneven = counts(quniform(0.05, 0.25, 0.1));
  CHECK(uneven.size() == 2);
  CHECK(uneven.contains(0.1));
}

TEST_CASE("domain: randint leaves its upper bound out, qrandint does not") {
  const auto excluded = counts(randint(-2, 3));
  CHECK(excluded.size() == 5);
  CHECK(excluded.begin()->first == -2);
  CHECK(excluded.rbegin()->first == 2);
  const auto included = counts(qrandint(2, 10, 4));  // 4, 8
  CHECK(included.size() == 2);
  CHECK(std::abs(included.at(8) - kCount / 2) < 360);
  CHECK(counts(qrandint(1, 3)).size() == 3);
  CHECK(counts(qrandint(-5, 5, 5)).size() == 3);
  const auto all =
      randint(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  CHECK(std::abs(mean(samples(all))) < 0x1p63 * 0.03);
}

TEST_CASE("domain: lograndint is rounded down and never gives its upper bound") {
  const auto found = counts(lograndint(1, 8));
  CHECK(found.size() == 7);
  for (const auto& [value, count] : found) {
    const double expected = kCount * std::log((value + 1) / value) / std::log(8);
    CHECK(std::abs(count - expected) < 5 * std::sqrt(expected));
  }
  const auto quantised = counts(qlograndint(1, 16, 4));
  CHECK(quantised.begin()->first == 4);
  CHECK(quantised.rbegin()->first == 16);
}

TEST_CASE("domain: qloguniform and qrandn give multiples") {
  for (const auto& [value, count] : counts(qloguniform(0.1, 10, 0.5))) {
    CHECK(value * 2 == std::round(value * 2));
    CHECK((value >= 0.5 && value <= 10));
  }
  const auto values = samples(qrandn(10, 2, 0.5));
  CHECK(std::abs(mean(values) - 10) < 0.08);
  for (const double value : values) CHECK(value * 2 == std::round(value * 2));
  CHECK(std::abs(mean(samples(randn(-3, 2))) + 3) < 0.08);
}

TEST_CASE("domain: choice gives its values as they are, of whatever type") {
  const Domain mixed = choice({1, 1.5, "text", true});
  std::map<std::string, int> types;
  for (int i = 0; i < kCount; ++i) {
    Random random(11, static_cast<std::uint64_t>(i));
    ++types[std::string(mixed.sample(random).type_name())];
  }
  CHECK(types.size() == 4);
  for (const auto& [type, count] : types) CHECK(std::abs(count - kCount / 4) < 310);
}

TEST_CASE("domain: whole numbers are int64, others double") {
  Random random(1);
  for (const Domain& domain :
       {randint(0, 9), qrandint(0, 9), lograndint(1, 9), qlograndint(1, 9, 2)})
    CHECK(domain.sample(random).is_int());
  for (const Domain& domain : {uniform(0, 9), quniform(0, 9, 1), loguniform(1, 9),
                               qloguniform(1, 9, 1), randn(), qrandn(0, 1, 1)})
    CHECK(domain.sample(random).is_double());
}
