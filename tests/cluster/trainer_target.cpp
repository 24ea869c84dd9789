// What tests/cluster/trainer_test.cpp starts and looks at: a TorchTrainer whose ranks die or
// misbehave where they are told, once. Options are words name=value.
#include "libactor/init.hpp"
#include "sgd/sgd.hpp"
#include "sgd/torch_trainer.hpp"
#include "tune/run.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include <torch/torch.h>

using namespace troupe;

namespace {

std::map<std::string, std::string> words;

std::string word(const std::string& name, const std::string& fallback = {}) {
  const auto found = words.find(name);
  return found == words.end() ? fallback : found->second;
}
int number(const std::string& name, int fallback) {
  return std::stoi(word(name, std::to_string(fallback)));
}

struct NetImpl : torch::nn::Module {
  NetImpl(bool noisy, std::int64_t width) : noisy(noisy) {
    fc1 = register_module("fc1", torch::nn::Linear(20, width));
    if (noisy) norm = register_module("norm", torch::nn::BatchNorm1d(width));
    fc2 = register_module("fc2", torch::nn::Linear(width, 4));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = fc1(x);
    if (noisy) x = torch::dropout(norm(x), 0.2, is_training());
    return torch::log_softmax(fc2(torch::relu(x)), 1);
  }
  bool noisy;
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

class Op final : public sgd::TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    fault("setup", 0);
    std::int64_t width = 32;
    if (config.get_or("wider_on", -1) == rank()) width = 33;
    Net net(config.get<bool>("noisy"), width);
    register_components({
        .model = net,
        .optimizer =
            torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)),
        .criterion = torch::nn::NLLLoss(),
        .scheduler = sgd::StepLR({.step_size = 1, .gamma = 0.9}),
        .scheduler_step = sgd::SchedulerStep::epoch,
    });
    torch::manual_seed(7);
    const auto samples = config.get<int>("samples");
    const auto x = torch::randn({samples, 20});
    const auto y = (x.narrow(1, 0, 4) * 2 + 0.3 * torch::randn({samples, 4})).argmax(1);
    register_data({.dataset = {{x}, y}, .options = {.batch_size = 8}},
                  {.dataset = {{x}, y}, .options = {.batch_size = 32, .shuffle = false}});
  }

  tune::Metrics train_batch(const sgd::Batch& batch, const sgd::BatchInfo& info) override {
    const auto step = info.global_step;
    fault("forward", step);
    if (is_my_fault("backward", step)) {
      auto copy = batch;
      copy.features[0] = copy.features[0].clone().set_requires_grad(true);
      copy.features[0].register_hook([this, step](torch::Tensor) { fault("backward", step); });
      return TrainingOperator::train_batch(copy, info);
    }
    if (is_my_fault("elsewhere", step) && once()) {
      auto other = torch::ones({3});
      all_reduce(other);
    }
    auto metrics = TrainingOperator::train_batch(batch, info);
    fault("step", step);
    return metrics;
  }

  void state_dict(CheckpointWriter& out) override {
    fault("snapshot", global_step());
    out.integer("steps", global_step());
  }
  void load_state_dict(const CheckpointReader& in) override { (void)in.integer("steps"); }

  double digest() {
    double sum = 0;
    for (const auto& p : model().module().parameters())
      sum += p.to(torch::kFloat64).abs().sum().item<double>();
    for (const auto& b : model().module().buffers())
      sum += b.to(torch::kFloat64).abs().sum().item<double>();
    return sum;
  }

 private:
  bool is_my_fault(const std::string& where, std::int64_t step) const {
    return config().get<std::string>("fault_at") == where &&
           config().get<int>("fault_rank") == rank() && config().get<int>("fault_step") <= step;
  }
  /// Whether it is the first process to come here.
  bool once() const {
    const int made = ::open(config().get<std::string>("fault_file").c_str(),
                            O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made >= 0) ::close(made);
    return made >= 0;
  }
  void fault(const std::string& where, std::int64_t step) {
    if (!is_my_fault(where, step) || !once()) return;
    const auto what = config().get<std::string>("fault");
    std::fprintf(stderr, "fault %s at %s of step %lld\n", what.c_str(), where.c_str(),
                 static_cast<long long>(step));
    if (what == "kill") ::kill(::getpid(), SIGKILL);
    if (what == "stop") ::kill(::getpid(), SIGSTOP);
    if (what == "throw") throw std::runtime_error("no such luck");
    // tidy: sleep: being slow is what this rank is told
    if (what == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  }
};

