#include "tune/searcher.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;

namespace {

BasicVariantGenerator begun(const SearchSpace& space, const SearchOptions& options = {}) {
  BasicVariantGenerator searcher;
  REQUIRE(searcher.begin(space, options));
  return searcher;
}

Suggestion nth(BasicVariantGenerator& searcher, std::int64_t index) {
  auto suggestion = searcher.suggest(index);
  REQUIRE(suggestion);
  REQUIRE(*suggestion);
  return **suggestion;
}

/// All configs in order, each as JSON.
std::vector<std::string> all(BasicVariantGenerator searcher) {
  std::vector<std::string> configs;
  for (std::int64_t i = 0;; ++i) {
    auto suggestion = searcher.suggest(i);
    REQUIRE(suggestion);
    if (!*suggestion) break;
    configs.push_back((*suggestion)->config.to_json());
  }
  CHECK(searcher.total() == static_cast<std::int64_t>(configs.size()));
  return configs;
}

std::string refusal(const SearchSpace& space, const SearchOptions& options) {
  const auto begun = BasicVariantGenerator().begin(space, options);
  if (begun) return "none";
  CHECK(code_of(begun.error()) == Errc::bad_request);
  return text_of(begun.error());
}

}  // namespace

TEST_CASE("variants: a 3 x 3 grid is run through in Ray's order, once a sample") {
  const SearchSpace space = {{"b", grid_search({10, 20, 30})}, {"a", grid_search({1, 2, 3})}};
  const std::vector<std::string> once = {
      R"({"a":1,"b":10})", R"({"a":2,"b":10})", R"({"a":3,"b":10})",
      R"({"a":1,"b":20})", R"({"a":2,"b":20})", R"({"a":3,"b":20})",
      R"({"a":1,"b":30})", R"({"a":2,"b":30})", R"({"a":3,"b":30})"};
  CHECK(all(begun(space)) == once);
  auto twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  CHECK(all(begun(space, {.num_samples = 2})) == twice);
}

TEST_CASE("variants: grid keys go by path, a nested one before a longer name") {
  const SearchSpace space = {{"a-z", grid_search({1, 2})}, {"a", {{"z", grid_search({3, 4})}}}};
  CHECK(all(begun(space))[1] == R"({"a":{"z":4},"a-z":1})");
}

TEST_CASE("variants: other domains are drawn anew for each combination of the grid") {
  auto searcher = begun({{"a", grid_search({1, 2})}, {"x", uniform(0, 1)}}, {.num_samples = 2});
  std::vector<double> drawn;
  for (int i = 0; i < 4; ++i) drawn.push_back(nth(searcher, i).config.get<double>("x"));
  CHECK(drawn[0] != drawn[1]);
  CHECK(drawn[0] != drawn[2]);
}

TEST_CASE("variants: golden configs, which a seed gives for ever") {
  auto searcher = begun({{"augment", {{"crop", uniform(0, 4)}}},
                         {"batch_size", choice({32, 64, 128})},
                         {"hidden", 128},
                         {"lr", loguniform(1e-4, 1e-1)},
                         {"n", randint(1, 10)}},
                        {.num_samples = -1, .seed = 42});
  const auto check = [&](std::int64_t index, double crop, int batch_size, double lr, int n) {
    const Config config = nth(searcher, index).config;
    CHECK(config.get<double>("augment/crop") == crop);
    CHECK(config.get<int>("batch_size") == batch_size);
    CHECK(config.get<double>("lr") == doctest::Approx(lr).epsilon(1e-13));
    CHECK(config.get<int>("n") == n);
    CHECK(config.get<int>("hidden") == 128);
  };
  check(0, 0.7307960378929019, 32, 0.045705516265782634, 7);
  check(1, 2.6115484175760564, 128, 0.0385070890731046, 9);
  check(1'000'000'000'000, 3.399442612591675, 128, 0.005192618241973948, 7);
  CHECK(nth(searcher, 1).tag == "1_crop=2.6115,batch_size=128,lr=0.038507,n=9");
  CHECK(searcher.total() == -1);
}

