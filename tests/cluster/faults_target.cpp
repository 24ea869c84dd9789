// What the tests of tests/cluster/faults_*_test.cpp start, kill and look at: one run of trainables
// that count, or misbehave as they are told. Options are words name=value.
#include "libactor/actor.hpp"
#include "libactor/init.hpp"
#include "tune/internal/messages.hpp"
#include "tune/run.hpp"
#include "tune/schedulers/asha.hpp"

#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace troupe;
using std::int64_t;
namespace fs = std::filesystem;

namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Arithmetic for so long.
void work(int64_t ms) {
  for (const auto end = now_ms() + ms; now_ms() < end;) {
  }
}

[[noreturn]] void pause_forever() {
  for (;;) ::pause();
}

/// A line in a file of the trial's folder, which is the current one.
void note(const std::string& file, const std::string& line) {
  std::ofstream(file, std::ios::app) << line << std::endl;
}

void start_grandchildren() {
  for (int i = 0; i < 2; ++i) {
    if (::fork() != 0) continue;
    ::setsid();
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
    if (i == 0) ::execlp("sleep", "sleep", "600", nullptr);
    if (::fork() == 0) pause_forever();  // an orphan when its parent ends
    pause_forever();
  }
}

/// What a step does beside its work.
void misbehave(const std::string& what, int64_t mib) {
  if (what == "throw") throw std::runtime_error("no such luck");
  if (what == "abort") std::abort();
  if (what == "segfault") {
    ::signal(SIGSEGV, SIG_DFL);  // the address sanitizer's handler would exit(1)
    ::raise(SIGSEGV);
  }
  if (what == "exit") std::exit(0);
  if (what == "kill") ::raise(SIGKILL);
  if (what == "oom")
    for (;;) {
      constexpr std::size_t bytes = 8 << 20;
      void* more =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (more == MAP_FAILED) pause_forever();
      std::memset(more, 1, bytes);
      ::poll(nullptr, 0, 5);  // an innocent neighbour shall not be the kernel's choice
    }
  if (what == "print") {
    std::string lines;
    for (int i = 0; i < 1024; ++i) lines += std::string(1023, 'x') + "\n";
    for (int64_t i = 0; i < mib; ++i) std::fwrite(lines.data(), 1, lines.size(), stdout);
  }
  if (what == "grandchildren") {
    start_grandchildren();
    std::abort();
  }
  if (what == "stubborn") {
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
    note("waiting", std::to_string(::getpid()));
    pause_forever();
  }
  if (what == "cut")  // no way to its owner any more
    for (int fd = 3; fd < 256; ++fd) ::shutdown(fd, SHUT_RDWR);
  if (what == "wait" || what == "cut") {
    note("waiting", std::to_string(::getpid()));
    pause_forever();
  }
}

/// Counts. `hash` shows an iteration that was left out or done twice; `score` is better the larger
/// `rate` is.
class Counter final : public tune::Trainable {
 public:
  void setup(const tune::Config& config) override {
    rate_ = config.get<double>("rate");
    step_ms_ = config.get<int64_t>("step_ms");
    at_ = config.get<int64_t>("at");
    what_ = config.get<std::string>("what");
    repeat_ = config.get<bool>("repeat");
    mib_ = config.get<int64_t>("mib");
    const auto who = config.get<int64_t>("who");
    chosen_ = who < 0 || std::stoll(context().id().substr(context().id().size() - 5)) == who;
    note("starts", std::to_string(::getpid()) + " " + std::to_string(now_ms()));
  }

  tune::Metrics step() override {
    work(step_ms_);
    ++count_;
    hash_ = (hash_ * 31 + count_) % 1'000'000'007;
    if (chosen_ && count_ == at_ && (repeat_ || !fs::exists("misbehaved"))) {
      note("misbehaved", what_);
      misbehave(what_, mib_);
    }
    return {{"count", count_}, {"hash", hash_}, {"score", rate_ * double(count_)}};
  }

  void save_checkpoint(tune::CheckpointWriter& out) override {
    out.integer("count", count_);
    out.integer("hash", hash_);
  }
  void load_checkpoint(const tune::CheckpointReader& in) override {
    count_ = in.integer("count");
    hash_ = in.integer("hash");
    note("loaded", std::to_string(count_));
  }

 private:
  double rate_ = 0;
  int64_t step_ms_ = 0, at_ = 0, mib_ = 0, count_ = 0, hash_ = 0;
  std::string what_;
  bool repeat_ = false, chosen_ = false;
};

/// The same as a function.
void count(tune::Session& session, const tune::Config& config) {
  int64_t count = 0, hash = 0;
  if (const auto* from = session.checkpoint()) {
    count = from->integer("count");
    hash = from->integer("hash");
  }
  note("starts", std::to_string(::getpid()) + " " + std::to_string(now_ms()));
  tune::Metrics metrics;
  do {
    work(config.get<int64_t>("step_ms"));
    ++count;
    hash = (hash * 31 + count) % 1'000'000'007;
    session.save_checkpoint([&](tune::CheckpointWriter& out) {
      out.integer("count", count);
      out.integer("hash", hash);
    });
    metrics = {
        {"count", count}, {"hash", hash}, {"score", config.get<double>("rate") * double(count)}};
  } while (session.report(metrics));
}

