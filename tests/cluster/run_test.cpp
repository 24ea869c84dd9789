// tune::run with real processes: what a user sees of it, and what it refuses. Faults are in
// faults_test.cpp.
#include "tune/run.hpp"

#include "libactor/init.hpp"
#include "tests/support/before_tests.hpp"
#include "tests/support/temp_folder.hpp"
#include "tune/schedulers/asha.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>

#include <sys/stat.h>

using namespace troupe;
using namespace std::chrono_literals;
using std::int64_t;

/// The driver's processes come back here as zygote and workers, and stay.
void before_tests(int& argc, char** argv) { (void)init(argc, argv); }

namespace {

Cluster cluster_of(double cpus, int gpus = 0) {
  int argc = 0;
  char* argv[] = {nullptr};
  return unwrap(try_init(argc, argv, {.cpus = cpus, .gpus = gpus}));
}

/// x halves every step.
void halve(tune::Session& session, const tune::Config& config) {
  for (double x = config.get<double>("x"); session.report({{"loss", x}}); x /= 2) {
  }
}

class Counts final : public tune::Trainable {
 public:
  void setup(const tune::Config& config) override { step_ = config.get_or("step", 1); }
  tune::Metrics step() override { return {{"count", count_ += step_}}; }
  void save_checkpoint(tune::CheckpointWriter& out) override { out.integer("count", count_); }
  void load_checkpoint(const tune::CheckpointReader& in) override { count_ = in.integer("count"); }

 private:
  int64_t step_ = 1, count_ = 0;
};

/// Its data is not there.
class Lacks final : public tune::Trainable {
 public:
  void setup(const tune::Config&) override {
    throw Exception(make_error(Errc::not_found, "the data is not at /nowhere"));
  }
  tune::Metrics step() override { return {}; }
};

class Misreads final : public tune::Trainable {
 public:
  void setup(const tune::Config& config) override { (void)config.get<int64_t>("hiden"); }
  tune::Metrics step() override { return {}; }
};

/// Works until the deadline of its step is long over.
class Slow final : public tune::Trainable {
 public:
  tune::Metrics step() override {
    while (!context().cancelled()) {
    }
    return {{"loss", 1}};
  }
};

tune::RunOptions quiet(const test::TempFolder& folder, const std::string& name = "run") {
  return {
      .name = name, .seed = 7, .local_dir = folder.path(), .log_to_driver = false, .verbose = 0};
}

std::string refusal(const Result<tune::ExperimentAnalysis>& result) {
  REQUIRE_FALSE(result);
  return describe(result.error());
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

/// How many trials had a process at the same time, at most.
class Concurrency final : public tune::Callback {
 public:
  void on_trial_start(const tune::TrialSnapshot&) override { most = std::max(most, ++now_); }
  void on_trial_complete(const tune::TrialSnapshot&) override { --now_; }
  int most = 0;

 private:
  int now_ = 0;
};

std::vector<std::string> configs_of(const tune::ExperimentAnalysis& analysis) {
  std::vector<std::string> result;
  for (const auto& trial : analysis.trials()) result.push_back(trial.config.to_json());
  return result;
}

}  // namespace

TEST_CASE("run: a class and a function are searched, and the analysis has the best config") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.metric = "loss";
  options.mode = tune::Mode::min;
  options.config = {{"x", tune::grid_search({4.0, 1.0, 2.0})}};
  options.stop = {{"training_iteration", 3}};
  const auto analysis = tune::run<&halve>(cluster, options);
  REQUIRE(analysis);
  CHECK(analysis->best_config().get<double>("x") == 1.0);
  CHECK(analysis->trials().size() == 3);
  for (const auto& trial : analysis->trials()) {
    CHECK(trial.state == tune::TrialState::terminated);
    CHECK(trial.last_result.number("training_iteration") == 3);
  }
  auto counting = quiet(folder, "counts");
  counting.config = {{"step", 2}};
  counting.stop = {{"count", 10}};
  const auto counts = tune::run<Counts>(cluster, counting);
  REQUIRE(counts);
  CHECK(counts->trials()[0].last_result.number("count") == 10);
}

