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

TEST_CASE("trainer: under Tune a step of the user's own takes the default's place") {
  const auto lines = undisturbed(with(kShort, {{"mode", "tune"}, {"override", "1"}}));
  for (const auto& line : lines) {
    CHECK(line.find("ended training_iteration=2 ") == 0);
    CHECK_MESSAGE(line.find("1/num_samples=16 iteration_told=1") != std::string::npos, line);
  }
}

TEST_CASE("trainer: under Tune resources beside those of the ranks are refused") {
  Target target;
  CHECK(target.run(with(kShort, {{"mode", "tune"}, {"resources", "1"}})) == 1);
  CHECK_MESSAGE(target.errors().find("resources_per_trial is given") != std::string::npos,
                target.errors());
}

TEST_CASE("trainer: under Tune a trial that the scheduler ends early leaves nothing") {
  const auto lines = undisturbed(
      with(kShort, {{"mode", "tune"}, {"asha", "1"}, {"trials", "4"}, {"epochs", "4"}}));
  REQUIRE(lines.size() == 4);
  int early = 0;
  for (const auto& line : lines) {
    CHECK(line.starts_with("ended "));
    if (line.find("training_iteration=4 ") == std::string::npos) ++early;
  }
  CHECK(early > 0);
}

namespace {

/// The lines of a run of "calls", which must have gone well.
std::vector<std::string> lines_of(const Words& words, const std::string& calls) {
  Target target;
  REQUIRE_MESSAGE(target.run(with(words, {{"calls", calls}})) == 0, target.errors());
  CHECK(target.nothing_left());
  auto lines = numbers(target);
  for (const auto& line : lines) CHECK_MESSAGE(line.find(" ok ") != std::string::npos, line);
  return lines;
}

void check_has(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

}  // namespace

TEST_CASE("trainer: num_steps go on where the last call stopped, and validate has its own place") {
  const auto lines = lines_of(kShort, "train:5,validate:3,train:22,train,validate:3,ranks:1");
  check_has(lines[0], R"("epoch":1,"batch_count":5)");
  check_has(lines[1], R"("batch_count":3)");
  check_has(lines[2], R"("epoch":2,"batch_count":22)");
  check_has(lines[3], R"("epoch":2,"batch_count":23)");
  CHECK(lines[1] != lines[4]);
  check_has(lines[5], R"("1":{"num_samples":8)");
  check_has(lines[5], R"("0":{"num_samples":8)");
}

TEST_CASE("trainer: killed between calls or in any call, it goes on with the same bits") {
  const std::string calls = "train:7,validate:2,scheduler,validate:2,function,train,digest";
  const auto expected = lines_of(kShort, calls);
  for (const char* killed : {"train:7,kill,validate:2,kill,scheduler,kill,validate:2,kill,function,"
                             "kill,train,kill,digest"}) {
    auto lines = lines_of(kShort, killed);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("kill"); });
    CHECK(lines == expected);
  }
  for (const char* at : {"validation", "function"}) {
    CAPTURE(at);
    Target target;
    CHECK(run_with_fault(target, with(kShort, {{"calls", calls},
                                               {"fault", "kill"},
                                               {"at", at},
                                               {"rank", "1"},
                                               {"step", "1"}})) == 0);
    CHECK(numbers(target) == expected);
  }
}

TEST_CASE("trainer: with a loop of the user's own a call that loses its process begins anew") {
  const Words words = with(kShort, {{"own_loop", "1"}});
  const auto expected = lines_of(words, "train,train,digest");
  check_has(expected[0], "own_loss");
  Target target;
  CHECK(run_with_fault(target, with(words, {{"calls", "train,train,digest"},
                                            {"fault", "kill"},
                                            {"at", "backward"},
                                            {"rank", "1"},
                                            {"step", "31"}})) == 0);
  CHECK(numbers(target) == expected);
}

TEST_CASE("trainer: another one goes on from a saved state with the same bits, call by call") {
  const auto expected = lines_of(kShort,
                                 "train:7,validate:2,train:1,train:1,train:1,validate:2,"
                                 "train:1,train,digest");
  Target target;
  const auto folder = (target.path() / "state").string();
  const auto lines =
      lines_of(kShort, "train:7,validate:2,save:" + folder + ",new,load:" + folder +
                           ",train:1,train:1,train:1,validate:2,train:1,train,digest");
  REQUIRE(lines.size() == expected.size() + 2);
  CHECK(std::vector(lines.begin() + 4, lines.end()) ==
        std::vector(expected.begin() + 2, expected.end()));
}

TEST_CASE("trainer: a saved state is taken by another number of workers") {
  const Words words = with(kShort, {{"noisy", "0"}, {"next_workers", "4"}, {"next_batch", "4"}});
  const auto expected = lines_of(words, "train:7,train:7");
  Target target;
  const auto folder = (target.path() / "state").string();
  const auto lines = lines_of(words, "train:7,save:" + folder + ",new,load:" + folder + ",train:7");
  const auto loss = first_number(lines.back(), "\"train_loss\":");
  CHECK(loss == doctest::Approx(first_number(expected.back(), "\"train_loss\":")).epsilon(1e-4));
}

