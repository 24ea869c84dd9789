#include "sgd/state.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>

#include <torch/torch.h>

using namespace troupe;
using troupe::test::TempFolder;

namespace {

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a.detach().resolve_conj().contiguous();
  const auto y = b.detach().resolve_conj().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// Writes a checkpoint by `fill` and opens it.
CheckpointReader written(const TempFolder& folder,
                         const std::function<void(CheckpointWriter&)>& fill) {
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  fill(*out);
  unwrap(out->commit());
  return unwrap(CheckpointReader::open(folder / "c"));
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t hidden = 6, bool tied = false)
      : first(register_module("first", torch::nn::Conv2d(1, 2, 3))),
        norm(register_module("norm", torch::nn::BatchNorm2d(2))),
        a(register_module("a", torch::nn::Linear(hidden, hidden))),
        b(register_module("b", torch::nn::Linear(hidden, hidden))) {
    mask = register_buffer("mask", torch::tensor({true, false}));
    if (tied) b->weight = b->register_parameter("tied", a->weight);
  }
  torch::nn::Conv2d first;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear a, b;
  torch::Tensor mask;
};
TORCH_MODULE(Net);

void check_same(const torch::nn::Module& x, const torch::nn::Module& y) {
  for (const auto& item : x.named_parameters()) {
    CAPTURE(item.key());
    CHECK(same_bits(item.value(), y.named_parameters()[item.key()]));
  }
  for (const auto& item : x.named_buffers()) {
    CAPTURE(item.key());
    CHECK(same_bits(item.value(), y.named_buffers()[item.key()]));
  }
}

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool tie) {
    first = register_parameter("first", torch::rand({3}));
    second = register_parameter("second", tie ? first : torch::rand({3}));
  }
  torch::Tensor first, second;
};
TORCH_MODULE(Tied);

}  // namespace

TEST_CASE("state: tensors of every type and form come out bit for bit") {
  const TempFolder folder;
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (auto type :
       {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
        torch::kInt16, torch::kInt32, torch::kInt64, torch::kUInt8, torch::kBool})
    tensors.emplace_back(c10::toString(type), (torch::rand({3, 5}) * 100 - 30).to(type));
  for (auto type : {torch::kComplexFloat, torch::kComplexDouble})
    tensors.emplace_back(c10::toString(type), torch::rand({2, 2}, type));
  tensors.emplace_back("conjugate", torch::rand({2, 2}, torch::kComplexFloat).conj());
  tensors.emplace_back("transposed", torch::rand({4, 7}).t());
  tensors.emplace_back("slice", torch::rand({10, 10}).slice(0, 1, 9, 3).slice(1, 2, 8, 2));
  tensors.emplace_back("channels_last",
                       torch::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  tensors.emplace_back("expanded", torch::rand({1, 3}).expand({4, 3}));
  tensors.emplace_back("nan", torch::tensor({std::nan("7"), -0.0, 1e-310}, torch::kFloat64));
  tensors.emplace_back("scalar", torch::tensor(3.5));
  tensors.emplace_back("empty", torch::empty({0, 3}));
  tensors.emplace_back("large", torch::rand({600, 600}));
  const auto in = written(folder, [&](auto& out) {
    for (const auto& [name, tensor] : tensors) sgd::save(out, name, tensor);
  });
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    CHECK(same_bits(sgd::load_tensor(in, name), tensor));
    torch::Tensor target = torch::zeros_like(tensor.resolve_conj(), at::MemoryFormat::Preserve);
    sgd::load(in, name, target);
    CHECK(same_bits(target, tensor));
  }
}

TEST_CASE(
    "state: a module's parameters and buffers come out bit for bit, also into other layouts") {
  const TempFolder folder;
  Net net;
  net->train();
  net->norm->forward(torch::rand({4, 2, 5, 5}));
  net->first->weight.set_data(net->first->weight.contiguous(at::MemoryFormat::ChannelsLast));
  const auto in = written(folder, [&](auto& out) { sgd::save(out, "net", *net); });
  Net other;
  sgd::load(in, "net", *other);
  check_same(*net, *other);
  CHECK(other->norm->num_batches_tracked.item<std::int64_t>() == 1);

  Net third;
  third->first->weight.set_data(third->first->weight.contiguous(at::MemoryFormat::ChannelsLast));
  sgd::load(in, "net", *third);
  check_same(*net, *third);
}

