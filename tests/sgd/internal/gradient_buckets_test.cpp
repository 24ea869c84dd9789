#include "sgd/internal/gradient_buckets.hpp"

#include "tests/support/gradients.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

using namespace troupe;
using namespace troupe::test;

// --- construction ---------------------------------------------------------------------------

TEST_CASE("buckets: tied parameters are exchanged once, with equal gradients on all ranks") {  // C1
  const auto all = on_ranks(2, [](Collectives& collectives) {
    torch::nn::Module net;
    auto in = net.register_module("in", Linear(LinearOptions(6, 6).bias(false)));
    auto out = std::make_shared<torch::nn::Module>();
    net.register_module("out", out);
    const auto tied = out->register_parameter("weight", in->weight);
    GradientBuckets buckets("net", net, collectives, {});
    CHECK(buckets.bucket_bytes() == std::vector<std::int64_t>{6 * 6 * 4});
    torch::linear(in->forward(torch::randn({3, 6})), tied).pow(2).sum().backward();
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[0].size() == 2);
  CHECK(all[0][0].equal(all[0][1]));
}

TEST_CASE("buckets: a model without trainable parameters is an error") {  // C2
  const auto frozen = [](Collectives& collectives) {
    Linear net(2, 2);
    for (auto& p : net->parameters()) p.requires_grad_(false);
    GradientBuckets buckets("net", *net, collectives, {});
  };
  const std::string sentence =
      "model 'net': no parameter is trainable, so there is nothing to train over several ranks";
  CHECK(told(2, frozen) == sentence);
  CHECK(told(2, [](Collectives& collectives) {
          torch::nn::ReLU net;
          GradientBuckets buckets("net", *net, collectives, {});
        }) == sentence);
}

TEST_CASE("buckets: different models are an error on all ranks") {  // C3 to C5: same_model_test
  CHECK(told(2, [](Collectives& collectives) {
          Linear net(LinearOptions(2, 2).bias(collectives.rank() == 0));
          GradientBuckets buckets("net", *net, collectives, {});
        }).find("(trainable parameters: 2 on rank 0; 1 on rank 1)") != std::string::npos);
}

TEST_CASE("buckets: gradients of integers and complex numbers are an error") {
  CHECK(told(2, [](Collectives& collectives) {
          torch::nn::Module net;
          net.register_parameter("w", torch::zeros({2}, torch::kComplexFloat));
          GradientBuckets buckets("net", net, collectives, {});
        }).find("parameter 'w' is of type ComplexFloat") != std::string::npos);
}

TEST_CASE("buckets: all ranks begin with rank 0's parameters and buffers") {  // C6
  const auto all = on_ranks(3, [](Collectives& collectives) {
    torch::nn::Sequential net(Linear(3, 4), torch::nn::BatchNorm1d(4));
    const torch::NoGradGuard no_grad;
    net->named_buffers()["1.running_mean"].fill_(5 + collectives.rank());
    net->named_buffers()["1.num_batches_tracked"].fill_(7 + collectives.rank());
    GradientBuckets buckets("net", *net, collectives, {});
    Tensors state = values(*net);
    for (const auto& buffer : net->buffers()) state.push_back(buffer.clone());
    return state;
  });
  CHECK(all_equal(all));
  CHECK(all[2][4].equal(torch::full({4}, 5.0)));
  CHECK(all[2][6].item<std::int64_t>() == 7);
}

TEST_CASE("buckets: parameters may be frozen later, and stay as they are") {  // C7
  const auto all = on_ranks(2, [](Collectives& collectives) {
    auto net = mlp();
    GradientBuckets buckets("net", *net, collectives, {});
    torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.1).weight_decay(0.1));
    Tensors frozen;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        net->parameters()[0].requires_grad_(false);
        frozen = {net->parameters()[0].detach().clone()};
      }
      adam.zero_grad();
      net->forward(torch::randn({4, 10})).pow(2).mean().backward();
      adam.step();
    }
    CHECK(net->parameters()[0].equal(frozen[0]));
    CHECK_FALSE(net->parameters()[0].grad().defined());
    return values(*net);
  });
  CHECK(all_equal(all));
}

