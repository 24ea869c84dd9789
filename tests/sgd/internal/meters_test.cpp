#include "sgd/internal/meters.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::sgd::internal;
using troupe::test::TempFolder;
using troupe::tune::Metrics;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

double number(const Metrics& metrics, std::string_view name) {
  const auto value = metrics.number(name);
  REQUIRE_MESSAGE(value, name);
  return *value;
}

}  // namespace

TEST_CASE("meters: a mean is weighted by num_samples, and the last batch's value is beside it") {
  Meters meters;
  meters.add({{"train_loss", 1.0}, {"num_samples", 3}});
  meters.add({{"train_loss", 5.0}, {"num_samples", 1}});
  const Metrics all = meters.summary();
  CHECK(all == Metrics{{"num_samples", 4}, {"train_loss", 2.0}, {"last_train_loss", 5.0}});
}

TEST_CASE("meters: without num_samples each batch weighs 1") {
  Meters meters;
  meters.add({{"x", 1}});
  meters.add({{"x", 2}});
  CHECK(meters.summary() == Metrics{{"num_samples", 2}, {"x", 1.5}, {"last_x", 2}});
}

TEST_CASE("meters: NaN stays, text is the last batch's, and a metric may come now and then") {
  Meters meters;
  meters.add({{"loss", 1.0}, {"rare", 7}, {"word", "a"}});
  meters.add({{"loss", kNaN}, {"word", "b"}});
  meters.add({{"loss", 1.0}, {"word", "c"}});
  const Metrics all = meters.summary();
  CHECK(std::isnan(number(all, "loss")));
  CHECK(number(all, "last_loss") == 1);
  CHECK(number(all, "rare") == 7);
  CHECK(all.find("word")->as_text() == "c");
  CHECK(all.find("last_word") == nullptr);
}

TEST_CASE("meters: a batch of no samples counts nothing, and no batch gives no mean") {
  Meters meters;
  CHECK(meters.summary() == Metrics{{"num_samples", 0}});
  meters.add({{"loss", kNaN}, {"num_samples", 0}});
  CHECK(meters.summary().find("loss") == nullptr);
  meters.add({{"loss", 2.0}, {"num_samples", 2}});
  CHECK(number(meters.summary(), "loss") == 2);
}

TEST_CASE("meters: saved and loaded they go on with the same bits") {
  const TempFolder folder;
  Meters meters;
  meters.add({{"loss", 0.1}, {"word", "a"}, {"list", tune::list({1, "x"})}, {"num_samples", 3}});
  meters.add({{"loss", kNaN}, {"other", 0.3}, {"num_samples", 7}});
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  meters.save(*out, "meters");
  unwrap(out->commit());
  Meters loaded;
  loaded.load(unwrap(CheckpointReader::open(folder / "c")), "meters");
  for (Metrics more : {Metrics{}, Metrics{{"loss", 0.7}, {"other", 0.7}}}) {
    meters.add(more);
    loaded.add(more);
    CHECK(loaded.summary() == meters.summary());
  }
}

TEST_CASE("merge: num_samples is the sum, and means are weighted by it") {
  const Metrics all = merge({{{"num_samples", 3}, {"train_loss", 1.0}, {"epoch", 2}},
                             {{"num_samples", 1}, {"train_loss", 5.0}, {"epoch", 2}}});
  CHECK(all == Metrics{{"num_samples", 4}, {"train_loss", 2.0}, {"epoch", 2}});
}

TEST_CASE("merge: one rank's NaN is everybody's, unless it has seen nothing") {
  CHECK(std::isnan(
      number(merge({{{"num_samples", 1}, {"x", 1.0}}, {{"num_samples", 1}, {"x", kNaN}}}), "x")));
  CHECK(number(merge({{{"num_samples", 1}, {"x", 1.0}}, {{"num_samples", 0}, {"x", kNaN}}}), "x") ==
        1);
}

TEST_CASE("merge: what only some ranks have is theirs; text and the profile are the first's") {
  const Metrics all = merge(
      {{{"num_samples", 1}, {"word", "a"}, {"profile", {{"mean_fwd_s", 1.0}}}},
       {{"num_samples", 9}, {"word", "b"}, {"profile", {{"mean_fwd_s", 2.0}}}, {"late", 4.0}}});
  CHECK(all.find("word")->as_text() == "a");
  CHECK(number(all, "profile/mean_fwd_s") == 1);
  CHECK(number(all, "late") == 4);
}

TEST_CASE("merge: batch_count is the plain mean, and whole numbers that agree stay whole") {
  const Metrics all = merge({{{"num_samples", 3}, {"batch_count", 3}, {"layers", 7}},
                             {{"num_samples", 5}, {"batch_count", 5}, {"layers", 7}}});
  CHECK(number(all, "batch_count") == 4);
  CHECK(all.find("layers")->is_int());
}

TEST_CASE(
    "profile: only what occurred is told, and the hidden part of the exchange is a fraction") {
  using namespace std::chrono_literals;
  Profile profile;
  CHECK(profile.summary(true).empty());
  profile.add(Profile::Part::forward, 2s);
  profile.add(Profile::Part::forward, 4s);
  profile.add(Profile::Part::exchange, 4s, 2);
  profile.waited(1s);
  const Metrics all = profile.summary(true);
  CHECK(number(all, "profile/mean_fwd_s") == 3);
  CHECK(number(all, "profile/mean_exchange_s") == 2);
  CHECK(number(all, "profile/exchange_hidden_fraction") == doctest::Approx(0.75));
  CHECK(all.size() == 3);
  CHECK(number(profile.summary(false), "profile/mean_eval_fwd_s") == 3);
}
