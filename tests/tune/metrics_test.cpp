#include "tune/metrics.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::tune;

namespace {

std::vector<std::string> names_of(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("metrics: nested braces are flattened in the order of telling") {
  const Metrics metrics = {{"z", 1},
                           {"loss", {{"train", 0.5}, {"val", {{"top1", 0.25}}}}},
                           {"a", "text"},
                           {"pair", {{"x", "y"}}},
                           {"none", {}}};
  CHECK(names_of(metrics) ==
        std::vector<std::string>{"z", "loss/train", "loss/val/top1", "a", "pair/x"});
  CHECK(metrics.find("pair/x")->as_text() == "y");
  CHECK(metrics.find("loss") == nullptr);
}

TEST_CASE("metrics: braces as an argument or a result are read as they look") {
  const auto size = [](const Metrics& metrics) { return metrics.size(); };
  const auto returned = [](double loss) -> Metrics { return {{"loss", loss}}; };
  CHECK(size({}) == 0);
  CHECK(size({{"loss", 0.5}}) == 1);
  CHECK(size({{"a", "b"}}) == 1);
  CHECK(size({{"a", "b"}, {"c", "d"}}) == 2);
  CHECK(returned(0.25).number("loss") == 0.25);
}

TEST_CASE("metrics: set replaces in place or appends") {
  Metrics metrics = {{"a", 1}, {"b", 2}};
  metrics.set("a", 3);
  metrics.set("c", 4);
  CHECK(metrics == Metrics{{"a", 3}, {"b", 2}, {"c", 4}});
  CHECK_FALSE(metrics == Metrics{{"b", 2}, {"a", 3}, {"c", 4}});
}

TEST_CASE("metrics: number takes what counts as a number only") {
  const Metrics metrics = {{"int", 3},    {"double", 0.5},   {"nan", std::nan("")}, {"bool", true},
                           {"text", "1"}, {"null", Value()}, {"list", list({1})}};
  CHECK(metrics.number("int") == 3.0);
  CHECK(metrics.number("double") == 0.5);
  CHECK(metrics.number("bool") == 1.0);
  CHECK(std::isnan(*metrics.number("nan")));
  for (const char* name : {"text", "null", "list", "absent"}) CHECK_FALSE(metrics.number(name));
}

TEST_CASE("metrics: a row has null for what JSON can't say, and names it") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Metrics metrics = {{"loss", std::nan("")},
                           {"norm", {{"max", infinity}, {"min", -infinity}}},
                           {"list", list({1.5, std::nan(""), list({infinity})})},
                           {"null", Value()},
                           {"int", 1},
                           {"double", 1.0}};
  const std::string row = metrics.to_json();
  CHECK(row ==
        R"({"loss":null,"norm":{"max":null,"min":null},"list":[1.5,null,[null]],"null":null,)"
        R"("int":1,"double":1.0,"nan_keys":{"loss":"nan","norm/max":"inf","norm/min":"-inf",)"
        R"("list/1":"nan","list/2/0":"inf"}})");
  CHECK(*Metrics::from_json(row) == metrics);
}

TEST_CASE("metrics: parts of one name come together in a row, whatever stands between them") {
  const Metrics apart = {{"a/x", 1}, {"b", 2}, {"a/y", 3}};
  CHECK(apart.to_json() == R"({"a":{"x":1,"y":3},"b":2})");
  const Metrics clash = {{"a/x", 1}, {"a", 2}, {"a/y", 3}};
  CHECK(clash.to_json() == R"({"a/x":1,"a":2,"a/y":3})");
  CHECK(Metrics::from_json(clash.to_json())->size() == 3);
}

TEST_CASE("metrics: a broken row is refused") {
  CHECK_FALSE(Metrics::from_json(""));
  CHECK_FALSE(Metrics::from_json(R"({"a":1)"));
  CHECK_FALSE(Metrics::from_json("3"));
  CHECK_FALSE(Metrics::from_json(R"({"a":[{}]})"));
  CHECK(Metrics::from_json(R"({"nan_keys":3})")->size() == 1);
}