TEST_CASE("run: a grid of 3 x 3 gives 9 trials, with num_samples 2 it gives 18, in Ray's order") {
  const test::TempFolder folder;
  auto cluster = cluster_of(4);
  for (const int samples : {1, 2}) {
    auto options = quiet(folder, "grid" + std::to_string(samples));
    options.config = {
        {"b", tune::grid_search({10, 20, 30})}, {"a", tune::grid_search({1, 2, 3})}, {"x", 1.0}};
    options.stop = {{"training_iteration", 1}};
    options.num_samples = samples;
    const auto analysis = tune::run<&halve>(cluster, options);
    REQUIRE(analysis);
    REQUIRE(analysis->trials().size() == std::size_t(9 * samples));
    for (std::size_t i = 0; i < analysis->trials().size(); ++i) {
      const auto& config = analysis->trials()[i].config;
      CHECK(config.get<int64_t>("a") == int64_t(i % 3) + 1);
      CHECK(config.get<int64_t>("b") == (int64_t(i / 3) % 3 + 1) * 10);
    }
  }
}

TEST_CASE("run: the same seed gives the same configs on any number of slots") {
  const test::TempFolder folder;
  std::vector<std::string> expected;
  for (const int slots : {1, 2, 4}) {
    auto cluster = cluster_of(slots);
    auto options = quiet(folder, "slots" + std::to_string(slots));
    options.config = {{"x", tune::uniform(0, 1)}, {"k", tune::choice({"a", "b", "c"})}};
    options.stop = {{"training_iteration", 1}};
    options.num_samples = 8;
    const auto analysis = tune::run<&halve>(cluster, options);
    REQUIRE(analysis);
    if (expected.empty()) expected = configs_of(*analysis);
    CHECK(configs_of(*analysis) == expected);
  }
}

TEST_CASE("run: 8 GPUs and gpus = 1 give exactly 8 trials at once") {
  const test::TempFolder folder;
  auto cluster = cluster_of(64, 8);
  auto seen = std::make_shared<Concurrency>();
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 200}};
  options.num_samples = 24;
  options.resources_per_trial = {.cpus = 1, .gpus = 1};
  options.callbacks = {seen};
  REQUIRE(tune::run<&halve>(cluster, options));
  CHECK(seen->most == 8);
}

TEST_CASE("run: max_concurrent_trials holds") {
  const test::TempFolder folder;
  auto cluster = cluster_of(8);
  auto seen = std::make_shared<Concurrency>();
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 50}};
  options.num_samples = 10;
  options.max_concurrent_trials = 3;
  options.callbacks = {seen};
  REQUIRE(tune::run<&halve>(cluster, options));
  CHECK(seen->most == 3);
}

TEST_CASE("run: a stop function, a time budget and a step time-out end what they should") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto by_function = quiet(folder, "function");
  by_function.config = {{"x", 1.0}};
  by_function.stop = tune::Stop(
      [](const std::string&, const tune::TrialResult& row) { return row.number("loss") < 0.1; });
  const auto stopped = tune::run<&halve>(cluster, by_function);
  REQUIRE(stopped);
  CHECK(stopped->trials()[0].last_result.number("training_iteration") == 5);

  auto budget = quiet(folder, "budget");
  budget.config = {{"x", 1.0}};
  budget.num_samples = -1;
  budget.time_budget = 300ms;
  const auto spent = tune::run<&halve>(cluster, budget);
  REQUIRE(spent);
  CHECK(spent->trials()[0].state == tune::TrialState::terminated);

  auto timed = quiet(folder, "timed");
  timed.step_timeout = 200ms;
  const auto slow = tune::run<Slow>(cluster, timed);
  REQUIRE(slow);
  CHECK(slow->trials()[0].state == tune::TrialState::error);
  std::ifstream in(folder.path() / "timed" / slow->trials()[0].directory / "error.txt");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CHECK(has(text, "step_timeout (0.2 s)"));
}