TEST_CASE("buckets: a parameter that becomes trainable later is an error that names it") {
  CHECK(told(2,
             [](Collectives& collectives) {
               Branches net;
               net.b->weight.requires_grad_(false);
               GradientBuckets buckets("net", net, collectives, {});
               net.b->weight.requires_grad_(true);
               (net.a->forward(torch::ones({4})) + net.b->forward(torch::ones({4}))).backward();
             })
            .find("parameter 'b.weight' was frozen when the model was registered") !=
        std::string::npos);
}

TEST_CASE("buckets: with one rank nothing is done, the bits are those of the bare loop") {  // C8
  const auto train = [](bool with_buckets) {
    return on_ranks(1, [&](Collectives& collectives) {
      torch::nn::Sequential net(Linear(10, 20), torch::nn::Dropout(0.5), torch::nn::BatchNorm1d(20),
                                Linear(20, 2));
      std::optional<GradientBuckets> buckets;
      if (with_buckets) buckets.emplace("net", *net, collectives, DdpOptions{});
      torch::optim::Adam adam(net->parameters(), 0.01);
      for (int step = 0; step < 10; ++step) {
        if (buckets) buckets->set_weight(8);
        adam.zero_grad();
        net->forward(torch::randn({8, 10})).pow(2).mean().backward();
        adam.step();
        if (buckets) buckets->broadcast_buffers();
      }
      if (buckets) CHECK(buckets->bucket_bytes().empty());
      Tensors state = values(*net);
      for (const auto& buffer : net->buffers()) state.push_back(buffer);
      return state;
    })[0];
  };
  CHECK(equal(train(true), train(false)));
}

// --- buckets --------------------------------------------------------------------------------

TEST_CASE("buckets: they close softly at their limit, before and after they are made anew") {  // B2
  on_ranks(2, [](Collectives& collectives) {
    torch::nn::Sequential net;
    for (int i = 0; i < 6; ++i) net->push_back(Linear(600, 600));
    GradientBuckets buckets("net", *net, collectives, {.bucket_bytes = 3 << 20});
    const std::vector<std::int64_t> expected{1'442'400, 4'327'200, 2'884'800};
    CHECK(buckets.bucket_bytes() == expected);
    for (int step = 0; step < 2; ++step) net->forward(torch::ones({1, 600})).sum().backward();
    CHECK(buckets.bucket_bytes() == expected);
    return 0;
  });
}

TEST_CASE("buckets: mixed types have buckets of their own, and right averages") {  // B3
  struct Mixed : torch::nn::Module {
    Mixed() {
      for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16})
        register_parameter(c10::toString(type), torch::ones({3}, type));
    }
  };
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Mixed net;
    GradientBuckets buckets("net", net, collectives, {});
    CHECK(buckets.bucket_bytes().size() == 4);
    auto loss = torch::zeros({}, torch::kFloat64);
    for (const auto& p : net.parameters())
      loss = loss + (p.to(torch::kFloat64) * (collectives.rank() == 0 ? 1.0 : 2.5)).sum();
    loss.backward();
    return gradients(net);
  });
  CHECK(all_equal(all));
  for (const auto& gradient : all[0])
    CHECK(gradient.to(torch::kFloat64).equal(torch::full({3}, 1.75, torch::kFloat64)));
}

TEST_CASE(
    "buckets: they are made anew once, in the order in which rank 0's gradients came") {  // B5
  on_ranks(3, [](Collectives& collectives) {
    Branches net(10, 20);
    GradientBuckets buckets("net", net, collectives, tiny());
    CHECK(buckets.bucket_bytes() == std::vector<std::int64_t>{80, 40});  // reverse registration
    for (int step = 0; step < 3; ++step) {
      // What is computed last comes first in backward: a on rank 0, b on the others.
      const auto first = [&] { return net.a->forward(torch::ones({10})); };
      const auto second = [&] { return net.b->forward(torch::ones({20})); };
      torch::Tensor sum;
      if (collectives.rank() == 0 && step < 2) {
        const auto b = second();
        sum = first() + b;
      } else {
        const auto a = first();
        sum = second() + a;
      }
      net.zero_grad();
      sum.backward();
      CHECK(equal(gradients(net), {torch::ones({1, 10}), torch::ones({1, 20})}));
      CHECK(buckets.bucket_bytes() ==
            (step == 0 ? std::vector<std::int64_t>{80, 40} : std::vector<std::int64_t>{40, 80}));
    }
    return 0;
  });
}