TEST_CASE("variants: the same seed gives the same configs in any order, another seed others") {
  const SearchSpace space = {{"x", uniform(0, 1)}, {"y", randn()}};
  auto forwards = begun(space, {.num_samples = 50, .seed = 7});
  auto backwards = begun(space, {.num_samples = 50, .seed = 7});
  auto other = begun(space, {.num_samples = 50, .seed = 8});
  std::vector<Config> configs(50);
  for (std::size_t i = 50; i-- > 0;) configs[i] = nth(backwards, static_cast<int>(i)).config;
  for (std::size_t i = 0; i < 50; ++i) {
    CHECK(nth(forwards, static_cast<int>(i)).config == configs[i]);
    CHECK_FALSE(nth(other, static_cast<int>(i)).config == configs[i]);
  }
}

TEST_CASE("variants: each point uses up a sample, and fixes what it names") {
  const SearchSpace space = {{"a", grid_search({1, 2})}, {"b", randint(10, 20)}};
  const SearchOptions options = {
      .num_samples = 4,
      .points_to_evaluate = {{{"a", 2}, {"b", 2}}, {{"a", 1}}, {{"b", 2}}},
      .seed = 3};
  auto searcher = begun(space, options);
  CHECK(searcher.total() == 6);
  std::vector<int> a, b;
  for (int i = 0; i < 6; ++i) {
    const Config config = nth(searcher, i).config;
    a.push_back(config.get<int>("a"));
    b.push_back(config.get<int>("b"));
  }
  CHECK(a == std::vector<int>{2, 1, 1, 2, 1, 2});
  CHECK(b[0] == 2);
  CHECK(b[1] >= 10);
  CHECK(b[2] == 2);
  CHECK(b[3] == 2);
  CHECK(b[4] >= 10);
  CHECK(nth(searcher, 0).tag == "0");
  CHECK(nth(searcher, 2).tag == "2_a=1");
  CHECK(*searcher.suggest(6) == std::nullopt);
}

TEST_CASE("variants: all points are run, also more of them than samples") {
  const auto configs =
      all(begun({{"x", uniform(0, 1)}, {"k", 1}},
                {.num_samples = 1, .points_to_evaluate = {{{"x", 5}}, {{"k", 2}, {"x", 6}}}}));
  CHECK(configs == std::vector<std::string>{R"({"k":1,"x":5})", R"({"k":2,"x":6})"});
  auto endless =
      begun({{"x", grid_search({1, 2})}}, {.num_samples = -1, .points_to_evaluate = {{{"x", 9}}}});
  CHECK(nth(endless, 0).config.get<int>("x") == 9);
  CHECK(nth(endless, 1).config.get<int>("x") == 1);
  CHECK(nth(endless, 2).config.get<int>("x") == 2);
  CHECK(nth(endless, std::numeric_limits<std::int64_t>::max()).config.get<int>("x") == 1);
}

TEST_CASE("variants: sample_from sees what is known, and waits for what is not") {
  const SearchSpace space = {
      {"a", sample_from([](const Config& c) { return c.get<int>("b") + 1; })},
      {"b", sample_from([](const Config& c) { return c.get<int>("c") * 2; })},
      {"c", randint(1, 100)},
      {"d", sample_from([](const Config& c, Random& random) {
         return c.get<int>("k") + random.uniform();
       })},
      {"k", 5},
  };
  auto searcher = begun(space, {.seed = 1});
  const auto [config, tag] = nth(searcher, 0);
  CHECK(config.get<int>("b") == config.get<int>("c") * 2);
  CHECK(config.get<int>("a") == config.get<int>("b") + 1);
  CHECK(config.get<double>("d") > 5);
  CHECK(tag.starts_with("0_a="));
  CHECK(config == nth(searcher, 0).config);
}

TEST_CASE("variants: a chain of sample_from may be of any length") {
  const auto name = [](int i) { return "x" + std::to_string(100 + i); };
  SearchSpace space = {{name(30), 7}};
  for (int i = 0; i < 30; ++i)  // by path the last known one comes last: 30 passes
    space.add(name(i),
              sample_from([next = name(i + 1)](const Config& c) { return c.get<int>(next); }));
  auto searcher = begun(space);
  CHECK(nth(searcher, 0).config.get<int>(name(0)) == 7);
}

TEST_CASE("variants: a cycle of sample_from is told with its keys") {
  auto searcher = begun({{"a", sample_from([](const Config& c) { return c.get<Value>("b"); })},
                         {"b", sample_from([](const Config& c) { return c.get<Value>("a"); })},
                         {"lr", 0.1}});
  const auto suggestion = searcher.suggest(0);
  REQUIRE_FALSE(suggestion);
  CHECK(text_of(suggestion.error()) ==
        "config key 'a', 'b': sample_from needs what is not there, or each other in a cycle: "
        "config has no key 'a'; there is 'lr'");
}

