// What tests/cluster/trainer_test.cpp starts and looks at: a TorchTrainer whose ranks die or
// misbehave where they are told, once. Options are words name=value.
#include "libactor/init.hpp"
#include "sgd/sgd.hpp"
#include "sgd/torch_trainer.hpp"
#include "tune/run.hpp"
#include "tune/schedulers/asha.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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
    std::vector<sgd::NamedModel> models{{"net", net}};
    if (config.get_or("two_models_on", -1) == rank())
      models.push_back({"extra", torch::nn::Linear(2, 2)});
    register_components({
        .models = models,
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
    register_data({.dataset = {{x}, y}, .options = {.batch_size = config.get<int>("batch")}},
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

  /// With its own loop a state between two steps is none that anyone can go on from.
  tune::Metrics train_epoch() override {
    if (!config().get<bool>("own_loop")) return TrainingOperator::train_epoch();
    double sum = 0;
    std::int64_t count = 0;
    auto batches = train_batches();
    for (const auto& batch : batches) {
      auto noisy = batch;
      noisy.features[0] = batch.features[0] + 0.1 * torch::randn_like(batch.features[0]);
      sum += *train_batch(noisy, batches.info()).number("train_loss");
      ++count;
    }
    return {{"own_loss", sum / double(count)}, {"num_samples", count}};
  }

  tune::Metrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo& info) override {
    fault("validation", info.batch_index);
    return TrainingOperator::validate_batch(batch, info);
  }

  void check_fault(const char* where) { fault(where, global_step()); }

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
  /// Whether it is the first process to come here, or the "times"-th.
  bool once() const {
    for (int i = 0; i < config().get<int>("fault_times"); ++i) {
      const auto file = config().get<std::string>("fault_file") + (i ? std::to_string(i) : "");
      const int made = ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (made < 0) continue;
      ::close(made);
      return true;
    }
    return false;
  }
  void fault(const std::string& where, std::int64_t step) {
    if (!is_my_fault(where, step) || !once()) return;
    const auto what = config().get<std::string>("fault");
    std::fprintf(stderr, "fault %s at %s of step %lld\n", what.c_str(), where.c_str(),
                 static_cast<long long>(step));
    if (what == "kill") ::kill(::getpid(), SIGKILL);
    if (what == "stop") ::kill(::getpid(), SIGSTOP);
    if (what == "abort") std::abort();
    if (what == "exit") std::exit(0);
    if (what == "fork" && ::fork() == 0) ::_exit(0);
    if (what == "throw_number") throw 42;
    if (what == "throw") throw std::runtime_error("no such luck");
    // tidy: sleep: being slow is what this rank is told
    if (what == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  }
};

sgd::TorchTrainerOptions options_of_words(const std::string& before = {}) {
  const auto number = [&](const std::string& name, int fallback) {
    return ::number(words.contains(before + name) ? before + name : name, fallback);
  };
  return {
      .num_workers = number("workers", 2),
      .num_cpus_per_worker = 0.25,
      .use_gpu = word("gpu") == "1",
      .config = {{"noisy", word("noisy", "1") == "1"},
                 {"samples", number("samples", 400)},
                 {"batch", number("batch", 8)},
                 {"wider_on", number("wider_on", -1)},
                 {"two_models_on", number("two_models_on", -1)},
                 {"own_loop", word("own_loop") == "1"},
                 {"fault", word("fault", "none")},
                 {"fault_at", word("at", "nowhere")},
                 {"fault_rank", number("rank", 0)},
                 {"fault_step", number("step", 0)},
                 {"fault_times", number("times", 1)},
                 {"fault_file", word("file", "/dev/null/none")}},
      .seed = 5,
      .ranks_per_process = number("per_process", 0),
      .min_workers = number("min_workers", 0),
      .elastic = word("elastic") == "1",
      .snapshots = word("snapshots", "1") == "1",
  };
}

/// Takes the place of an epoch and a validation under Tune.
tune::Metrics two_steps(sgd::TorchTrainer<Op>& trainer, const sgd::TuneInfo& info) {
  auto metrics = unwrap(trainer.train({.num_steps = 2, .reduce_results = false}));
  metrics.set("iteration_told", info.iteration);
  metrics.set("val_loss", 1.0);  // what the search looks at
  return metrics;
}

/// The same under Tune: two trials, one after the other.
int search(Cluster& cluster) {
  using Trainer = sgd::TorchTrainer<Op>;
  auto trainable = word("override") == "1" ? Trainer::as_trainable<&two_steps>(options_of_words())
                                           : Trainer::as_trainable(options_of_words());
  std::optional<Resources> resources;
  if (word("resources") == "1") resources = Resources{.cpus = 1};
  tune::AnyScheduler scheduler;
  if (word("asha") == "1")
    scheduler = tune::ASHAScheduler({.max_t = 9, .grace_period = 1, .reduction_factor = 2});
  const auto analysis =
      tune::run(cluster, std::move(trainable),
                tune::RunOptions{.name = "run",
                                 .metric = "val_loss",
                                 .mode = tune::Mode::min,
                                 .stop = {{"training_iteration", number("epochs", 3)}},
                                 .num_samples = number("trials", 2),
                                 .max_concurrent_trials = 1,
                                 .scheduler = scheduler,
                                 .seed = 3,
                                 .resources_per_trial = resources,
                                 .checkpoint_freq = 1,
                                 .max_failures = number("retries", 3),
                                 .local_dir = word("folder"),
                                 .verbose = 0});
  if (!analysis) return fail(analysis.error());
  for (const auto& trial : analysis->trials()) {
    std::printf("%s", trial.state == tune::TrialState::terminated ? "ended" : "failed");
    for (const char* key : {"training_iteration", "epoch", "train_loss", "train_num_samples",
                            "val_loss", "val_num_samples", "1/num_samples", "iteration_told"})
      std::printf(" %s=%.17g", key, trial.last_result.number(key).value_or(-1));
    std::printf("\n");
  }
  return 0;
}

}  // namespace

tune::Metrics digest(Op& op) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", op.digest());
  return {{"digest", text}, {"pid", static_cast<std::int64_t>(::getpid())}};
}