TEST_CASE("run: what can't be meant is told with the thing and the way out, before anything runs") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  const auto told = [&](auto&& change) {
    auto options = quiet(folder, "refused");
    options.config = {{"x", 1.0}};
    options.stop = {{"training_iteration", 1}};
    change(options);
    const auto text = refusal(tune::run<&halve>(cluster, options));
    CHECK_FALSE(std::filesystem::exists(folder / "refused"));
    return text;
  };
  CHECK(has(told([](auto& o) { o.metric = "loss"; }), "metric 'loss' is given without mode"));
  CHECK(has(told([](auto& o) { o.mode = tune::Mode::min; }), "mode is given without metric"));
  CHECK(has(told([](auto& o) { o.num_samples = 0; }), "num_samples is 0"));
  CHECK(has(told([](auto& o) { o.resources_per_trial = Resources{.gpus = 1}; }), "gpus=1"));
  CHECK(has(told([](auto& o) { o.resources_per_trial = Resources{.cpus = -1}; }), "cpus"));
  CHECK(has(told([](auto& o) {
              o.resources_per_trial = Resources{.custom = {{"licence", 1}}};
            }),
            "licence"));
  CHECK(has(told([](auto& o) { o.config = {{"lr", tune::grid_search({})}}; }), "lr"));
  CHECK(has(told([](auto& o) { o.config = {{"lr", tune::uniform(1, 0)}}; }), "uniform(1, 0)"));
  CHECK(has(told([](auto& o) { o.scheduler = tune::ASHAScheduler(); }), "metric"));
  CHECK(has(told([](auto& o) {
              o.metric = "loss";
              o.mode = tune::Mode::min;
              o.scheduler = tune::ASHAScheduler({.metric = "accuracy", .mode = tune::Mode::max});
            }),
            "accuracy"));
  CHECK(has(told([](auto& o) { o.name = "a/b"; }), "'a/b'"));
  CHECK(has(told([](auto& o) { o.name = "a\nb"; }), "'a?b' has a control character"));
  const auto usual = ::umask(0777);
  CHECK(has(told([](auto&) {}), "umask is 0777"));
  ::umask(usual);
  CHECK(has(told([](auto& o) { o.max_failures = -2; }), "max_failures is -2"));
  CHECK(has(told([](auto& o) { o.fail_fast = true, o.max_failures = 1; }), "fail_fast"));
}