TEST_CASE("state: a module of other shapes, types or names is refused by name and left alone") {
  const TempFolder folder;
  Net net(6);
  const auto in = written(folder, [&](auto& out) {
    sgd::save(out, "net", *net);
    sgd::save(out, "single", torch::rand({2}));
  });
  Net wider(7);
  const auto before = wider->first->weight.clone();
  CHECK_THROWS_WITH_AS(sgd::load(in, "net", *wider),
                       doctest::Contains("'net/a.weight' is Float [6, 6], but Float [7, 7]"),
                       Exception);
  CHECK(same_bits(wider->first->weight, before));

  Net doubles(6);
  doubles->b->to(torch::kFloat64);
  CHECK_THROWS_WITH_AS(sgd::load(in, "net", *doubles),
                       doctest::Contains("'net/b.weight' is Float [6, 6], but Double"), Exception);

  Net more(6);
  more->register_buffer("extra", torch::zeros({1}));
  CHECK_THROWS_WITH_AS(sgd::load(in, "net", *more), doctest::Contains("'net/extra' is missing"),
                       Exception);

  torch::nn::Linear fewer(6, 6);
  CHECK_THROWS_AS(sgd::load(in, "net", *fewer), Exception);
  CHECK_THROWS_WITH_AS(sgd::load(in, "none", *net), doctest::Contains("'none' is missing"),
                       Exception);
  CHECK_THROWS_WITH_AS(sgd::load(in, "single", *net), doctest::Contains("is of kind \"tensor\""),
                       Exception);
  torch::Tensor wrong = torch::rand({3});
  CHECK_THROWS_WITH_AS(sgd::load(in, "single", wrong), doctest::Contains("'single' is Float [2]"),
                       Exception);
}

TEST_CASE("state: a tensor of the checkpoint that the module does not have is an error") {
  const TempFolder folder;
  Net net;
  net->register_buffer("extra", torch::zeros({1}));
  const auto in = written(folder, [&](auto& out) { sgd::save(out, "net", *net); });
  Net other;
  CHECK_THROWS_WITH_AS(sgd::load(in, "net", *other),
                       doctest::Contains("'net/extra' has no place in the module"), Exception);
}

TEST_CASE("state: tied parameters are kept once, and a tie that only one side has is an error") {
  const TempFolder folder;
  Tied tied(true), loose(false);
  const auto in = written(folder, [&](auto& out) {
    sgd::save(out, "tied", *tied);
    sgd::save(out, "loose", *loose);
  });
  CHECK(in.text("tied/second") == "first");
  Tied other(true);
  sgd::load(in, "tied", *other);
  CHECK(same_bits(other->second, tied->first));
  CHECK(other->first.is_same(other->second));
  CHECK_THROWS_WITH_AS(sgd::load(in, "tied", *loose),
                       doctest::Contains("'tied/second' is the same tensor as 'first'"), Exception);
  CHECK_THROWS_WITH_AS(sgd::load(in, "loose", *tied),
                       doctest::Contains("'loose/second' is a tensor of its own"), Exception);
}

TEST_CASE("state: what a checkpoint can't hold is refused by name") {
  const TempFolder folder;
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  CHECK_THROWS_WITH_AS(sgd::save(*out, "sparse", torch::rand({2, 2}).to_sparse()),
                       doctest::Contains("'sparse' can't be saved"), Exception);
  CHECK_THROWS_WITH_AS(sgd::save(*out, "nothing", torch::Tensor()), doctest::Contains("'nothing'"),
                       Exception);
  torch::nn::Linear net(2, 2);
  torch::optim::LBFGS lbfgs(net->parameters());
  CHECK_THROWS_WITH_AS(sgd::save(*out, "lbfgs", lbfgs),
                       doctest::Contains("SGD, Adam, AdamW, RMSprop and Adagrad can"), Exception);
}

// --- optimizers -----------------------------------------------------------------------------

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

/// Two groups over one net, the second with options of its own; every option is off its default.
std::vector<OptimizerParamGroup> groups_of(torch::nn::Sequential& net, auto options) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(net[0]->parameters());
  groups.emplace_back(net[1]->parameters(), std::make_unique<decltype(options)>(options));
  return groups;
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(torch::nn::Sequential&)>;

struct Kind {
  const char* name;
  MakeOptimizer make;   ///< with unusual options
  MakeOptimizer plain;  ///< the same kind, default options
};

