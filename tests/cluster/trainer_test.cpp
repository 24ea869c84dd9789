// Real processes of ranks that are killed, stopped and misled: no hang, and the same bits.
#include "tests/cluster/faults.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <sstream>
#include <string>
#include <vector>

using namespace troupe::test;

namespace {

/// The lines of the target's output that tell numbers, without times.
std::vector<std::string> numbers(const Target& target) {
  std::vector<std::string> lines;
  std::istringstream in(target.output());
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("error after")) lines.push_back(line.substr(0, line.find(" seconds=")));
  return lines;
}

double first_number(const std::string& text, const std::string& after) {
  const auto at = text.find(after);
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + after.size());
}

const Words kShort{{"workers", "2"}, {"epochs", "2"}, {"samples", "400"}};

Words with(Words words, const Words& more) {
  for (const auto& [name, value] : more) words[name] = value;
  return words;
}

std::vector<std::string> undisturbed(const Words& words = kShort) {
  Target target;
  REQUIRE_MESSAGE(target.run(words) == 0, target.errors());
  REQUIRE(target.nothing_left());
  return numbers(target);
}

/// Runs with a fault that happens once, and tells whether it did.
int run_with_fault(Target& target, const Words& words) {
  const auto file = (target.path() / "fault").string();
  const int code = target.run(with(words, {{"file", file}}));
  CHECK_MESSAGE(std::filesystem::exists(file), "the fault did not happen");
  CHECK(target.nothing_left());
  return code;
}

}  // namespace

TEST_CASE("trainer: repeating a run gives the same bits, with dropout and batch norm") {
  const auto first = undisturbed();
  CHECK(first == undisturbed());
  CHECK(first.size() == 5);
  CHECK(first[0].find("samples=400") != std::string::npos);
}

TEST_CASE("trainer: a killed process costs no bit, wherever it dies") {
  const auto expected = undisturbed();
  for (const char* at : {"setup", "forward", "backward", "step", "snapshot"})
    for (const char* step : {"3", "31"}) {
      if (at == std::string("setup") && step != std::string("3")) continue;
      CAPTURE(at);
      CAPTURE(step);
      Target target;
      const int code =
          run_with_fault(target, with(kShort, {{"fault", "kill"},
                                               {"at", at},
                                               {"rank", "1"},
                                               {"step", at == std::string("setup") ? "0" : step}}));
      CHECK_MESSAGE(code == 0, target.errors());
      CHECK(numbers(target) == expected);
      CHECK(target.errors().find("killed by signal 9") != std::string::npos);
    }
}

TEST_CASE("trainer: ranks in processes of their own give the same bits, after a kill too") {
  const auto expected = undisturbed();
  const Words apart = with(kShort, {{"per_process", "1"}});
  CHECK(undisturbed(apart) == expected);
  for (const char* at : {"setup", "forward", "backward", "step", "snapshot"}) {
    CAPTURE(at);
    Target target;
    const int code =
        run_with_fault(target, with(apart, {{"fault", "kill"},
                                            {"at", at},
                                            {"rank", "1"},
                                            {"step", at == std::string("setup") ? "0" : "31"}}));
    CHECK_MESSAGE(code == 0, target.errors());
    CHECK(numbers(target) == expected);
    CHECK(target.errors().find("rank 1: killed by signal 9") != std::string::npos);
  }
}

TEST_CASE("trainer: without retries a killed process is an error that names ranks and cause") {
  Target target;
  const int code = run_with_fault(
      target,
      with(kShort,
           {{"fault", "kill"}, {"at", "forward"}, {"rank", "1"}, {"step", "5"}, {"retries", "0"}}));
  CHECK(code == 1);
  CHECK(target.output().find("ranks 0 to 1: killed by signal 9") != std::string::npos);
}

TEST_CASE("trainer: what a rank throws ends the call at once, and the trainer can go on") {
  Target target;
  const int code = run_with_fault(
      target,
      with(kShort,
           {{"fault", "throw"}, {"at", "forward"}, {"rank", "1"}, {"step", "5"}, {"go_on", "1"}}));
  CHECK_MESSAGE(code == 0, target.errors());
  CHECK(target.output().find("user code: rank 1: no such luck") != std::string::npos);
  CHECK(numbers(target) == undisturbed());
}