sgd::TorchTrainerOptions options_of_words() {
  return {
      .num_workers = number("workers", 2),
      .num_cpus_per_worker = 0.25,
      .config = {{"noisy", word("noisy", "1") == "1"},
                 {"samples", number("samples", 400)},
                 {"wider_on", number("wider_on", -1)},
                 {"fault", word("fault", "none")},
                 {"fault_at", word("at", "nowhere")},
                 {"fault_rank", number("rank", 0)},
                 {"fault_step", number("step", 0)},
                 {"fault_file", word("file", "/dev/null/none")}},
      .seed = 5,
      .ranks_per_process = number("per_process", 0),
      .min_workers = number("min_workers", 0),
      .elastic = word("elastic") == "1",
      .snapshots = word("snapshots", "1") == "1",
  };
}

/// The same under Tune: two trials, one after the other.
int search(Cluster& cluster) {
  const auto analysis =
      tune::run(cluster, sgd::TorchTrainer<Op>::as_trainable(options_of_words()),
                tune::RunOptions{.name = "run",
                                 .metric = "val_loss",
                                 .mode = tune::Mode::min,
                                 .stop = {{"training_iteration", number("epochs", 3)}},
                                 .num_samples = 2,
                                 .max_concurrent_trials = 1,
                                 .seed = 3,
                                 .checkpoint_freq = 1,
                                 .max_failures = number("retries", 3),
                                 .local_dir = word("folder"),
                                 .verbose = 0});
  if (!analysis) return fail(analysis.error());
  for (const auto& trial : analysis->trials()) {
    std::printf("%s", trial.state == tune::TrialState::terminated ? "ended" : "failed");
    for (const char* key : {"training_iteration", "epoch", "train_loss", "train_num_samples",
                            "val_loss", "val_num_samples"})
      std::printf(" %s=%.17g", key, trial.last_result.number(key).value_or(-1));
    std::printf("\n");
  }
  return 0;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

tune::Metrics digest(Op& op) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", op.digest());
  return {{"digest", text}, {"pid", static_cast<std::int64_t>(::getpid())}};
}

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    words[text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (word("mode") == "tune") return search(cluster);
  sgd::TorchTrainer<Op> trainer(cluster, options_of_words());
  const int retries = number("retries", 3);
  int failures = 0;
  for (int epoch = 0; epoch < number("epochs", 3); ++epoch) {
    const auto begun = now_s();
    const auto result = trainer.train({.max_retries = retries});
    if (!result) {
      std::printf("error after %.3f s: %s\n", now_s() - begun, describe(result.error()).c_str());
      std::fflush(stdout);
      if (++failures > 1 || word("go_on") != "1") return 1;
      --epoch;
      continue;
    }
    std::printf("epoch %d: loss=%.17g samples=%lld seconds=%.3f\n", epoch,
                result->number("train_loss").value_or(-1),
                static_cast<long long>(result->number("num_samples").value_or(-1)),
                now_s() - begun);
    std::fflush(stdout);
  }
  const auto validation = trainer.validate();
  if (!validation) return fail(validation.error());
  std::printf("val_loss=%.17g val_samples=%lld\n", validation->number("val_loss").value_or(-1),
              static_cast<long long>(validation->number("num_samples").value_or(-1)));
  const auto digests = trainer.apply_all_operators<&digest>();
  if (!digests) return fail(digests.error());
  for (const auto& rank : *digests)
    std::printf("digest=%s\n", rank.find("digest")->as_text().c_str());
  if (const auto folder = word("save"); !folder.empty()) {
    if (auto saved = trainer.save(folder); !saved) return fail(saved.error());
    std::printf("saved\n");
  }
  return 0;
}
