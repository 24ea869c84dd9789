// What a step costs that is taken together: a convolution net and a 10-million-parameter MLP (the
// models and batches of the table in sgd/README.md), two ranks in one process, beside
//   - the same two ranks that exchange nothing,
//   - Python's DistributedDataParallel over Gloo, with the same allocator setting,
//   - one process with two threads and the batch of both,
//   - for one rank: the bare LibTorch loop.
// Runs of each kind follow each other in turn, and what is printed is the ratio of medians.
// --quick: alive or not, no figures.
#include "sgd/sgd.hpp"
#include "tools/bench/bench.hpp"

#include "libactor/init.hpp"
#include "libactor/internal/process.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

using namespace troupe;
using bench::median;

namespace {

torch::nn::Sequential convolution_net() {
  using namespace torch::nn;
  return Sequential(Conv2d(1, 32, 3), ReLU(), Conv2d(32, 64, 3), ReLU(), MaxPool2d(2), Flatten(),
                    Linear(9216, 128), ReLU(), Linear(128, 10));
}

torch::nn::Sequential mlp() {
  using namespace torch::nn;
  return Sequential(Linear(1024, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 2048),
                    ReLU(), Linear(2048, 10));
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class BenchOperator final : public sgd::TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    const bool convolution = config.get<std::string>("model") == "conv";
    const auto batch = config.get<std::int64_t>("batch");
    model_ = convolution ? convolution_net() : mlp();
    register_components({
        .model = model_,
        .optimizer =
            torch::optim::SGD(model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        .criterion = torch::nn::CrossEntropyLoss(),
    });
    for (int i = 0; i < 8; ++i)
      batches_.push_back(
          {{convolution ? torch::randn({batch, 1, 28, 28}) : torch::randn({batch, 1024})},
           torch::randint(10, {batch}, torch::kInt64)});
    register_data({.dataset = {batches_[0].features, batches_[0].target}});
  }

  /// Median seconds of a step.
  template <class Step>
  tune::Metrics time(Step&& step) {
    const auto steps = config().get<int>("steps");
    std::vector<double> times;
    for (int i = 0; i < steps + 3; ++i) {
      barrier();
      const auto begun = now_s();
      step(batches_[static_cast<std::size_t>(i) % 8]);
      if (i >= 3) times.push_back(now_s() - begun);
    }
    return {{"step_s", median(times)}};
  }

  /// As `train_batch` does it.
  tune::Metrics together() {
    return time([this](const sgd::Batch& batch) { (void)train_batch(batch, {}); });
  }
  tune::Metrics apart() {
    const auto guard = no_sync();
    return time([this](const sgd::Batch& batch) { bare_step(batch); });
  }
  tune::Metrics bare() {
    return time([this](const sgd::Batch& batch) { bare_step(batch); });
  }

 private:
  void bare_step(const sgd::Batch& batch) {
    auto& sgd = optimizer();
    sgd.zero_grad();
    const auto loss = criterion()(model_->forward(batch.features[0]), batch.target);
    loss.backward();
    sgd.step();
    (void)loss.item<double>();
  }

  torch::nn::Sequential model_{nullptr};
  std::vector<sgd::Batch> batches_;
};

tune::Metrics together(BenchOperator& op) { return op.together(); }
tune::Metrics apart(BenchOperator& op) { return op.apart(); }
tune::Metrics bare(BenchOperator& op) { return op.bare(); }

using Trainer = sgd::TorchTrainer<BenchOperator>;

/// The slowest rank's median: the others waited for it.
double slowest(const Result<std::vector<tune::Metrics>>& ranks) {
  double worst = 0;
  for (const auto& rank : unwrap(ranks)) worst = std::max(worst, *rank.number("step_s"));
  return worst;
}

/// Python's two processes, by tools/bench/ddp_peer.py; 0: there is no PyTorch for it.
double python_step_s(const std::string& model, std::int64_t batch, int steps) {
  const auto script = std::string(TROUPE_BENCH_FOLDER) + "/ddp_peer.py";
  const Fd out(::memfd_create("ddp_peer", MFD_CLOEXEC));
  const auto started =
      internal::spawn({.executable = "/usr/bin/python3",
                       .arguments = {"/usr/bin/python3", script,  // it starts itself again
                                     model, std::to_string(batch), std::to_string(steps)},
                       .environment = {{"OMP_NUM_THREADS", "1"},
                                       {"OPENBLAS_NUM_THREADS", "1"},
                                       {"MALLOC_MMAP_THRESHOLD_", "1073741824"},
                                       {"MALLOC_TRIM_THRESHOLD_", "4294967296"}},
                       .descriptors = {{out.value(), STDOUT_FILENO}}});
  if (!started) return 0;
  const internal::Process python(*started);
  if (!python.wait(std::chrono::minutes(5))) python.signal(SIGKILL);
  char text[64] = {};
  if (::pread(out.value(), text, sizeof text - 1, 0) <= 0) return 0;
  return std::atof(text);
}

struct Kind {
  const char* model;
  std::int64_t batch;
  double python_target;
};

}  // namespace

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);
  const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
  if (!quick && !bench::optimised()) return 2;
  const int rounds = quick ? 1 : 5, steps = quick ? 2 : 20;

  for (const auto& kind : {Kind{"conv", 64, 1.1}, Kind{"mlp", 64, 1.4}}) {
    const auto options = [&](int workers, int threads, std::int64_t batch) {
      return sgd::TorchTrainerOptions{
          .num_workers = workers,
          .num_cpus_per_worker = double(threads),
          .config = {{"model", kind.model}, {"batch", batch}, {"steps", steps}},
          .snapshots = false,
          .verbose = 0};
    };
    std::vector<double> two, two_apart, python, one, one_bare, one_process;
    double hidden = 0;
    for (int round = 0; round < rounds; ++round) {
      {
        Trainer trainer(cluster, options(2, 1, kind.batch));
        two.push_back(slowest(trainer.apply_all_operators<&together>()));
        two_apart.push_back(slowest(trainer.apply_all_operators<&apart>()));
        const auto profile = unwrap(trainer.train({.num_steps = 8, .profile = true}));
        hidden = profile.number("profile/exchange_hidden_fraction").value_or(0);
      }
      if (const double s = python_step_s(kind.model, kind.batch, steps); s > 0) python.push_back(s);
      {
        Trainer trainer(cluster, options(1, 1, kind.batch));
        one.push_back(slowest(trainer.apply_all_operators<&together>()));
        one_bare.push_back(slowest(trainer.apply_all_operators<&bare>()));
      }
      Trainer trainer(cluster, options(1, 2, 2 * kind.batch));
      one_process.push_back(slowest(trainer.apply_all_operators<&bare>()));
    }
    if (quick) continue;
    const double samples = 2.0 * double(kind.batch);
    std::printf(
        "%s, batch %lld a rank, ms a step (samples/s): two ranks %.2f (%.0f), without "
        "exchange %.2f, one rank %.2f, bare loop %.2f\n",
        kind.model, static_cast<long long>(kind.batch), median(two) * 1e3, samples / median(two),
        median(two_apart) * 1e3, median(one) * 1e3, median(one_bare) * 1e3);
    bench::print_figure(std::string(kind.model) + ": two ranks, of the same without exchange",
                        100 * median(two_apart) / median(two), "%", 97, true);
    if (python.empty())
      std::puts("no python3-torch: no comparison with Python's DistributedDataParallel");
    else
      bench::print_figure(std::string(kind.model) + ": two ranks, of Python DDP over Gloo",
                          median(python) / median(two), "times", kind.python_target, true);
    bench::print_figure(std::string(kind.model) + ": one rank, time over the bare loop",
                        100 * (median(one) / median(one_bare) - 1), "% more", 1, false);
    std::printf(
        "%s: two ranks, of one process with two threads and the double batch: %.2f times; "
        "%.0f %% of the exchange hidden behind backward\n",
        kind.model, median(one_process) / median(two), 100 * hidden);
  }
  return 0;
}