tune::Metrics faulty(Op& op) {
  op.check_fault("function");
  return {};
}

tune::Metrics pid() { return {{"pid", static_cast<std::int64_t>(::getpid())}}; }

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One of "calls": its metrics, or its error. "train:3" trains 3 steps.
Result<tune::Metrics> call(sgd::TorchTrainer<Op>& trainer, const std::string& name,
                           const std::string& argument) {
  const auto nothing = [](const Result<void>& done) {
    return done ? Result<tune::Metrics>(tune::Metrics{}) : Result<tune::Metrics>(done.error());
  };
  const auto first = [](const Result<std::vector<tune::Metrics>>& ranks) {
    return ranks ? Result<tune::Metrics>(ranks->back()) : Result<tune::Metrics>(ranks.error());
  };
  const int retries = number("retries", 3);
  const int steps = argument.empty() ? 0 : std::atoi(argument.c_str());
  if (name == "train") return trainer.train({.num_steps = steps, .max_retries = retries});
  if (name == "ranks") return trainer.train({.num_steps = steps, .reduce_results = false});
  if (name == "validate") return trainer.validate({.num_steps = steps, .max_retries = retries});
  if (name == "scheduler") return nothing(trainer.update_scheduler(0.5));
  if (name == "save") return nothing(trainer.save(argument));
  if (name == "load") return nothing(trainer.load(argument));
  if (name == "function") return first(trainer.apply_all_operators<&faulty>());
  if (name == "digest") return first(trainer.apply_all_operators<&digest>());
  if (name == "kill") {
    const auto ranks = trainer.apply_all_workers<&pid>();
    if (!ranks) return ranks.error();
    ::kill(static_cast<pid_t>(ranks->front().number("pid").value_or(0)), SIGKILL);
    return tune::Metrics{};
  }
  if (name == "rm") {
    std::filesystem::remove_all(argument);
    return tune::Metrics{};
  }
  if (name == "local") {
    const auto op = trainer.get_local_operator();
    if (!op) return op.error();
    return digest(**op);
  }
  if (name == "shutdown") {
    trainer.shutdown();
    return tune::Metrics{};
  }
  if (name == "shutdown_soon") {  // in the middle of the next call, from another thread
    static std::jthread other([&trainer] {
      while (::access(word("file").c_str(), F_OK) != 0) std::this_thread::yield();
      trainer.shutdown();
    });
    return tune::Metrics{};
  }
  return make_error(Errc::bad_request, "no such call: " + name);
}

/// "calls=train:3,validate": one line each, "train:3 ok {…}" or "train:3 user code: …".
int calls(Cluster& cluster) {
  std::vector<std::unique_ptr<sgd::TorchTrainer<Op>>> trainers;
  for (int i = 0; i < number("trainers", 1); ++i)
    trainers.push_back(std::make_unique<sgd::TorchTrainer<Op>>(cluster, options_of_words()));
  std::istringstream list(word("calls"));
  for (std::string item; std::getline(list, item, ',');) {
    if (item == "new") {  // another trainer in the first one's place
      trainers.front() =
          std::make_unique<sgd::TorchTrainer<Op>>(cluster, options_of_words("next_"));
      continue;
    }
    const auto colon = item.find(':');
    const auto argument = colon == std::string::npos ? "" : item.substr(colon + 1);
    std::vector<std::string> lines(trainers.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < trainers.size(); ++i)
        threads.emplace_back([&, i] {
          const auto begun = now_s();
          auto result = call(*trainers[i], item.substr(0, colon), argument);
          if (result && result->find("pid")) result->set("pid", 0);
          lines[i] = result ? "ok " + result->to_json() : describe(result.error());
          std::fprintf(stderr, "%s took %.3f s\n", item.c_str(), now_s() - begun);
        });
    }
    for (const auto& line : lines)
      std::printf("%s %s\n", item.substr(0, item.find('/')).c_str(), line.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    words[text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (word("mode") == "tune") return search(cluster);
  if (words.contains("calls")) return calls(cluster);
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