TEST_CASE("buckets: with find_unused_parameters they stay in reverse order of registration") {
  on_ranks(2, [](Collectives& collectives) {
    Branches net(10, 20);
    auto options = tiny();
    options.find_unused_parameters = true;
    GradientBuckets buckets("net", net, collectives, options);
    for (int step = 0; step < 3; ++step)
      (net.b->forward(torch::ones({20})) + net.a->forward(torch::ones({10}))).backward();
    CHECK(buckets.bucket_bytes() == std::vector<std::int64_t>{80, 40});
    return 0;
  });
}

TEST_CASE("buckets: another order of arrival on each rank mixes nothing up") {  // B6
  constexpr int kLayers = 6;
  const auto all = on_ranks(3, [](Collectives& collectives) {
    torch::nn::Module net;
    std::vector<Linear> layers;
    for (int i = 0; i < kLayers; ++i)
      layers.push_back(net.register_module("layer" + std::to_string(i), Linear(5, 1)));
    GradientBuckets buckets("net", net, collectives, tiny());
    Tensors result;
    for (int step = 0; step < 5; ++step) {
      auto sum = torch::zeros({1});
      for (int i = 0; i < kLayers; ++i) {
        const int layer = (i * (1 + 4 * (collectives.rank() % 2)) + step) % kLayers;
        sum = sum + layers[static_cast<std::size_t>(layer)]->forward(
                        torch::full({5}, 100.0 * layer + collectives.rank() + step));
      }
      for (auto& p : net.parameters()) p.mutable_grad().reset();
      sum.backward();
      result = gradients(net);
    }
    return result;
  });
  CHECK(all_equal(all));
  for (int layer = 0; layer < kLayers; ++layer)
    CHECK(all[0][static_cast<std::size_t>(2 * layer)].allclose(
        torch::full({1, 5}, 100.0 * layer + 5)));
}

TEST_CASE("buckets: their sizes don't change a bit of the result") {
  const auto train = [](std::int64_t limit) {
    const auto all = on_ranks(3, [&](Collectives& collectives) {
      auto net = mlp();
      GradientBuckets buckets("net", *net, collectives,
                              {.bucket_bytes = limit, .first_bucket_bytes = limit});
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        net->forward(torch::randn({4, 10})).pow(2).mean().backward();
        optimizer.step();
      }
      return values(*net);
    });
    CHECK(all_equal(all));
    return all[0];
  };
  const auto one = train(1);
  CHECK(equal(train(3000), one));
  CHECK(equal(train(25 << 20), one));
}

// --- averages -------------------------------------------------------------------------------

