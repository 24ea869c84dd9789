#include "tune/schedulers/asha.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune;
using nlohmann::json;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// A scheduler that has begun with metric "m", and short words for its events.
class Driven {
 public:
  explicit Driven(ASHAOptions options, Mode mode = Mode::max, std::uint64_t seed = 1)
      : asha_(std::move(options)) {
    const auto begun = asha_.begin("m", mode, seed);
    REQUIRE_MESSAGE(begun, (begun ? std::string() : describe(begun.error())));
  }

  void add(const std::string& id) { asha_.on_trial_add(view(id)); }
  void add(std::initializer_list<const char*> ids) {
    for (const auto* id : ids) add(std::string(id));
  }
  Decision result(const std::string& id, double t, double value) {
    return asha_.on_trial_result(view(id), row(t, value)).decision;
  }
  Decision result(const std::string& id, const TrialResult& row) {
    return asha_.on_trial_result(view(id), row).decision;
  }
  void complete(const std::string& id, double t, double value) {
    asha_.on_trial_complete(view(id), row(t, value));
  }
  void remove(const std::string& id) { asha_.on_trial_remove(view(id)); }

  json rung(double milestone) const {
    const json all = state();
    for (const auto& rung : all["brackets"][0])
      if (rung["milestone"] == milestone) return rung;
    return nullptr;
  }
  json state() const { return json::parse(asha_.state()); }
  std::string debug_string() const { return asha_.debug_string(); }

 private:
  TrialView view(const std::string& id) const { return {.id = id, .config = config_}; }
  static TrialResult row(double t, double value) {
    return {{"training_iteration", t}, {"m", value}};
  }

  Config config_;
  ASHAScheduler asha_;
};

std::vector<double> milestones(ASHAOptions options, std::size_t bracket = 0) {
  ASHAScheduler asha(std::move(options));
  REQUIRE(asha.begin("m", Mode::max, 0));
  std::vector<double> found;
  const json state = json::parse(asha.state());
  for (const auto& rung : state["brackets"][bracket]) found.push_back(rung["milestone"]);
  return found;
}

std::string refusal(ASHAOptions options, const std::string& metric = "m",
                    std::optional<Mode> mode = Mode::max) {
  const auto begun = ASHAScheduler(std::move(options)).begin(metric, mode, 0);
  REQUIRE_FALSE(begun);
  CHECK(code_of(begun.error()) == Errc::bad_request);
  return text_of(begun.error());
}

}  // namespace

TEST_CASE("asha: rungs are powers of the reduction factor up to max_t, exactly, highest first") {
  CHECK(milestones({}) == std::vector<double>{64, 16, 4, 1});
  CHECK(milestones({.max_t = 1000, .reduction_factor = 10}) ==
        std::vector<double>{1000, 100, 10, 1});  // log(1000) / log(10) is 2.9999999999999996
  CHECK(milestones({.max_t = 243, .reduction_factor = 3}) ==
        std::vector<double>{243, 81, 27, 9, 3, 1});
  CHECK(milestones({.max_t = 46656, .reduction_factor = 6}) ==
        std::vector<double>{46656, 7776, 1296, 216, 36, 6, 1});
  CHECK(milestones({.max_t = 100, .grace_period = 2.5, .reduction_factor = 3}) ==
        std::vector<double>{67.5, 22.5, 7.5, 2.5});
  // The product is rounded once: 0.1 * 3 * 3 in doubles is above 0.9.
  CHECK(milestones({.max_t = 1, .grace_period = 0.1, .reduction_factor = 3}) ==
        std::vector<double>{0.9, 0.1 * 3, 0.1});
}

TEST_CASE("asha: a bracket leaves out as many of the lowest rungs as its number says") {
  const ASHAOptions options{.max_t = 10, .brackets = 5};
  CHECK(milestones(options, 0) == std::vector<double>{4, 1});
  CHECK(milestones(options, 1) == std::vector<double>{4});
  CHECK(milestones(options, 2).empty());
  CHECK(milestones(options, 4).empty());
}