std::vector<Kind> kinds() {
  using namespace torch::optim;
  const auto kind = [](const char* name, auto options, auto defaults, auto* optimizer) {
    using O = std::remove_pointer_t<decltype(optimizer)>;
    return Kind{
        name,
        [options](auto& net) {
          auto second = options;
          second.set_lr(0.003);
          return std::make_unique<O>(groups_of(net, second), options);
        },
        [defaults](auto& net) { return std::make_unique<O>(groups_of(net, defaults), defaults); }};
  };
  return {
      kind("SGD", SGDOptions(0.02).momentum(0.7).dampening(0.1).weight_decay(0.01), SGDOptions(0.5),
           static_cast<SGD*>(nullptr)),
      kind("SGD nesterov", SGDOptions(0.02).momentum(0.7).nesterov(true), SGDOptions(0.5),
           static_cast<SGD*>(nullptr)),
      kind("Adam", AdamOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.01).amsgrad(true),
           AdamOptions(), static_cast<Adam*>(nullptr)),
      kind("AdamW",
           AdamWOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.03).amsgrad(true),
           AdamWOptions(), static_cast<AdamW*>(nullptr)),
      kind(
          "RMSprop",
          RMSpropOptions(0.02).alpha(0.9).eps(1e-6).weight_decay(0.01).momentum(0.5).centered(true),
          RMSpropOptions(), static_cast<RMSprop*>(nullptr)),
      kind("Adagrad",
           AdagradOptions(0.02).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.3).eps(
               1e-6),
           AdagradOptions(), static_cast<Adagrad*>(nullptr)),
  };
}

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
}

void train(torch::nn::Sequential& net, Optimizer& optimizer, int steps) {
  const auto inputs = torch::linspace(-1, 1, 20).view({5, 4});
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    net->forward(inputs).square().sum().backward();
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("state: an optimizer that was loaded goes on bit for bit, with its options") {
  for (const auto& kind : kinds()) {
    CAPTURE(kind.name);
    const TempFolder folder;
    auto net = make_net();
    auto optimizer = kind.make(net);
    train(net, *optimizer, 3);
    const auto in = written(folder, [&](auto& out) {
      sgd::save(out, "net", *net);
      sgd::save(out, "opt", *optimizer);
    });
    auto other = make_net();
    auto loaded = kind.plain(other);  // other options: all must come from the file
    train(other, *loaded, 1);         // and a state of its own, which must go
    sgd::load(in, "net", *other);
    sgd::load(in, "opt", *loaded);
    CHECK(loaded->param_groups()[0].options().get_lr() == 0.02);
    CHECK(loaded->param_groups()[1].options().get_lr() == 0.003);
    train(net, *optimizer, 3);
    train(other, *loaded, 3);
    check_same(*net, *other);
  }
}

TEST_CASE("state: an optimizer before its first step comes out without state") {
  for (const auto& kind : kinds()) {
    CAPTURE(kind.name);
    const TempFolder folder;
    auto net = make_net();
    auto optimizer = kind.make(net);
    const auto in = written(folder, [&](auto& out) {
      sgd::save(out, "net", *net);
      sgd::save(out, "opt", *optimizer);
    });
    auto other = make_net();
    auto loaded = kind.plain(other);
    train(other, *loaded, 2);
    sgd::load(in, "net", *other);
    sgd::load(in, "opt", *loaded);
    train(net, *optimizer, 2);
    train(other, *loaded, 2);
    check_same(*net, *other);
  }
}

TEST_CASE("state: another kind, other groups and other shapes of an optimizer are refused") {
  const TempFolder folder;
  auto net = make_net();
  torch::optim::Adam adam(net->parameters(), 0.1);
  train(net, adam, 1);
  const auto in = written(folder, [&](auto& out) { sgd::save(out, "opt", adam); });

  torch::optim::AdamW other_kind(net->parameters(), 0.1);
  CHECK_THROWS_WITH_AS(
      sgd::load(in, "opt", other_kind),
      doctest::Contains("is of kind \"optimizer Adam\", but \"optimizer AdamW\" is needed"),
      Exception);
  torch::optim::Adam two_groups(groups_of(net, torch::optim::AdamOptions()));
  CHECK_THROWS_WITH_AS(sgd::load(in, "opt", two_groups), doctest::Contains("has 2 groups"),
                       Exception);
  torch::optim::Adam fewer(net[0]->parameters());
  CHECK_THROWS_WITH_AS(sgd::load(in, "opt", fewer),
                       doctest::Contains("but the group has 2 parameters"), Exception);
  torch::nn::Sequential wide(torch::nn::Linear(4, 5), torch::nn::Linear(5, 2));
  torch::optim::Adam other_shape(wide->parameters());
  CHECK_THROWS_WITH_AS(sgd::load(in, "opt", other_shape),
                       doctest::Contains("'opt/0/0/exp_avg' has the shape [3, 4]"), Exception);
  CHECK(other_shape.state().empty());
}