TEST_CASE("trainer: a stopped process is given up in bounded time and costs no bit") {
  Target target;
  const int code = run_with_fault(
      target, with(kShort, {{"fault", "stop"}, {"at", "forward"}, {"rank", "0"}, {"step", "5"}}));
  CHECK_MESSAGE(code == 0, target.errors());
  CHECK(target.errors().find("does not answer") != std::string::npos);
  CHECK(numbers(target) == undisturbed());
}

TEST_CASE("trainer: a rank that goes another way is told, and nobody hangs") {
  Target target;
  const int code =
      run_with_fault(target, with(kShort, {{"at", "elsewhere"}, {"rank", "1"}, {"step", "5"}}));
  CHECK(code == 1);
  CHECK(first_number(target.output(), "error after ") < 20);
  CHECK_MESSAGE(target.output().find("rank 1") != std::string::npos, target.output());
}

TEST_CASE("trainer: another model on one rank is told by the name of its parameter") {
  Target target;
  CHECK(target.run(with(kShort, {{"wider_on", "1"}})) == 1);
  CHECK_MESSAGE(target.output().find("fc1.weight") != std::string::npos, target.output());
  CHECK(target.nothing_left());
}

TEST_CASE("trainer: a rank that is merely slow is told, with what it does, and no error") {
  Target target;
  const int code = run_with_fault(
      target, with(kShort, {{"fault", "slow"}, {"at", "forward"}, {"rank", "1"}, {"step", "5"}}));
  CHECK(code == 0);
  CHECK_MESSAGE(
      target.errors().find("for rank 1, which is in forward of batch") != std::string::npos,
      target.errors());
  CHECK(numbers(target) == undisturbed());
}

TEST_CASE("trainer: a saved state is a checkpoint, and saving again replaces it") {
  Target target;
  const auto folder = (target.path() / "state").string();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(target.run(with(kShort, {{"epochs", "1"}, {"save", folder}})) == 0);
    CHECK(std::filesystem::is_directory(folder));
    CHECK_FALSE(std::filesystem::exists(folder + ".new"));
  }
}

TEST_CASE("trainer: under Tune a killed trial goes on from its checkpoint with the same bits") {
  const Words words = with(kShort, {{"mode", "tune"}, {"epochs", "3"}});
  const auto expected = undisturbed(words);
  REQUIRE(expected.size() == 2);
  CHECK(expected[0].find("ended training_iteration=3 epoch=3") == 0);
  CHECK(expected[0].find("train_num_samples=400") != std::string::npos);
  CHECK(expected[0].find("val_num_samples=400") != std::string::npos);
  for (const char* fault : {"kill", "throw"}) {
    Target target;
    const int code = run_with_fault(
        target, with(words, {{"fault", fault}, {"at", "backward"}, {"rank", "1"}, {"step", "31"}}));
    CHECK_MESSAGE(code == 0, target.errors());
    CHECK(numbers(target) == expected);
    const auto error = target.trials().begin()->second.error_text;
    CHECK(error.find(fault == std::string("kill") ? "signal 9" : "rank 1: no such luck") !=
          std::string::npos);
  }
}

TEST_SUITE("slow") {
  TEST_CASE("trainer: killed at any step of a long run, the bits stay") {
    const Words words = with(kShort, {{"epochs", "4"}, {"workers", "3"}});
    const auto expected = undisturbed(words);
    Seeded seeded;
    CAPTURE(seeded.seed());
    const char* places[] = {"forward", "backward", "step", "snapshot"};
    for (int i = 0; i < 12; ++i) {
      Target target;
      const auto step = std::to_string(seeded.below(60));
      const char* at = places[seeded.below(4)];
      CAPTURE(step);
      CAPTURE(at);
      const int code =
          run_with_fault(target, with(words, {{"fault", "kill"},
                                              {"at", at},
                                              {"rank", std::to_string(seeded.below(3))},
                                              {"step", step}}));
      CHECK_MESSAGE(code == 0, target.errors());
      CHECK(numbers(target) == expected);
    }
  }
}