TEST_CASE("variants: what a sample_from throws is the user's error, with the key") {
  auto searcher = begun(
      {{"a",
        {{"b", sample_from([](const Config&) -> int { throw std::runtime_error("no disk"); })}}}});
  const auto suggestion = searcher.suggest(0);
  REQUIRE_FALSE(suggestion);
  CHECK(describe(suggestion.error()) == "user code: config key 'a/b': sample_from: no disk");
}

TEST_CASE("variants: what can't be run is refused with the way out") {
  CHECK(refusal({}, {.num_samples = 0}) ==
        "num_samples is 0: nothing would run; give 1 or more, or -1 for endless");
  CHECK(refusal({}, {.num_samples = -2}) == "num_samples is -2; give 1 or more, or -1 for endless");
  CHECK(refusal({{"x", grid_search({})}}, {}).find("grid_search") != std::string::npos);
  CHECK(refusal({{"hidden", 1}, {"n", {{"none", {}}}}},
                {.points_to_evaluate = {{}, {{"hiden", 2}}}}) ==
        "points_to_evaluate[1] has the key 'hiden', config has not; did you mean 'hidden'?");
  CHECK(refusal({}, {.points_to_evaluate = {{{"x", 2}}}}) ==
        "points_to_evaluate[0] has the key 'x', config has not; there is none");
  const std::vector<int> thousand(1000);
  SearchSpace huge = {{"a", grid_search(thousand)}, {"b", grid_search(thousand)},
                      {"c", grid_search(thousand)}, {"d", grid_search(thousand)},
                      {"e", grid_search(thousand)}, {"f", grid_search(thousand)},
                      {"g", grid_search(thousand)}};
  CHECK(refusal(huge, {}).find("2^62") != std::string::npos);
  CHECK(refusal({{"a", grid_search({1, 2})}},
                {.num_samples = std::numeric_limits<std::int64_t>::max()})
            .find("2^63") != std::string::npos);
}

TEST_CASE("variants: a grid of 10^12 is no burden") {
  const std::vector<int> thousand(1000);
  auto searcher = begun({{"a", grid_search(thousand)},
                         {"b", grid_search(thousand)},
                         {"c", grid_search(thousand)},
                         {"d", grid_search(thousand)}});
  CHECK(searcher.total() == 1'000'000'000'000);
  CHECK(*searcher.suggest(1'000'000'000'000) == std::nullopt);
  CHECK(nth(searcher, 999'999'999'999).config.get<int>("d") == 0);
}

TEST_CASE("variants: a config of 200 keys, UTF-8 among them, comes whole") {
  SearchSpace space = {{"скорость", uniform(0, 1)}, {"深さ/層", randint(1, 9)}};
  Config constants;
  for (int i = 0; i < 198; ++i)
    constants.set("группа" + std::to_string(i % 5) + "/k" + std::to_string(i), i);
  space.add_defaults(constants);
  auto searcher = begun(space);
  const auto [config, tag] = nth(searcher, 0);
  CHECK(config.flattened().size() == 200);
  CHECK(config.get<Config>("группа3").get<int>("k193") == 193);
  CHECK(config.get<Config>("深さ").has("層"));
  CHECK(tag.find("скорость=0.") != std::string::npos);
}

TEST_CASE("variants: no domain at all gives num_samples times the constants") {
  CHECK(all(begun({}, {.num_samples = 2})) == std::vector<std::string>{"{}", "{}"});
  CHECK(all(begun({{"k", 1}, {"none", {}}})) == std::vector<std::string>{R"({"k":1,"none":{}})"});
}

TEST_CASE("searcher: an option is a recipe, and every run makes its own") {
  const AnySearcher any;
  const auto one = any.make();
  const auto two = AnySearcher(any).make();
  REQUIRE(one->begin({{"x", uniform(0, 1)}}, {.num_samples = 3}));
  CHECK(one->total() == 3);
  CHECK(two->total() == 0);
  CHECK(one->spec() == R"({"class":"BasicVariantGenerator"})");
  CHECK(one->state() == "{}");
}
