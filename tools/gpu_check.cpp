// What only a GPU can show: two ranks on one device, a float16 overflow that both skip, and which
// devices a worker sees. Run it by tools/gpu_check. Exit 77: there is no GPU for this LibTorch.
#include "sgd/sgd.hpp"

#include "libactor/init.hpp"

#include <cstdio>
#include <cstdlib>

#include <torch/torch.h>

using namespace troupe;

namespace {

class Op final : public sgd::TrainingOperator {
 public:
  void setup(const tune::Config& config) override {
    torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 4));
    register_components({
        .model = net,
        .optimizer = torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05)),
        .criterion = torch::nn::CrossEntropyLoss(),
        .amp = {.init_scale = config.get<double>("scale")},
    });
    const auto x = torch::randn({256, 16});
    register_data({.dataset = {{x}, x.narrow(1, 0, 4).argmax(1)}, .options = {.batch_size = 16}});
  }
};

tune::Metrics digest(Op& op) {
  double sum = 0;
  for (const auto& p : op.model().module().parameters())
    sum += p.to(torch::kFloat64).abs().sum().item<double>();
  return {{"sum", sum},
          {"on_gpu", op.model().module().parameters()[0].is_cuda()},
          {"devices", static_cast<std::int64_t>(torch::cuda::device_count())},
          {"visible", std::string(std::getenv("CUDA_VISIBLE_DEVICES") != nullptr
                                      ? std::getenv("CUDA_VISIBLE_DEVICES")
                                      : "not set")}};
}

int failures = 0;
void check(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  if (!holds) ++failures;
}

using Trainer = sgd::TorchTrainer<Op>;

sgd::TorchTrainerOptions two_on_one(double scale) {
  return {.num_workers = 2,
          .num_cpus_per_worker = 0.5,
          .use_gpu = true,
          .num_gpus_per_worker = 0.5,
          .use_fp16 = true,
          .config = {{"scale", scale}}};
}

}  // namespace

int main(int argc, char** argv) {
  auto cluster = init(argc, argv);
  if (!torch::cuda::is_available()) {
    std::puts("SKIPPED: this LibTorch finds no CUDA device");
    return 77;
  }
  {
    Trainer trainer(cluster, two_on_one(65536));
    const auto first = unwrap(trainer.train()).number("train_loss").value_or(0);
    double last = first;
    for (int epoch = 0; epoch < 5; ++epoch) last = *unwrap(trainer.train()).number("train_loss");
    const auto ranks = unwrap(trainer.apply_all_operators<&digest>());
    check(ranks.size() == 2 && ranks[0].find("on_gpu")->as_bool(), "two ranks train on one GPU");
    check(last < first, "and learn");
    check(*ranks[0].number("sum") == *ranks[1].number("sum"), "with the same bits on both");
    check(*ranks[0].number("devices") == 1, "a worker sees the GPU that it was granted alone");
    std::printf("   CUDA_VISIBLE_DEVICES=%s\n", ranks[0].find("visible")->as_text().c_str());
  }
  {
    Trainer trainer(cluster, two_on_one(1e30));
    const auto before = unwrap(trainer.apply_all_operators<&digest>());
    unwrap(trainer.train({.num_steps = 1}));
    const auto skipped = unwrap(trainer.apply_all_operators<&digest>());
    check(*before[0].number("sum") == *skipped[0].number("sum") &&
              *before[1].number("sum") == *skipped[1].number("sum"),
          "a step whose float16 gradients overflow is skipped on both ranks");
    for (int epoch = 0; epoch < 20; ++epoch) unwrap(trainer.train());
    const auto after = unwrap(trainer.apply_all_operators<&digest>());
    check(*after[0].number("sum") != *before[0].number("sum") &&
              *after[0].number("sum") == *after[1].number("sum"),
          "and when the scale has fallen both take steps again");
  }
  return failures == 0 ? 0 : 1;
}