TEST_CASE("buckets: a loss that is a sum gives the sum over all samples, divided by the ranks") {
  const auto all = on_ranks(2, [](Collectives& collectives) {  // A1
    Slope net;
    GradientBuckets buckets("net", net, collectives, {.average = Average::by_rank});
    (net.w * torch::tensor({collectives.rank() + 1.0F})).sum().backward();
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{1.5F, 1.5F});  // one process with both: 3
}

TEST_CASE("buckets: unequal batches count by their samples, or by rank as in DDP") {  // A2
  for (const auto kind : {Average::by_sample, Average::by_rank}) {
    const auto all = on_ranks(2, [&](Collectives& collectives) {
      Slope net;
      GradientBuckets buckets("net", net, collectives, {.average = kind});
      const auto x =
          collectives.rank() == 0 ? torch::tensor({1.0F, 2.0F, 3.0F}) : torch::tensor({10.0F});
      buckets.set_weight(static_cast<double>(x.numel()));
      net.loss(x).backward();
      return net.w.grad().item<float>();
    });
    CHECK(all[0] == all[1]);
    CHECK(all[0] == doctest::Approx(kind == Average::by_sample ? 114 : 209.33333).epsilon(1e-6));
  }
}

TEST_CASE("buckets: averages are sums in rank order of values times their share, bit by bit") {
  for (const auto& weights : {std::vector{1.0, 1.0, 1.0}, std::vector{3.0, 5.0, 8.0}}) {  // A3
    const auto all = on_ranks(3, [&](Collectives& collectives) {
      torch::nn::Module net;
      auto w = net.register_parameter("w", torch::zeros({100'000}));
      GradientBuckets buckets("net", net, collectives, {});
      buckets.set_weight(weights[static_cast<std::size_t>(collectives.rank())]);
      const auto own = torch::randn({100'000});
      (w * own).sum().backward();
      return Tensors{own, w.grad().clone()};
    });
    const auto expected = average({all[0][0], all[1][0], all[2][0]}, weights);
    for (const auto& rank : all) CHECK(rank[1].equal(expected));
  }
}

TEST_CASE("buckets: with equal batches by_sample and by_rank are the same bits") {
  const auto step = [](Average kind) {
    return on_ranks(3, [&](Collectives& collectives) {
      auto net = mlp();
      GradientBuckets buckets("net", *net, collectives, {.average = kind});
      buckets.set_weight(7);
      net->forward(torch::randn({7, 10})).pow(2).mean().backward();
      return gradients(*net);
    })[0];
  };
  CHECK(equal(step(Average::by_sample), step(Average::by_rank)));
}

TEST_CASE("buckets: without sync gradients pile up, and the next pass averages the pile") {  // A4
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    const float own = collectives.rank() == 0 ? 1.0F : 5.0F;
    const auto pass = [&](float x) { (net.w * x).sum().backward(); };
    buckets.set_sync(false);
    pass(own);
    pass(10 * own);
    CHECK(net.w.grad().item<float>() == 11 * own);
    CHECK(buckets.stats().passes == 0);
    buckets.set_sync(true);
    pass(100 * own);
    CHECK(buckets.stats().passes == 1);
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{333.0F, 333.0F});
}

TEST_CASE("buckets: sync is read at the first gradient of a pass") {  // A5
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, {});
    const auto x = torch::full({4}, collectives.rank() + 1.0);
    const auto b = net.b->forward(x);
    const auto a = net.a->forward(x);  // its gradient comes first
    net.a->weight.register_hook([&](torch::Tensor gradient) {
      buckets.set_sync(true);  // in time
      return gradient;
    });
    net.b->weight.register_hook([&](torch::Tensor gradient) {
      buckets.set_sync(false);  // too late for this pass
      return gradient;
    });
    buckets.set_sync(false);
    (a + b).backward();
    CHECK(buckets.stats().passes == 1);
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[0][1].equal(torch::full({1, 4}, 1.5)));
}

TEST_CASE("buckets: 10 batches by fours are 3 exchanges, and one large batch's gradients") {  // A6
  constexpr int kBatches = 10;
  constexpr int kGroup = 4;
  const auto data = batch(1, {2, kBatches, 8, 10});
  const auto all = on_ranks(2, [&](Collectives& collectives) {
    auto net = mlp();
    GradientBuckets buckets("net", *net, collectives, {});
    std::vector<Tensors> groups;
    for (int first = 0; first < kBatches; first += kGroup) {
      const int count = std::min(kGroup, kBatches - first);
      net->zero_grad();
      for (int i = 0; i < count; ++i) {
        buckets.set_sync(i + 1 == count);
        (net->forward(data[collectives.rank()][first + i]).pow(2).mean() / count).backward();
      }
      groups.push_back(gradients(*net));
    }
    CHECK(buckets.stats().passes == 3);
    for (int first = 0; first < kBatches && collectives.rank() == 0; first += kGroup) {
      auto same = mlp();
      for (std::size_t i = 0; i < same->parameters().size(); ++i)
        same->parameters()[i].set_data(net->parameters()[i].detach().clone());
      const auto large = data.narrow(1, first, std::min(kGroup, kBatches - first));
      same->forward(large.reshape({-1, 10})).pow(2).mean().backward();
      CHECK(close(groups[static_cast<std::size_t>(first / kGroup)], gradients(*same), 1e-5, 1e-6));
    }
    return groups;
  });
  for (std::size_t group = 0; group < 3; ++group) CHECK(equal(all[0][group], all[1][group]));
}

TEST_CASE("buckets: several passes with sync add up averages") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    for (const float x : {1.0F, 10.0F}) (net.w * (x * (collectives.rank() + 1))).sum().backward();
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{16.5F, 16.5F});
}

TEST_CASE("buckets: all ranks with weight 0 have no gradient, and optimizers leave all alone") {
  on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.1));
    buckets.set_weight(0);
    net.loss(torch::full({0}, 1.0F)).backward();  // a mean of nothing: NaN
    CHECK_FALSE(net.w.grad().defined());
    optimizer.step();
    CHECK(net.w.item<float>() == 2);
    return 0;
  });
}

