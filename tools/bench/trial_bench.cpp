// What a trial costs: isolated trials a second beside GNU parallel starting the same LibTorch
// program, results a second through the experiment, and whether 10,000 trials stay as cheap as the
// first 1,000. --quick: alive or not, no figures.
#include "libactor/init.hpp"
#include "sgd/sgd.hpp"
#include "tune/run.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/bench.hpp"

using namespace troupe;

namespace {

/// The least that a LibTorch trial does: a net, forward, backward, one step.
double train_a_little() {
  torch::nn::Linear net(10, 10);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto loss = net(torch::ones({4, 10})).square().mean();
  loss.backward();
  sgd.step();
  return loss.item<double>();
}

class OneStep final : public tune::Trainable {
 public:
  tune::Metrics step() override { return {{"loss", train_a_little()}}; }
};

/// As many results as it is asked for, each worth nothing.
void chatter(tune::Session& session, const tune::Config& config) {
  const auto count = config.get<std::int64_t>("results");
  for (std::int64_t i = 0; i < count; ++i)
    if (!session.report({{"loss", 1.0 / double(i + 1)}, {"accuracy", 0.5}})) return;
}

std::filesystem::path g_folder;  // of the results; removed at the end

tune::RunOptions options(const std::string& name) {
  static int runs = 0;
  return {.name = name + "_" + std::to_string(++runs),
          .seed = 1,
          .local_dir = g_folder,
          .log_to_driver = false,
          .verbose = 0};
}

double isolated_trials_per_second(Cluster& cluster, std::int64_t count) {
  auto run = options("isolated");
  run.stop = {{"training_iteration", 1}};
  run.num_samples = count;
  const bench::Stopwatch watch;
  unwrap(tune::run<OneStep>(cluster, run));
  return double(count) / watch.seconds();
}

/// The same program once a trial, started by GNU parallel on as many cores; each writes its row to
/// a file.
std::optional<double> parallel_trials_per_second(const char* self, int count) {
  std::vector<std::string> words = {"parallel",
                                    "--will-cite",
                                    "-j",
                                    std::to_string(sysconf(_SC_NPROCESSORS_ONLN)),
                                    self,
                                    "--one",
                                    (g_folder / "parallel").string() + "_{}",
                                    ":::"};
  for (int i = 0; i < count; ++i) words.push_back(std::to_string(i));
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const bench::Stopwatch watch;
  pid_t pid = 0;
  if (posix_spawnp(&pid, "parallel", nullptr, nullptr, argv.data(), environ) != 0)
    return std::nullopt;
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return count / watch.seconds();
}

double results_per_second(Cluster& cluster, std::int64_t trials, std::int64_t results_each) {
  auto run = options("results");
  run.config = {{"results", results_each}};
  run.num_samples = trials;
  run.resources_per_trial = Resources{.cpus = cluster.total().cpus.units() / double(trials)};
  const bench::Stopwatch watch;
  unwrap(tune::run<&chatter>(cluster, run));
  return double(trials * results_each) / watch.seconds();
}

std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  in >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

/// Looks at the clock and at this process's memory after every thousandth trial.
class Milestones final : public tune::Callback {
 public:
  explicit Milestones(std::int64_t every) : every_(every) {}
  void on_trial_complete(const tune::TrialSnapshot&) override {
    if (++count_ % every_ != 0) return;
    seconds.push_back(watch_.seconds());
    bytes.push_back(resident_bytes());
  }
  std::vector<double> seconds;
  std::vector<std::int64_t> bytes;

 private:
  std::int64_t every_;
  std::int64_t count_ = 0;
  bench::Stopwatch watch_;
};

void many_trials(Cluster& cluster, std::int64_t count) {
  const auto tenth = count / 10;
  auto marks = std::make_shared<Milestones>(tenth);
  auto run = options("many");
  run.config = {{"results", 1}, {"lr", tune::uniform(0, 1)}};
  run.num_samples = count;
  run.callbacks = {marks};
  unwrap(tune::run<&chatter>(cluster, run));
  const auto& at = marks->seconds;
  const double first = at[0], last = at[9] - at[8];
  std::printf("%lld trials in %.1f s: the first tenth %.2f s, the last %.2f s\n",
              static_cast<long long>(count), at[9], first, last);
  bench::print_figure("cost of the last tenth against the first", last / first, "", 1.3, false);
  bench::print_figure("memory kept for each finished trial",
                      double(marks->bytes[9] - marks->bytes[1]) / double(count - 2 * tenth),
                      "bytes", 2048, false);
}

void compare_isolated(Cluster& cluster, const char* self, bool quick) {
  std::vector<double> ours, peers;
  for (int round = 0; round < (quick ? 1 : 3); ++round) {
    ours.push_back(isolated_trials_per_second(cluster, quick ? 4 : 300));
    if (auto rate = parallel_trials_per_second(self, quick ? 2 : 20)) peers.push_back(*rate);
  }
  bench::print_figure("isolated LibTorch trials", bench::median(ours), "trials/s", 100, true);
  if (peers.empty()) {
    std::puts("GNU parallel is not here (Debian: parallel): no comparison");
    return;
  }
  std::printf("%-58s %12.2f trials/s\n", "the same program by GNU parallel", bench::median(peers));
  bench::print_figure("ratio of the medians", bench::median(ours) / bench::median(peers), "x", 20,
                      true);
}

void count_results(Cluster& cluster, bool quick) {
  std::vector<double> rates;
  for (int round = 0; round < (quick ? 1 : 3); ++round)
    rates.push_back(results_per_second(cluster, 8, quick ? 100 : 20'000));
  bench::print_figure("results through the experiment, with CSV and JSON", bench::median(rates),
                      "results/s", 20'000, true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--one") == 0) {  // what GNU parallel starts
    std::ofstream(argv[2]) << "{\"loss\": " << train_a_little() << "}\n";
    return 0;
  }
  auto cluster = init(argc, argv);
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  if (!quick && !bench::optimised()) return 2;
  char folder[] = "/tmp/troupe_trial_bench_XXXXXX";
  if (!::mkdtemp(folder)) return 2;
  g_folder = folder;

  const auto wanted = [&](const char* part) {
    return argc < 2 || quick || std::strcmp(argv[1], part) == 0;
  };
  if (wanted("--isolated")) compare_isolated(cluster, argv[0], quick);
  if (wanted("--results")) count_results(cluster, quick);
  if (wanted("--many")) many_trials(cluster, quick ? 20 : 10'000);
  std::filesystem::remove_all(g_folder);
}