/// Kills the scheduler's actor after the n-th result.
class SchedulerKiller final : public tune::Callback {
 public:
  SchedulerKiller(caf::actor_system& system, int64_t at) : system_(system), at_(at) {}

  void on_trial_result(const tune::TrialSnapshot&, const tune::TrialResult&) override {
    if (++results_ != at_) return;
    using namespace tune::internal;
    const auto experiment = system_.registry().get<caf::actor>(experiment_atom::value);
    system_.spawn([experiment](caf::event_based_actor* self) {
      self->request(experiment, std::chrono::seconds(10), status_atom_v)
          .then([self](const caf::actor& scheduler,
                       const caf::actor&) { self->send_exit(scheduler, caf::exit_reason::kill); },
                [](const caf::error&) { std::fprintf(stderr, "no scheduler to kill\n"); });
    });
  }

 private:
  caf::actor_system& system_;
  int64_t at_, results_ = 0;
};

/// The words name=value.
class Words {
 public:
  Words(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto at = word.find('=');
      words_[word.substr(0, at)] = at == std::string::npos ? "" : word.substr(at + 1);
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto at = words_.find(name);
    return at == words_.end() ? otherwise : at->second;
  }
  int64_t number(const std::string& name, int64_t otherwise) const {
    return std::stoll(text(name, std::to_string(otherwise)));
  }

 private:
  std::map<std::string, std::string> words_;
};

tune::Resume resume_of(const std::string& word) {
  if (word == "yes") return tune::Resume::yes;
  if (word == "no") return tune::Resume::no;
  if (word == "errored_only") return tune::Resume::errored_only;
  if (word == "restart_errored") return tune::Resume::restart_errored;
  return tune::Resume::automatic;
}

tune::RunOptions options_of(const Words& words) {
  const auto max_t = words.number("max_t", 10);
  tune::RunOptions options{
      .name = words.text("name", "run"),
      .metric = "score",
      .mode = tune::Mode::max,
      .config = {{"rate", tune::uniform(0.0, 1.0)},
                 {"step_ms", words.number("step_ms", 1)},
                 {"at", words.number("at", 3)},
                 {"who", words.number("who", -1)},
                 {"what", words.text("what", "")},
                 {"mib", words.number("mib", 0)},
                 {"repeat", words.number("repeat", 0) != 0}},
      .stop = {{"training_iteration", double(max_t)}},
      .step_timeout = std::chrono::milliseconds(words.number("step_timeout_ms", 0)),
      .num_samples = words.number("num_samples", 1),
      .seed = static_cast<std::uint64_t>(words.number("seed", 7)),
      .checkpoint_freq = words.number("checkpoint_freq", 1),
      .max_failures = words.number("max_failures", 0),
      .max_infrastructure_failures = words.number("max_infrastructure_failures", 3),
      .resume = resume_of(words.text("resume", "automatic")),
      .local_dir = words.text("folder", "."),
      .log_to_driver = words.number("log_to_driver", 0) != 0,
      .verbose = static_cast<int>(words.number("verbose", 1)),
  };
  if (words.text("scheduler", "fifo") == "asha")
    options.scheduler =
        tune::ASHAScheduler({.max_t = double(max_t), .grace_period = 1, .reduction_factor = 2});
  Resources each;
  each.memory_bytes = words.number("memory_mib", 0) << 20;
  options.resources_per_trial = each;
  return options;
}

int run_once(Cluster& cluster, const Words& words, tune::RunOptions options) {
  if (const auto at = words.number("kill_scheduler_at", 0); at > 0)
    options.callbacks.push_back(std::make_shared<SchedulerKiller>(actor_system(cluster), at));
  const auto analysis = words.text("trainable", "class") == "function"
                            ? tune::run<&count>(cluster, options)
                            : tune::run<Counter>(cluster, options);
  if (!analysis) return fail(analysis.error());
  std::printf("ended\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::atomic<bool> there = false;
  if (std::getenv("TROUPE_TEST_EARLY_THREAD")) {
    std::thread([&] {
      there = true;
      pause_forever();
    }).detach();
    while (!there) std::this_thread::yield();
  }
  auto cluster = init(argc, argv);
  const Words words(argc, argv);
  if (words.number("no_run", 0) != 0) return 0;
  auto options = options_of(words);
  int code = run_once(cluster, words, options);
  for (int64_t i = 1; code == 0 && i < words.number("runs", 1); ++i) {
    options.name = words.text("name", "run") + "_" + std::to_string(i);
    code = run_once(cluster, words, options);
  }
  return code;
}