TEST_CASE("asha: brackets are drawn by softmax over their rungs, from seed and number alone") {
  const auto count = [](std::uint64_t seed) {
    Driven asha({.max_t = 100, .brackets = 3}, Mode::max, seed);
    for (int i = 0; i < 10000; ++i) asha.add(std::to_string(i));
    std::vector<int> counts(3);
    const json state = asha.state();
    for (const auto& [id, live] : state["live"].items()) ++counts[live["bracket"]];
    return counts;
  };
  const auto counts = count(7);
  CHECK(counts[0] == doctest::Approx(6650).epsilon(0.03));
  CHECK(counts[1] == doctest::Approx(2450).epsilon(0.06));
  CHECK(counts[2] == doctest::Approx(900).epsilon(0.12));
  CHECK(counts == count(7));
  CHECK(counts != count(8));
}

TEST_CASE("asha: a value equal to the cutoff goes on, one below it stops") {
  Driven asha({.max_t = 100, .reduction_factor = 2});
  asha.add({"a", "b", "c", "d"});
  CHECK(asha.result("a", 1, 1) == Decision::proceed);  // the first in a rung
  CHECK(asha.result("b", 1, 3) == Decision::proceed);
  CHECK(asha.result("c", 1, 2) == Decision::proceed);  // cutoff of {1, 3} is 2
  CHECK(asha.result("d", 1, 1.999) == Decision::stop);
  CHECK(asha.rung(1)["recorded_signed"] == json{{"a", 1}, {"b", 3}, {"c", 2}, {"d", 1.999}});
}

TEST_CASE("asha: at max_t a trial stops and nothing is recorded, also by its completion after") {
  Driven asha({.max_t = 4});
  asha.add({"a"});
  CHECK(asha.result("a", 4, 1) == Decision::stop);
  asha.complete("a", 4, 1);
  CHECK(asha.rung(4)["recorded_signed"].empty());
  CHECK(asha.state()["num_stopped"] == 1);
}

TEST_CASE("asha: with stop_last_trials off a trial goes beyond max_t and skipped rungs stay shut") {
  Driven asha({.max_t = 16, .stop_last_trials = false});
  asha.add({"a", "b"});
  CHECK(asha.result("a", 1, 9) == Decision::proceed);
  CHECK(asha.result("a", 4, 9) == Decision::proceed);
  CHECK(asha.result("b", 17, 5) == Decision::proceed);  // the first at 16
  CHECK(asha.result("b", 18, 1) == Decision::proceed);
  CHECK(asha.rung(4)["recorded_signed"] == json{{"a", 9}});
  CHECK(asha.result("a", 20, 4) == Decision::stop);
}

TEST_CASE("asha: rungs that a report jumped over are judged one a result, from high to low") {
  Driven asha({});
  asha.add({"a", "b"});
  CHECK(asha.result("a", 1, 5) == Decision::proceed);
  CHECK(asha.result("a", 4, 5) == Decision::proceed);
  CHECK(asha.result("b", 20, 1) == Decision::proceed);
  CHECK(asha.rung(16)["recorded_signed"] == json{{"b", 1}});
  CHECK(asha.rung(4)["recorded_signed"] == json{{"a", 5}});
  CHECK(asha.result("b", 21, 1) == Decision::stop);  // at 4, against 5
}

TEST_CASE("asha: a trial is never judged twice at one rung") {
  Driven asha({});
  asha.add({"a", "b"});
  CHECK(asha.result("a", 1, 5) == Decision::proceed);
  CHECK(asha.result("b", 1, 6) == Decision::proceed);
  CHECK(asha.result("b", 2, -100) == Decision::proceed);
  CHECK(asha.rung(1)["recorded_signed"] == json{{"a", 5}, {"b", 6}});
}

TEST_CASE("asha: NaN is recorded, moves no cutoff and is not stopped") {
  Driven asha({}, Mode::min);
  asha.add({"a", "b", "c", "d", "e"});
  CHECK(asha.result("a", 1, kNan) == Decision::proceed);
  CHECK(asha.rung(1)["cutoff_signed"] == "nan");
  CHECK(asha.result("b", 1, 2.0) == Decision::proceed);
  CHECK(asha.result("c", 1, 3.0) == Decision::stop);
  CHECK(asha.result("d", 1, kNan) == Decision::proceed);
  CHECK(asha.rung(1)["cutoff_signed"] == -2.25);
  CHECK(asha.result("e", 1, 2.1) == Decision::proceed);
}

