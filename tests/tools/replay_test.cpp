#include "tools/replay.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <string>

using namespace troupe;
using nlohmann::json;

namespace {

json golden() { return json::parse(std::ifstream(TROUPE_GOLDEN "/scheduler-cases.json")); }

/// A file with one ASHA case (max_t 10, reduction factor 2, mode max) with these events.
json file_of(json events) {
  return {{"cases",
           {{{"id", "one"},
             {"scheduler", "AsyncHyperBandScheduler"},
             {"params", {{"mode", "max"}, {"max_t", 10}, {"reduction_factor", 2}}},
             {"events", std::move(events)}}}}};
}

json add(const char* trial) { return {{"op", "add"}, {"trial", trial}}; }
json result(const char* trial, json metric, const char* expect = "CONTINUE") {
  return {{"op", "result"}, {"trial", trial}, {"t", 1}, {"metric", metric}, {"expect", expect}};
}

tools::Replay checked(const json& file) {
  auto done = tools::replay(file, true);
  REQUIRE_MESSAGE(done, (done ? std::string() : describe(done.error())));
  return *done;
}

std::string refusal(const json& file) {
  const auto done = tools::replay(file, true);
  REQUIRE_FALSE(done);
  CHECK(code_of(done.error()) == Errc::bad_request);
  return text_of(done.error());
}

}  // namespace

TEST_CASE("replay: every ready ASHA case agrees in decisions, cutoffs, rungs and debug string") {
  auto file = golden();
  json asha = json::array();
  std::size_t whys = 0;
  for (const auto& given : file["cases"]) {
    if (given["scheduler"] != "AsyncHyperBandScheduler") continue;
    asha.push_back(given);
    for (const auto& event : given["events"])
      whys += event.value("why", json::object()).contains("rung");
  }
  REQUIRE(asha.size() == 2);
  REQUIRE(whys > 15);
  file["cases"] = asha;
  const auto done = checked(file);
  CHECK(done.differences == std::vector<std::string>{});
  CHECK(done.summary() == "2 passed, 0 failed, 0 unsupported");
  CHECK(done.exit_code() == 0);
}

TEST_CASE("replay: a scheduler or option that does not exist is unsupported, never skipped") {
  const auto done = checked(golden());
  CHECK(done.unsupported_count == 4);
  CHECK(done.exit_code() == 2);
  CHECK(done.cases.size() == 6);
  auto file = file_of({add("a")});
  file["cases"][0]["params"]["cool_down"] = 3;
  const auto other = checked(file);
  CHECK(other.exit_code() == 2);
  CHECK(other.cases[0]["reason"] == "AsyncHyperBandScheduler has no option 'cool_down'");
}

TEST_CASE("replay: whatever the ready cases expect, another value in its place is a difference") {
  const auto differs = [](json file, const char* pointer, json value) {
    json& place = file[json::json_pointer(pointer)];
    REQUIRE(place != value);
    place = std::move(value);
    const auto done = checked(file);
    CHECK(done.exit_code() == 1);
    REQUIRE(done.differences.size() == 1);
    return done.differences[0];
  };
  const auto file = golden();
  CHECK(differs(file, "/cases/0/events/8/expect", "CONTINUE") ==
        "asha-01-min-ties-maxt event 8 (result c): decision is \"STOP\", expected \"CONTINUE\"");
  differs(file, "/cases/0/events/8/why/rung", 3);
  differs(file, "/cases/0/events/8/why/cutoff_before_signed", -0.6333333333);
  differs(file, "/cases/0/events/6/why/cutoff_before_signed", -0.9);
  differs(file, "/cases/0/events/8/why/value_signed", 0.7);
  differs(file, "/cases/0/final_status/c", "RUNNING");
  differs(file, "/cases/0/final_rungs/1/recorded_signed/b", -0.31);
  differs(file, "/cases/0/final_rungs/1/cutoff_signed", nullptr);
  differs(file, "/cases/0/debug_string", "Using AsyncHyperBand: num_stopped=5");
  differs(file, "/cases/0/events/8/expect_also_stopped", json{"a"});
  differs(file, "/cases/0/events/8/expect_exploit", json{{"c", {{"from", "a"}}}});
  differs(file, "/cases/0/events/0/expect_band", 0);
}

TEST_CASE("replay: numbers agree within a relative 1e-12, in a debug string too") {
  auto file = golden();
  file["cases"].erase(1);
  auto& text = file["cases"][0]["debug_string"].get_ref<std::string&>();
  const auto at = text.find("-0.5333333333333333");
  REQUIRE(at != std::string::npos);
  text.replace(at, 19, "-0.53333333333333344");
  file["cases"][0]["events"][8]["why"]["cutoff_before_signed"] = -0.6333333333333339;
  CHECK(checked(file).failed_count == 0);
}

TEST_CASE("replay: NaN, infinity, null and text are metrics as the file writes them") {
  const auto done =
      checked(file_of({add("a"), add("b"), add("c"), add("d"), add("e"), result("a", "NaN"),
                       result("b", "Infinity"), result("c", nullptr), result("d", "good"),
                       result("e", 1, "STOP")}));
  CHECK(done.differences == std::vector<std::string>{});
  CHECK(done.cases[0]["final_rungs"][3]["recorded_signed"] ==
        json{{"a", "nan"}, {"b", "inf"}, {"e", 1}});
}

TEST_CASE("replay: complete, error, resume and choose move trials as a driver would") {
  const auto done = checked(file_of({add("a"),
                                     add("b"),
                                     add("c"),
                                     {{"op", "complete"}, {"trial", "a"}, {"t", 1}},
                                     {{"op", "error"}, {"trial", "b"}},
                                     {{"op", "resume"}, {"trial", "c"}},
                                     {{"op", "choose"}, {"expect_next_trial", nullptr}}}));
  CHECK(done.failed_count == 0);
  CHECK(done.cases[0]["final_status"] ==
        json{{"a", "TERMINATED"}, {"b", "ERROR"}, {"c", "RUNNING"}});
}

TEST_CASE("replay: a scheduler that refuses its options is a difference that says why") {
  auto file = file_of({add("a")});
  file["cases"][0]["params"]["reduction_factor"] = 1;
  CHECK(checked(file).differences[0].find("reduction_factor is 1") != std::string::npos);
}

TEST_CASE("replay: a bad file is refused with case and event") {
  CHECK(refusal(json::array()) == "there is no list 'cases' in it");
  CHECK(refusal(file_of({result("z", 1)})) ==
        "case 0 (\"one\"): event 0: trial 'z' was never added");
  CHECK(refusal(file_of({add("a"), add("a")})) ==
        "case 0 (\"one\"): event 1: trial 'a' is added twice");
  CHECK(refusal(file_of({add("a"), {{"op", "explode"}, {"trial", "a"}}})) ==
        "case 0 (\"one\"): event 1: there is no op 'explode'");
  CHECK(refusal(file_of({{{"trial", "a"}}})).find("key 'op' not found") != std::string::npos);
  CHECK(refusal(file_of({add("a"), result("a", json::array())})).find("event 1: ") !=
        std::string::npos);
  CHECK(refusal({{"cases", {7}}}).find("case 0 (null): ") != std::string::npos);
  auto file = file_of({add("a")});
  file["cases"][0]["params"]["mode"] = "best";
  CHECK(refusal(file).find("mode 'best' is neither min nor max") != std::string::npos);
}