TEST_CASE(
    "trainer: a state that can't be loaded is told by load, and the ranks stay as they were") {
  const auto expected = lines_of(kShort, "train:7,train:3,digest");
  Target target;
  const auto folder = (target.path() / "state").string();
  const auto other = (target.path() / "other").string();
  (void)lines_of(with(kShort, {{"noisy", "0"}}), "train:3,save:" + other);
  REQUIRE(target.run(with(kShort, {{"calls", "train:7,load:" + folder + ",load:" + other +
                                                 ",train:3,digest"}})) == 0);
  const auto lines = numbers(target);
  REQUIRE(lines.size() == 5);
  check_has(lines[1], folder);
  check_has(lines[2], "norm.");
  CHECK(std::vector{lines[0], lines[3], lines[4]} == expected);
}

TEST_CASE("trainer: a saved folder may go as soon as it is loaded") {
  Target target;
  const auto folder = (target.path() / "state").string();
  const auto lines = lines_of(kShort, "train:7,save:" + folder + ",new,load:" + folder +
                                          ",rm:" + folder + ",kill,train:3,local,digest");
  CHECK(lines[6].substr(5) == lines[7].substr(6));
}

TEST_CASE("trainer: shut down it says so, whatever is called, also in the middle of a call") {
  Target target;
  CHECK(run_with_fault(
            target, with(kShort, {{"calls", "shutdown_soon,train,train,load:" +
                                                target.path().string() + ",local,digest,shutdown"},
                                  {"fault", "slow"},
                                  {"at", "forward"},
                                  {"rank", "1"},
                                  {"step", "5"}})) == 0);
  const auto lines = numbers(target);
  REQUIRE(lines.size() == 7);
  for (const auto i : {1u, 2u, 4u, 5u}) check_has(lines[i], "the trainer was shut down");
}

TEST_CASE("trainer: eight at once on one machine train, and give the same bits") {
  const auto lines =
      lines_of(with(kShort, {{"trainers", "8"}, {"samples", "64"}, {"cpus", "8"}}), "train,train");
  REQUIRE(lines.size() == 16);
  for (std::size_t i = 0; i < 16; ++i) CHECK(lines[i] == lines[i / 8 * 8]);
}

TEST_CASE("trainer: what a rank throws reaches the caller by itself, not by a time-out") {
  for (const char* fault : {"throw", "throw_number"}) {
    Target target;
    CHECK(run_with_fault(target, with(kShort, {{"calls", "train:1,train,train"},
                                               {"fault", fault},
                                               {"at", "forward"},
                                               {"rank", "1"},
                                               {"step", "2"}})) == 0);
    const auto lines = numbers(target);
    REQUIRE(lines.size() == 3);
    check_has(lines[1], "user code: rank 1: ");
    check_has(lines[2], " ok ");
    CHECK(first_number(target.errors(), "\ntrain took ") < 2);
  }
}

TEST_CASE("trainer: a rank that ends its process is no worse than a killed one; forking is none") {
  const auto expected = lines_of(kShort, "train,digest");
  for (const char* fault : {"abort", "exit", "fork"}) {
    CAPTURE(fault);
    Target target;
    CHECK(run_with_fault(target, with(kShort, {{"calls", "train,digest"},
                                               {"fault", fault},
                                               {"at", "forward"},
                                               {"rank", "1"},
                                               {"step", "5"}})) == 0);
    CHECK(numbers(target) == expected);
  }
}

TEST_CASE("trainer: setup that throws on one rank, and ranks of different parts, are told") {
  Target target;
  CHECK(run_with_fault(target, with(kShort, {{"calls", "train:1,train:1"},
                                             {"fault", "throw"},
                                             {"at", "setup"},
                                             {"rank", "1"}})) == 0);
  check_has(numbers(target)[0], "user code: rank 1: no such luck");
  check_has(numbers(target)[1], " ok ");
  Target other;
  CHECK(other.run(
            with(kShort, {{"calls", "train:1"}, {"two_models_on", "1"}, {"own_loop", "1"}})) == 0);
  check_has(numbers(other)[0],
            "model 'net', model 'extra', training data and validation data on rank 1");
}

TEST_CASE(
    "trainer: retries that are used up are an error with the cause, and the next call works") {
  Target target;
  CHECK(run_with_fault(target, with(kShort, {{"calls", "train,train,digest"},
                                             {"fault", "kill"},
                                             {"at", "step"},
                                             {"step", "3"},
                                             {"times", "3"},
                                             {"retries", "2"}})) == 0);
  const auto lines = numbers(target);
  check_has(lines.at(0), "ranks 0 to 1: killed by signal 9");
  check_has(lines.at(1), " ok ");
  CHECK(lines.at(2) == lines_of(kShort, "train,digest").at(1));
}

TEST_CASE("trainer: options that can't be are refused with a sentence") {
  const auto told = [](const Words& words) {
    Target target;
    CHECK(target.run(with(words, {{"calls", "train"}, {"cpus", "2"}})) == 0);
    CHECK(target.nothing_left());
    return numbers(target).at(0);
  };
  check_has(told({{"workers", "0"}}), "num_workers is 0");
  check_has(told({{"workers", "9"}}), "cpus");
  check_has(told({{"min_workers", "3"}}), "min_workers is 3");
  check_has(told({{"gpu", "1"}}), "gpus");
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