TEST_CASE("asha: with nan_policy stop a NaN ends its trial and leaves no trace") {
  Driven asha({.nan_policy = NanPolicy::stop});
  asha.add({"a", "b"});
  CHECK(asha.result("a", 1, kNan) == Decision::stop);
  asha.complete("b", 1, kNan);
  CHECK(asha.rung(1)["recorded_signed"].empty());
}

TEST_CASE("asha: an infinity is ranked and never makes the cutoff NaN") {
  const auto cutoff_of = [](double reduction_factor, const std::vector<double>& values) {
    Driven asha({.reduction_factor = reduction_factor});
    for (std::size_t i = 0; i < values.size(); ++i) {
      asha.add(std::to_string(i));
      asha.result(std::to_string(i), 1, values[i]);
    }
    return asha.rung(1)["cutoff_signed"];
  };
  CHECK(cutoff_of(4, {kInf}) == "inf");
  CHECK(cutoff_of(4, {-kInf}) == "-inf");
  CHECK(cutoff_of(4, {-kInf, 1}) == "-inf");
  CHECK(cutoff_of(2, {kInf, 1, 2, 3, 4}) == 3);
  CHECK(cutoff_of(4, {kInf, 1, 2, 3, 4}) == 4);
  CHECK(cutoff_of(4, {kInf, kInf, kInf}) == "inf");
  CHECK(cutoff_of(2, {1, kInf}) == 1);

  Driven asha({});
  asha.add({"a", "b"});
  CHECK(asha.result("a", 1, kInf) == Decision::proceed);
  CHECK(asha.result("b", 1, 1) == Decision::stop);
}

TEST_CASE("asha: a completed trial raises the bar, a removed one leaves what it had recorded") {
  Driven asha({});
  asha.add({"a", "b", "c"});
  asha.complete("a", 1, 10);
  CHECK(asha.result("b", 1, 9) == Decision::stop);
  CHECK(asha.result("c", 1, 11) == Decision::proceed);
  asha.remove("c");
  CHECK(asha.result("c", 4, -1) == Decision::proceed);  // unknown by now
  CHECK(asha.rung(1)["recorded_signed"] == json{{"a", 10}, {"b", 9}, {"c", 11}});
  CHECK(asha.state()["live"].empty());
  CHECK(asha.state()["num_stopped"] == 1);
}

TEST_CASE("asha: a result without metric or time, or with text instead, changes nothing") {
  Driven asha({});
  asha.add({"a"});
  const auto before = asha.state();
  CHECK(asha.result("a", TrialResult{{"m", 1}}) == Decision::proceed);
  CHECK(asha.result("a", TrialResult{{"training_iteration", 1}}) == Decision::proceed);
  CHECK(asha.result("a", TrialResult{{"training_iteration", 1}, {"m", Value()}}) ==
        Decision::proceed);
  CHECK(asha.result("a", TrialResult{{"training_iteration", 1}, {"m", "good"}}) ==
        Decision::proceed);
  CHECK(asha.state() == before);
}

TEST_CASE("asha: a verdict says why, in the user's own numbers") {
  ASHAScheduler asha;
  REQUIRE(asha.begin("m", Mode::min, 0));
  const Config config;
  const auto why = [&](const std::string& id, double t, double value) {
    asha.on_trial_add({.id = id, .config = config});
    return asha
        .on_trial_result({.id = id, .config = config}, {{"training_iteration", t}, {"m", value}})
        .why;
  };
  CHECK(why("a", 1, 0.5) == "rung=1 cutoff=none value=0.5");
  CHECK(why("b", 1, 0.75) == "rung=1 cutoff=0.5 value=0.75");
  CHECK(why("c", 0.5, 0.75) == "");
  CHECK(why("d", 100, 0.75) == "max_t=100");
}

