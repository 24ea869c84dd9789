#include "tune/stopper.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace troupe::tune;

TEST_CASE("stop: any criterion that is reached stops, also for losses by >=") {
  const Stop stop = {{"mean_accuracy", 0.99}, {"eval/loss", 2}};
  CHECK_FALSE(stop.should_stop("t", {{"mean_accuracy", 0.98}, {"eval/loss", 1.9}}));
  CHECK(stop.should_stop("t", {{"mean_accuracy", 0.99}}));
  CHECK(stop.should_stop("t", {{"eval", {{"loss", 2}}}}));
}

TEST_CASE("stop: what is absent, nothing, NaN or text never stops") {
  const Stop stop = {{"x", 0.0}};
  CHECK_FALSE(stop.should_stop("t", {}));
  CHECK_FALSE(stop.should_stop("t", {{"x", Value()}}));
  CHECK_FALSE(stop.should_stop("t", {{"x", std::nan("")}}));
  CHECK_FALSE(stop.should_stop("t", {{"x", "1"}}));
}

TEST_CASE("stop: done stops regardless, and a function beside criteria is asked too") {
  CHECK(Stop().should_stop("t", {{"done", true}}));
  CHECK_FALSE(Stop().should_stop("t", {{"done", false}}));
  const Stop stop({{"x", 10}},
                  [](const std::string& id, const TrialResult&) { return id == "odd"; });
  CHECK(stop.should_stop("odd", {}));
  CHECK(stop.should_stop("even", {{"x", 10}}));
  CHECK_FALSE(stop.should_stop("even", {{"x", 9}}));
}