TEST_CASE("run: umask 077 leaves the results to their owner") {
  const test::TempFolder folder;
  const auto usual = ::umask(0077);
  auto cluster = cluster_of(1);
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 1}};
  CHECK(tune::run<&halve>(cluster, options));
  ::umask(usual);
  struct stat status {};
  REQUIRE(::stat((folder.path() / "run" / "journal").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("run: what lies where the journal must be is named, whatever resume is") {
  const test::TempFolder folder;
  auto cluster = cluster_of(1);
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  const auto journal = folder.path() / "run" / "journal";
  std::filesystem::create_directory(journal.parent_path());
  std::string kind;
  SUBCASE("folder") { std::filesystem::create_directory(journal), kind = "a folder"; }
  SUBCASE("link") {
    std::filesystem::create_symlink("/nowhere", journal), kind = "a symbolic link";
  }
  SUBCASE("pipe") {
    REQUIRE(::mkfifo(journal.c_str(), 0600) == 0);
    kind = "a pipe";
  }
  SUBCASE("garbage") { std::ofstream(journal) << "garbage!", kind = "no journal"; }
  for (const auto resume :
       {tune::Resume::yes, tune::Resume::automatic, tune::Resume::errored_only}) {
    options.resume = resume;
    const auto text = refusal(tune::run<&halve>(cluster, options));
    CHECK(has(text, journal.string()));
    CHECK(has(text, "is " + kind));
    CHECK(has(text, "ove it away, or give this run another name"));
  }
}

TEST_CASE("run: the last status has what the scheduler says in the end") {
  struct Keeper final : tune::ProgressReporter {
    void report(const tune::StatusView& view, bool final) override {
      if (final) text = view.scheduler;
    }
    std::string text;
  };
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  auto keeper = std::make_shared<Keeper>();
  options.metric = "loss";
  options.mode = tune::Mode::min;
  options.config = {{"x", tune::grid_search({1.0, 2.0, 3.0, 4.0})}};
  options.scheduler = tune::ASHAScheduler({.max_t = 8, .grace_period = 2, .reduction_factor = 2});
  options.progress_reporter = keeper;
  REQUIRE(tune::run<&halve>(cluster, options));
  CHECK(has(keeper->text, "Iter 2.000: "));
  CHECK_FALSE(has(keeper->text, "Iter 2.000: None"));
  CHECK_FALSE(has(keeper->text, "num_stopped=0"));
}

TEST_CASE("run: a local_dir that is a file is named, with the way out") {
  const test::TempFolder folder;
  std::ofstream(folder / "file") << "x";
  auto cluster = cluster_of(1);
  auto options = quiet(folder);
  options.local_dir = folder / "file";
  const auto text = refusal(tune::run<&halve>(cluster, options));
  CHECK(has(text, (folder / "file").string()));
  CHECK(has(text, "local_dir"));
}

TEST_CASE("run: a local_dir that can't be looked at is named, with or without a name for the run") {
  const test::TempFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  auto cluster = cluster_of(1);
  for (const std::string name : {"", "run"}) {
    auto options = quiet(folder, name);
    options.local_dir = folder / "loop";
    const auto text = refusal(tune::run<&halve>(cluster, options));
    CHECK(has(text, (folder / "loop").string()));
    CHECK(has(text, "choose another folder by local_dir"));
  }
}

TEST_CASE("run: a config key that is not there ends the run, with the nearest name") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.config = {{"hidden", 128}};
  options.num_samples = 50;
  const auto text = refusal(tune::run<Misreads>(cluster, options));
  CHECK(has(text, "config has no key 'hiden'; did you mean 'hidden'?"));
}

TEST_CASE("run: one folder has one run; another program does not go on with it") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 2}};
  options.resume = tune::Resume::yes;
  CHECK(has(refusal(tune::run<&halve>(cluster, options)), "there is no run in"));
  options.resume = tune::Resume::automatic;
  REQUIRE(tune::run<&halve>(cluster, options));
  options.resume = tune::Resume::no;
  CHECK(has(refusal(tune::run<&halve>(cluster, options)), "holds a run already"));
  options.resume = tune::Resume::yes;
  CHECK(has(refusal(tune::run<Counts>(cluster, options)), "trainable"));
  auto other = options;
  other.config = {{"x", 2.0}};
  CHECK(has(refusal(tune::run<&halve>(cluster, other)), "search space"));
  const auto again = tune::run<&halve>(cluster, options);  // complete: nothing is left to do
  REQUIRE(again);
  CHECK(again->trials().size() == 1);
}

TEST_CASE("run: data that is not there ends the run with its sentence, not with 50 failed trials") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.num_samples = 50;
  CHECK(has(refusal(tune::run<Lacks>(cluster, options)), "the data is not at /nowhere"));
}

TEST_CASE("run: trials without a journal are not mixed with new ones") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 1}};
  REQUIRE(tune::run<&halve>(cluster, options));
  options.resume = tune::Resume::automatic;
  for (const bool gone : {false, true}) {
    if (gone)
      std::filesystem::remove(folder.path() / "run" / "journal");
    else
      std::filesystem::resize_file(folder.path() / "run" / "journal", 0);
    CHECK(has(refusal(tune::run<&halve>(cluster, options)), "its journal is gone or empty"));
  }
}

TEST_CASE("run: a resume with another seed is refused") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder);
  options.config = {{"x", tune::uniform(0, 1)}};
  options.stop = {{"training_iteration", 1}};
  REQUIRE(tune::run<&halve>(cluster, options));
  options.resume = tune::Resume::yes;
  options.seed = 8;
  CHECK(has(refusal(tune::run<&halve>(cluster, options)), "the seed 7, seed is 8"));
}

TEST_CASE("run: runs without a name that begin in one second have folders of their own") {
  const test::TempFolder folder;
  auto cluster = cluster_of(2);
  auto options = quiet(folder, "");
  options.config = {{"x", 1.0}};
  options.stop = {{"training_iteration", 1}};
  for (int i = 0; i < 4; ++i) REQUIRE(tune::run<&halve>(cluster, options));
}