TEST_CASE("asha: the debug string is Ray's") {
  Driven asha({.brackets = 2}, Mode::min, 3);
  for (int i = 0; i < 8; ++i) asha.add(std::to_string(i));
  std::string in_first;
  const json state = asha.state();
  for (const auto& [id, live] : state["live"].items())
    if (live["bracket"] == 0) in_first = id;
  asha.result(in_first, 1, 0.25);
  CHECK(asha.debug_string() ==
        "Using AsyncHyperBand: num_stopped=0\n"
        "Bracket: Iter 64.000: None | Iter 16.000: None | Iter 4.000: None | Iter 1.000: -0.25\n"
        "Bracket: Iter 64.000: None | Iter 16.000: None | Iter 4.000: None");
}

TEST_CASE("asha: a bad option is refused with its name, its value and the way out") {
  CHECK(refusal({.max_t = 0}) ==
        "ASHAScheduler: max_t is 0, it must be above 0: the longest that a trial may run");
  CHECK(refusal({.max_t = kNan}).find("max_t is nan") != std::string::npos);
  CHECK(refusal({.max_t = kInf}).find("max_t is inf") != std::string::npos);
  CHECK(refusal({.grace_period = 0}).find("grace_period is 0") != std::string::npos);
  CHECK(refusal({.max_t = 5, .grace_period = 6}) ==
        "ASHAScheduler: grace_period is 6, it must not be above max_t, which is 5");
  CHECK(refusal({.reduction_factor = 1}).find("reduction_factor is 1") != std::string::npos);
  CHECK(refusal({.max_t = 1e6, .reduction_factor = 1.0001}).find("more than 1000 rungs") !=
        std::string::npos);
  CHECK(refusal({.brackets = 0}).find("brackets is 0") != std::string::npos);
  CHECK(refusal({.brackets = 1001}).find("brackets is 1001") != std::string::npos);
  CHECK(refusal({.time_attr = ""}).find("time_attr is empty") != std::string::npos);
}

TEST_CASE("asha: its metric and mode come from the run or from itself, and must not differ") {
  CHECK(ASHAScheduler({.metric = "m", .mode = Mode::min}).begin("", {}, 0));
  CHECK(ASHAScheduler({.metric = "m", .mode = Mode::min}).begin("m", Mode::min, 0));
  CHECK(ASHAScheduler({.metric = "m"}).begin("", Mode::min, 0));
  CHECK(refusal({.metric = "loss"}, "accuracy") ==
        "ASHAScheduler: its metric 'loss' differs from the run's metric 'accuracy': "
        "give it once, in RunOptions");
  CHECK(refusal({.mode = Mode::min}, "m", Mode::max).find("its mode min differs") !=
        std::string::npos);
  CHECK(refusal({}, "", {}).find(".metric = ") != std::string::npos);
  CHECK(refusal({}, "m", {}).find(".mode = tune::Mode::min") != std::string::npos);
}

TEST_CASE("asha: the spec names class and parameters, and a copy starts from nothing") {
  const AnyScheduler recipe =
      ASHAScheduler({.max_t = 20, .grace_period = 1, .reduction_factor = 3});
  const auto first = recipe.make();
  REQUIRE(first->begin("m", Mode::max, 1));
  const auto spec = json::parse(first->spec());
  CHECK(spec["class"] == "ASHAScheduler");
  CHECK(spec["max_t"] == 20);
  CHECK(spec["mode"] == "max");
  const Config config;
  first->on_trial_add({.id = "a", .config = config});
  const auto second = recipe.make();
  REQUIRE(second->begin("m", Mode::max, 1));
  CHECK(second->state() != first->state());
}

// --- against a second implementation, written from the rules and as plainly as can be -----------

namespace {

struct Plain {
  double max_t, grace, factor;
  bool stop_last;
  std::vector<double> rungs = {};                             // from high to low
  std::map<double, std::map<std::string, double>> held = {};  // by rung, by trial
  std::map<std::string, bool> live = {};
  int stopped = 0;

  void begin() {
    for (double at = grace; at <= max_t; at *= factor) rungs.insert(rungs.begin(), at);
  }