TEST_CASE("buckets: what a rank with weight 0 computes counts for nothing, NaN and all") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    buckets.set_weight(collectives.rank() == 0 ? 1 : 0);
    net.loss(torch::full({1 - collectives.rank()}, 3.0F)).backward();
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{36.0F, 36.0F});
}

TEST_CASE("buckets: a weight that is no number of samples is refused") {
  CHECK(run_ranks(2, [](Collectives& collectives) {
          Slope net;
          GradientBuckets buckets("net", net, collectives, {});
          for (const double weight : {-1.0, std::nan(""), HUGE_VAL})
            CHECK_THROWS_AS(buckets.set_weight(weight), Exception);
        }) == std::vector<std::string>(2));
}

TEST_CASE("buckets: float16 and bfloat16 on the way cost no more than their precision") {  // H2
  for (const auto compression : {Compression::fp16, Compression::bf16}) {
    const auto all = on_ranks(2, [&](Collectives& collectives) {
      torch::nn::Module net;
      auto w = net.register_parameter("w", torch::zeros({10'000}));
      auto half = net.register_parameter("half", torch::zeros({10}, torch::kFloat16));
      GradientBuckets buckets("net", net, collectives, {.compression = compression});
      CHECK(buckets.bucket_bytes() == std::vector<std::int64_t>{20, 40'000});
      const auto own = torch::randn({10'000});
      ((w * own).sum() + half.sum()).backward();
      CHECK((w.grad().scalar_type() == torch::kFloat32));
      return Tensors{own, w.grad().clone(), half.grad().clone()};
    });
    CHECK(all[0][1].equal(all[1][1]));
    CHECK(all[0][2].equal(torch::ones({10}, torch::kFloat16)));
    const auto exact = average({all[0][0], all[1][0]}, {1, 1});
    const double error = ((all[0][1] - exact).norm() / exact.norm()).item<double>();
    CHECK(error > 0);
    CHECK(error < (compression == Compression::fp16 ? 1e-3 : 8e-3));
    // Cast, added in float32, rounded once.
    const auto type = compression == Compression::fp16 ? torch::kFloat16 : torch::kBFloat16;
    Tensors cast;
    for (const auto& rank : all) cast.push_back(rank[0].to(type).to(torch::kFloat32));
    CHECK(all[0][1].equal(average(cast, {1, 1}).to(type).to(torch::kFloat32)));
  }
}

// --- equal to one process -------------------------------------------------------------------

namespace {

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

/// Parameters after 50 steps of `ranks` ranks, each with its part of a batch of 24.
Tensors trained(int ranks, const MakeOptimizer& make, bool accumulate) {
  constexpr std::int64_t kBatch = 24;
  const auto x = batch(5, {50, kBatch, 10});
  const auto y = batch(6, {50, kBatch, 3});
  const auto all = on_ranks(ranks, [&](Collectives& collectives) {
    auto net = mlp();
    GradientBuckets buckets("net", *net, collectives, {});
    const auto optimizer = make(net->parameters());
    const std::int64_t share = kBatch / ranks;
    for (std::int64_t step = 0; step < 50; ++step) {
      optimizer->zero_grad();
      const std::int64_t passes = accumulate ? 2 : 1;
      for (std::int64_t i = 0; i < passes; ++i) {
        buckets.set_sync(i + 1 == passes);
        const std::int64_t size = share / passes;
        const std::int64_t begin = collectives.rank() * share + i * size;
        const auto output = net->forward(x[step].narrow(0, begin, size));
        (torch::mse_loss(output, y[step].narrow(0, begin, size)) / passes).backward();
      }
      optimizer->step();
    }
    return values(*net);
  });
  CHECK(all_equal(all));
  return all[0];
}

}  // namespace

TEST_CASE("buckets: N ranks with batch B are one process with N·B, over 50 steps") {
  const std::map<std::string, MakeOptimizer> makes{
      {"SGD",
       [](auto p) {
         return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1));
       }},
      {"momentum",
       [](auto p) {
         return std::make_unique<torch::optim::SGD>(p,
                                                    torch::optim::SGDOptions(0.05).momentum(0.9));
       }},
      {"Adam", [](auto p) {
         return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions(0.001));
       }}};
  for (const auto& [name, make] : makes) {
    CAPTURE(name);
    const auto one = trained(1, make, false);
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      CHECK(close(trained(ranks, make, false), one, 1e-4, 1e-5));
    }
    CHECK(close(trained(2, make, true), one, 1e-4, 1e-5));
  }
}
