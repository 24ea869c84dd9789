#include "tune/config.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::tune;

namespace {

Config sample() {
  return {
      {"lr", 0.1},
      {"hidden", 128},
      {"optimizer", "adam"},
      {"flip", true},
      {"blocks", list({2, 2, 6, 2})},
      {"augment", {{"flip", false}, {"crop", {{"size", 24}}}}},
  };
}

std::string thrown_by(auto&& body) {
  try {
    body();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("config: all forms of braces are read as they look") {
  const std::vector<double> rates = {0.1, 0.2};
  const std::string name = "text";
  const Config config = {
      {"pair", "of texts"},
      {"one", {{"a", 1}}},
      {"two", {{"a", "b"}, {"c", "d"}}},
      {"none", {}},
      {"deep", {{"er", {{"still", {{"x", 1}}}}}}},
      {"rates", rates},
      {"name", name},
      {"names", std::vector<std::string>{"a", "b"}},
      {"flags", std::vector<bool>{true, false}},
      {"list", list({list({1, 2}), "x", 2.5})},
      {"empty list", list({})},
      {"float", 0.5f},
      {"unsigned", std::size_t{7}},
      {"nothing", Value()},
  };
  CHECK(
      config.to_json() ==
      R"({"deep":{"er":{"still":{"x":1}}},"empty list":[],"flags":[true,false],"float":0.5,)"
      R"("list":[[1,2],"x",2.5],"name":"text","names":["a","b"],"none":{},"nothing":null,)"
      R"("one":{"a":1},"pair":"of texts","rates":[0.1,0.2],"two":{"a":"b","c":"d"},"unsigned":7})");
  CHECK(Config{}.to_json() == "{}");
  CHECK(Config{{"a", 1}}.to_json() == R"({"a":1})");
  CHECK(Config{{"a", "b"}}.to_json() == R"({"a":"b"})");
  CHECK(Config{{"a", "b"}, {"c", "d"}}.to_json() == R"({"a":"b","c":"d"})");
}

TEST_CASE("config: a value is given as the type asked, and an int64 as a double too") {
  const Config config = sample();
  CHECK(config.get<double>("lr") == 0.1);
  CHECK(config.get<float>("lr") == 0.1f);
  CHECK(config.get<double>("hidden") == 128.0);
  CHECK(config.get<int>("hidden") == 128);
  CHECK(config.get<std::int64_t>("hidden") == 128);
  CHECK(config.get<std::string>("optimizer") == "adam");
  CHECK(config.get<bool>("flip"));
  CHECK(config.get<std::vector<int>>("blocks") == std::vector<int>{2, 2, 6, 2});
  CHECK(config.get<std::vector<double>>("blocks") == std::vector<double>{2, 2, 6, 2});
  CHECK(config.get<Value>("blocks") == list({2, 2, 6, 2}));
  CHECK(config.get<int>("augment/crop/size") == 24);
  CHECK(config.get<Config>("augment") == Config{{"flip", false}, {"crop", {{"size", 24}}}});
  CHECK(config.get<Config>("augment").get<Config>("crop").get<int>("size") == 24);
  CHECK(Config{{"none", {}}}.get<Config>("none").empty());
  CHECK(config.get_or("momentum", 0.9) == 0.9);
  CHECK(config.get_or("optimizer", "sgd") == "adam");
  CHECK(config.get_or("activation", "relu") == "relu");
}

TEST_CASE("config: a wrong key or type is told with what there is") {
  const Config config = sample();
  CHECK(thrown_by([&] { config.get<int>("hiden"); }) ==
        "config has no key 'hiden'; did you mean 'hidden'?");
  CHECK(thrown_by([&] { config.get<int>("size"); }) ==
        "config has no key 'size'; did you mean 'augment/crop/size'?");
  CHECK(thrown_by([&] { config.get<Config>("augment").get<Config>("crop").get<int>("sizes"); }) ==
        "config has no key 'augment/crop/sizes'; did you mean 'augment/crop/size'?");
  CHECK(thrown_by([] {
          Config{{"a", 1}, {"b", 1}}.get<int>("momentum");
        }) == "config has no key 'momentum'; there is 'a', 'b'");
  CHECK(thrown_by([] { Config{}.get<int>("lr"); }) == "config has no key 'lr'; there is none");
  CHECK(thrown_by([] {
          Config{{"lr", "0.1"}}.get<double>("lr");
        }) == R"(config key 'lr' is text "0.1", asked for as a double)");
  CHECK(thrown_by([&] { config.get<std::int64_t>("lr"); }) ==
        "config key 'lr' is double 0.1, asked for as an int64");
  CHECK(thrown_by([&] { config.get<bool>("hidden"); }) ==
        "config key 'hidden' is int64 128, asked for as a bool");
  CHECK(thrown_by([&] { config.get<double>("flip"); }) ==
        "config key 'flip' is bool true, asked for as a double");
  CHECK(thrown_by([&] { config.get<std::vector<bool>>("blocks"); }) ==
        "config key 'blocks' is list [2,2,6,2], asked for as a list of bools");
  CHECK(thrown_by([&] { config.get<double>("augment"); }) ==
        "config key 'augment' is a nested config, asked for as a double");
  CHECK(thrown_by([&] { config.get<Config>("lr"); }) ==
        "config key 'lr' is double 0.1, asked for as a nested config");
  CHECK(thrown_by([&] { config.get_or("optimizer", 1.0); }) ==
        R"(config key 'optimizer' is text "adam", asked for as a double)");
}

TEST_CASE("config: no number is narrowed") {
  const Config config = {{"big", 3'000'000'000},
                         {"huge", 1e300},
                         {"unsigned", std::numeric_limits<std::uint64_t>::max()},
                         {"inf", std::numeric_limits<double>::infinity()}};
  CHECK(thrown_by([&] { config.get<int>("big"); }) ==
        "config key 'big' is int64 3000000000, asked for as an int");
  CHECK(config.get<std::int64_t>("big") == 3'000'000'000);
  CHECK(thrown_by([&] { config.get<float>("huge"); }) ==
        "config key 'huge' is double 1e+300, asked for as a float");
  CHECK(std::isinf(config.get<float>("inf")));
  CHECK_THROWS_AS(config.get<std::int64_t>("unsigned"), ConfigError);
  CHECK(config.get<double>("unsigned") == 18446744073709551616.0);
}

TEST_CASE("config: what is set replaces what had the name, and nests by \"/\"") {
  Config config;
  config.set("a/b", 1);
  config.set("a/c", 2);
  CHECK(config.to_json() == R"({"a":{"b":1,"c":2}})");
  config.set("a", 3);
  CHECK(config.to_json() == R"({"a":3})");
  config.set("a/b/c", 4);
  CHECK(config.to_json() == R"({"a":{"b":{"c":4}}})");
  CHECK(Config{{"a/b", 1}} == Config{{"a", {{"b", 1}}}});
  CHECK(Config{{"a", {}}, {"a", {{"b", 1}}}} == Config{{"a", {{"b", 1}}}});
  CHECK(Config{{"a", {{"b", 1}}}, {"a", {}}} == Config{{"a", {{"b", 1}}}});
}

TEST_CASE("config: merge puts the other's values over these, key by key") {
  Config config = {{"lr", 0.1}, {"augment", {{"flip", true}, {"crop", 4}}}};
  config.merge({{"augment", {{"crop", 8}}}, {"hidden", 32}});
  CHECK(config == Config{{"lr", 0.1}, {"augment", {{"flip", true}, {"crop", 8}}}, {"hidden", 32}});
}

TEST_CASE("config: flattened goes by path, so \"a/b\" comes before \"a-b\"") {
  const Config config = {{"a-b", 1}, {"a", {{"b", 2}}}, {"none", {}}};
  const auto flat = config.flattened();
  REQUIRE(flat.size() == 2);
  CHECK(flat[0].first == "a/b");
  CHECK(flat[1].first == "a-b");
}

TEST_CASE("config: unread names what no copy was asked for") {
  const Config config = sample();
  CHECK(config.unread().size() == 7);
  const Config copy = config;
  copy.get<double>("lr");
  copy.has("optimizer");
  copy.has("no such key");
  copy.get_or("flip", false);
  const Config augment = copy.get<Config>("augment");
  augment.get<bool>("flip");
  CHECK(config.unread() == std::vector<std::string>{"augment/crop/size", "blocks", "hidden"});
  CHECK(augment.unread() == std::vector<std::string>{"crop/size"});
  config.get<Config>("augment").get<Config>("crop").get<int>("size");
  config.get<std::vector<int>>("blocks");
  CHECK_THROWS(config.get<bool>("hidden"));  // asked for, if wrongly: that is told by the error
  CHECK(copy.unread().empty());
  CHECK(Config{}.unread().empty());
}

TEST_CASE("config: two threads may read copies of one config") {
  const Config config = sample();
  std::thread other([copy = config] {
    for (int i = 0; i < 1000; ++i) copy.get<double>("lr");
  });
  for (int i = 0; i < 1000; ++i) config.get<int>("hidden");
  other.join();
  CHECK(config.unread().size() == 5);
}

TEST_CASE("config: NaN is equal to NaN, 1 and 1.0 differ") {
  const double nan = std::nan("");
  CHECK(Config{{"x", nan}} == Config{{"x", nan}});
  CHECK(Config{{"x", list({nan})}} == Config{{"x", list({nan})}});
  CHECK_FALSE(Config{{"x", 1}} == Config{{"x", 1.0}});
}

TEST_CASE("config: JSON comes back as it went, and infinities as words") {
  const Config config = sample();
  CHECK(*Config::from_json(config.to_json()) == config);
  CHECK(*Config::from_json(R"({"a":{},"b":1.0,"c":9223372036854775807,"ключ":"値"})") ==
        Config{{"a", {}}, {"b", 1.0}, {"c", INT64_MAX}, {"ключ", "値"}});
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(Config{{"x", list({infinity, -infinity, std::nan("")})}}.to_json() ==
        R"({"x":["inf","-inf","nan"]})");
  CHECK(Config{{"bytes", "\xff"}}.to_json() == "{\"bytes\":\"\xef\xbf\xbd\"}");
  CHECK(config.to_json(2).starts_with("{\n  \"augment\": {\n    \"crop\": {\n      \"size\": 24"));
}

TEST_CASE("config: what is no config in JSON is refused with the reason") {
  const auto reason = [](std::string_view text) {
    const auto config = Config::from_json(text);
    REQUIRE_FALSE(config);
    CHECK(code_of(config.error()) == Errc::bad_request);
    return text_of(config.error());
  };
  CHECK(reason("[1]") == "config: expected a JSON object, found array");
  CHECK(reason(R"({"a":{"b":[{"c":1}]}})") ==
        "config: key 'a/b' has an object inside a list; give it a name");
  CHECK(reason(R"({"a":)").starts_with("config: "));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  CHECK(reason(deep + "1" + std::string(100'000, '}')).ends_with("nested deeper than 64"));
  CHECK(reason(R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}") ==
        "config: key 'a' is nested deeper than 64");
}

TEST_CASE("value: text is what people expect in names and tables") {
  CHECK(Value(0.001).text() == "0.001");
  CHECK(Value(1e-5).text() == "1e-05");
  CHECK(Value(100000.0).text() == "100000");
  CHECK(Value("adam").text() == "adam");
  CHECK(Value(list({1, "a", list({true})})).text() == "[1, a, [true]]");
  CHECK(Value().text() == "null");
  CHECK(Value(std::nan("")).text() == "nan");
}

static_assert(!std::is_convertible_v<int*, Value>);  // a pointer is no bool