  json recorded(double rung) {
    json found = json::object();
    for (const auto& [id, value] : held[rung])
      found[id] = std::isfinite(value) ? json(value)
                  : std::isnan(value)  ? "nan"
                  : value > 0          ? "inf"
                                       : "-inf";
    return found;
  }

  std::optional<double> cutoff(double rung) {
    std::vector<double> values;
    for (const auto& [id, value] : held[rung])
      if (!std::isnan(value)) values.push_back(value);
    if (values.empty()) return std::nullopt;
    std::sort(values.begin(), values.end());
    const double position = (1 - 1 / factor) * double(values.size() - 1);
    const auto low = std::size_t(std::floor(position)), high = std::size_t(std::ceil(position));
    if (low == high || std::isinf(values[low]) || std::isinf(values[high])) return values[low];
    return values[low] + (position - double(low)) * (values[high] - values[low]);
  }

  bool judged_bad(const std::string& id, double t, double value) {
    for (const double rung : rungs) {
      if (t < rung) continue;
      if (held[rung].count(id)) {
        if (!stop_last) return false;
        continue;
      }
      const auto bar = cutoff(rung);
      held[rung][id] = value;
      return bar && value < *bar;
    }
    return false;
  }

  Decision result(const std::string& id, double t, double value) {
    if (!live[id]) return Decision::proceed;
    const bool stop = (t >= max_t && stop_last) || judged_bad(id, t, value);
    if (stop) live[id] = false, ++stopped;
    return stop ? Decision::stop : Decision::proceed;
  }

  void complete(const std::string& id, double t, double value) {
    if (live[id]) judged_bad(id, t, value);
    live[id] = false;
  }
};

}  // namespace

TEST_CASE("asha: agrees with a plain second implementation on thousands of random experiments") {
  std::int64_t stops = 0, rungs_skipped = 0, nans = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return int(random() % std::uint64_t(n)); };
    const double factor = std::vector<double>{2, 3, 4, 2.5, 1.5}[std::size_t(below(5))];
    Plain plain{
        .max_t = double(1 + below(60)), .grace = 1, .factor = factor, .stop_last = below(4) != 0};
    plain.begin();
    const auto mode = below(2) ? Mode::max : Mode::min;
    const double sign = mode == Mode::max ? 1 : -1;
    Driven asha(
        {.max_t = plain.max_t, .reduction_factor = factor, .stop_last_trials = plain.stop_last},
        mode, seed);

    std::vector<double> at;
    for (int event = 0; event < 80; ++event) {
      if (at.empty() || below(8) == 0) {
        plain.live[std::to_string(at.size())] = true;
        asha.add(std::to_string(at.size()));
        at.push_back(0);
        continue;
      }
      const auto trial = std::size_t(below(int(at.size())));
      const auto id = std::to_string(trial);
      const int step = below(5) == 0 ? 1 + below(30) : 1;
      at[trial] += step;
      rungs_skipped += step > 3;
      double value = below(2) ? below(6) : below(1000) / 7.0;  // ties are common
      if (below(12) == 0) value = kNan, ++nans;
      if (below(25) == 0) value = below(2) ? kInf : -kInf;
      INFO("seed ", seed, " event ", event, " trial ", id, " t ", at[trial], " value ", value);
      if (below(20) == 0) {
        plain.complete(id, at[trial], sign * value);
        asha.complete(id, at[trial], value);
      } else if (below(40) == 0) {
        plain.live[id] = false;
        asha.remove(id);
      } else {
        const auto expected = plain.result(id, at[trial], sign * value);
        const auto decided = asha.result(id, at[trial], value);
        if (decided != expected) FAIL(name_of(decided), " instead of ", name_of(expected));
        stops += expected == Decision::stop;
      }
    }
    const auto state = asha.state();
    REQUIRE(state["num_stopped"] == plain.stopped);
    for (const auto& rung : state["brackets"][0])
      REQUIRE(rung["recorded_signed"] == plain.recorded(rung["milestone"]));
  }
  CHECK(stops > 10000);  // the events were worth something
  CHECK(rungs_skipped > 1000);
  CHECK(nans > 1000);
}
