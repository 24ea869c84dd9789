// tidy: test-mirror: the other half of gradient_buckets_test.cpp
#include "sgd/internal/gradient_buckets.hpp"

#include "tests/support/gradients.hpp"

#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

// --- unused parameters ----------------------------------------------------------------------

TEST_CASE("buckets: used on one rank only, all ranks get its share") {  // U1
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, finding());
    auto loss = net.a->forward(torch::ones({4}));
    if (collectives.rank() == 0) loss = loss + net.b->forward(torch::full({4}, 3.0));
    loss.backward();
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[1][1].equal(torch::full({1, 4}, 1.5)));
}

TEST_CASE("buckets: what no rank uses keeps no gradient, also after zero_grad") {  // U2
  on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, finding());
    torch::optim::Adam adam(net.parameters(), torch::optim::AdamOptions(0.1).weight_decay(0.1));
    const auto step = [&](bool with_b) {
      adam.zero_grad();
      auto loss = net.a->forward(torch::ones({4}));
      if (with_b) loss = loss + net.b->forward(torch::ones({4}));
      loss.backward();
      adam.step();
    };
    const auto before = net.b->weight.detach().clone();
    step(false);
    CHECK_FALSE(net.b->weight.grad().defined());
    step(true);
    const auto after = net.b->weight.detach().clone();
    CHECK_FALSE(after.equal(before));
    step(false);
    CHECK_FALSE(net.b->weight.grad().defined());
    CHECK(net.b->weight.equal(after));
    step(true);
    CHECK(net.b->weight.grad().equal(torch::ones({1, 4})));
    return 0;
  });
}

TEST_CASE("buckets: what no rank uses keeps the gradient of earlier passes") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, finding());
    const auto x = torch::full({4}, collectives.rank() + 1.0);
    (net.a->forward(x) + net.b->forward(x)).backward();
    net.a->forward(x).backward();
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[0][0].equal(torch::full({1, 4}, 3.0)));
  CHECK(all[0][1].equal(torch::full({1, 4}, 1.5)));
}

TEST_CASE("buckets: an unused parameter ends that backward with its name and rank") {  // U3
  Tensors models[2];
  const auto sentence = told(2, [&](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, {});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    auto loss = net.a->forward(torch::randn({4}));
    if (collectives.rank() == 0) loss = loss + net.b->forward(torch::randn({4}));
    models[collectives.rank()] = values(net);
    loss.backward();
    optimizer.step();
    models[collectives.rank()] = {};
  });
  CHECK(sentence ==
        "model 'net': parameter 'b.weight' got no gradient in this backward pass on rank 1; freeze "
        "what takes no part, or set find_unused_parameters in the ddp options");
  CHECK(models[0].size() == 2);
  CHECK(equal(models[0], models[1]));
}

TEST_CASE("buckets: parameters that no rank uses are named, on all ranks") {
  CHECK(told(3,
             [](Collectives& collectives) {
               auto net = mlp();
               GradientBuckets buckets("net", *net, collectives, tiny());
               net[0]->as<torch::nn::LinearImpl>()->forward(torch::ones({10})).sum().backward();
             })
            .find("parameters '4.bias', '4.weight', '2.bias', '2.weight' got no gradient in this "
                  "backward pass on ranks 0, 1 and 2") != std::string::npos);
}

TEST_CASE("buckets: after the error for an unused parameter training can go on") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, {});
    const auto x = torch::full({4}, collectives.rank() + 1.0);
    CHECK_THROWS_AS(net.a->forward(x).backward(), Exception);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      (net.a->forward(x) + net.b->forward(x)).backward();
    }
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[0][1].equal(torch::full({1, 4}, 1.5)));
}

TEST_CASE("buckets: a parameter that any pass since the last exchange used is exchanged") {  // A8
  for (const bool find : {false, true}) {
    const auto all = on_ranks(2, [&](Collectives& collectives) {
      Branches net;
      GradientBuckets buckets("net", net, collectives, {.find_unused_parameters = find});
      const auto x = torch::full({4}, collectives.rank() + 1.0);
      for (int window = 0; window < 2; ++window) {
        net.zero_grad();
        buckets.set_sync(false);
        if (!find || collectives.rank() == 0) net.b->forward(x).backward();
        buckets.set_sync(true);
        net.a->forward(x).backward();
      }
      return gradients(net);
    });
    CHECK(all_equal(all));
    CHECK(all[0][0].equal(torch::full({1, 4}, 1.5)));
    CHECK(all[0][1].equal(torch::full({1, 4}, find ? 0.5 : 1.5)));
  }
}

TEST_CASE("buckets: a module used several times in one graph arrives once") {  // U4
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Linear net(5, 5);
    GradientBuckets buckets("net", *net, collectives, {});
    net(net(net(torch::randn({5})))).sum().backward();
    return gradients(*net);
  });
  CHECK(all_equal(all));
}

// --- backward passes of other kinds ---------------------------------------------------------

namespace {

/// Runs a backward pass within its own.
struct Nested : torch::autograd::Function<Nested> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({weight});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode enabled(true);
    (context->get_saved_variables()[0] * 2).sum().backward();
    return {gradients[0], torch::Tensor()};
  }
};

}  // namespace

TEST_CASE("buckets: a backward pass within another one of the same model is refused") {  // U5
  CHECK(told(2, [](Collectives& collectives) {
          Branches net;
          GradientBuckets buckets("net", net, collectives, {});
          const auto inner = Nested::apply(net.b->forward(torch::ones({4})), net.b->weight);
          (inner + net.a->forward(torch::ones({4}))).backward();
        }).find("a backward pass within another one") != std::string::npos);
}

TEST_CASE("buckets: create_graph is refused, a gradient penalty works") {
  CHECK(told(2, [](Collectives& collectives) {
          Slope net;
          GradientBuckets buckets("net", net, collectives, {});
          net.loss(torch::ones({1})).backward({}, true, true);
        }).find("parameter 'w' is reached by backward(create_graph = true)") != std::string::npos);

  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    auto x = torch::full({1}, collectives.rank() + 1.0F, torch::requires_grad());
    const auto slope = torch::autograd::grad({(net.w * x).pow(2).sum()}, {x}, {}, true, true)[0];
    (slope - 1).pow(2).sum().backward();  // slope = 2w²x, its derivative by w = 4wx
    return net.w.grad().item<float>();
  });
  // 2·(2w²x − 1)·4wx at w = 2: 112 for x = 1, 480 for x = 2
  CHECK(all == std::vector<float>{296.0F, 296.0F});
}

TEST_CASE("buckets: sparse gradients are refused with the parameter's name") {
  CHECK(told(2, [](Collectives& collectives) {
          torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 2).sparse(true));
          GradientBuckets buckets("net", *net, collectives, {});
          net->forward(torch::tensor({1, 2})).sum().backward();
        }).find("parameter 'weight' has a sparse gradient") != std::string::npos);
}

TEST_CASE("buckets: a pass that a user's error ended begins anew, unless it had exchanged") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Branches net;
    GradientBuckets buckets("net", net, collectives, {});
    const auto x = torch::full({4}, collectives.rank() + 1.0);
    bool bad = true;
    net.a->weight.register_hook([&](torch::Tensor gradient) {
      if (bad) throw std::runtime_error("bad luck");
      return gradient;
    });
    const auto pass = [&] {
      const auto a = net.a->forward(x);
      (net.b->forward(x) + a).backward();
    };
    CHECK_THROWS_WITH(pass(), "bad luck");
    bad = false;
    net.zero_grad();
    pass();
    return gradients(net);
  });
  CHECK(all_equal(all));
  CHECK(all[0][1].equal(torch::full({1, 4}, 1.5)));

  CHECK(told(2, [](Collectives& collectives) {
          Branches net;
          GradientBuckets buckets("net", net, collectives, tiny());
          net.a->weight.register_hook([](torch::Tensor gradient) {
            throw std::runtime_error("bad luck");
            return gradient;
          });
          const auto pass = [&] {
            const auto a = net.a->forward(torch::ones({4}));
            (net.b->forward(torch::ones({4})) + a).backward();
          };
          CHECK_THROWS_WITH(pass(), "bad luck");
          net.b->forward(torch::ones({4})).backward();
        }).find("the group of ranks must be made anew") != std::string::npos);
}

TEST_CASE("buckets: two forwards and one backward work, with batch norm inside") {  // complaint 7
  const auto all = on_ranks(2, [](Collectives& collectives) {
    torch::nn::Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4), Linear(4, 1));
    GradientBuckets buckets("net", *net, collectives, {});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto first = net->forward(torch::randn({6, 4}));
      const auto second = net->forward(torch::randn({6, 4}));
      (first - second).pow(2).mean().backward();
      buckets.broadcast_buffers();
    }
    Tensors state = gradients(*net);
    for (const auto& buffer : net->buffers()) state.push_back(buffer.clone());
    return state;
  });
  CHECK(all_equal(all));
}

TEST_CASE("buckets: two models in one graph are both averaged, as a GAN needs it") {
  const auto train = [] {
    return on_ranks(3, [](Collectives& collectives) {
      torch::nn::Sequential generator(Linear(3, 8), torch::nn::ReLU(), Linear(8, 4));
      torch::nn::Sequential discriminator(Linear(4, 8), torch::nn::ReLU(), Linear(8, 1));
      GradientBuckets of_generator("generator", *generator, collectives, tiny());
      GradientBuckets of_discriminator("discriminator", *discriminator, collectives, tiny());
      torch::optim::Adam generates(generator->parameters(), 0.01);
      torch::optim::Adam judges(discriminator->parameters(), 0.01);
      for (int step = 0; step < 5; ++step) {
        judges.zero_grad();
        const auto fake = generator->forward(torch::randn({6, 3}));
        const auto real = torch::randn({6, 4});
        (discriminator->forward(fake.detach()).mean() - discriminator->forward(real).mean())
            .backward();
        judges.step();
        generates.zero_grad();
        (-discriminator->forward(fake).mean()).backward();
        generates.step();
      }
      Tensors state = values(*generator);
      for (const auto& value : values(*discriminator)) state.push_back(value);
      return state;
    });
  };
  const auto first = train();
  CHECK(all_equal(first));
  CHECK(equal(first[0], train()[0]));
}

// --- ranks without a batch ------------------------------------------------------------------

TEST_CASE("buckets: a rank without a batch shadows the pass, and gets the others' average") {
  for (const bool find : {false, true}) {
    const auto all = on_ranks(3, [&](Collectives& collectives) {
      Branches net;
      GradientBuckets buckets("net", net, collectives, {.find_unused_parameters = find});
      const auto x = torch::full({4}, collectives.rank() + 1.0);
      Tensors seen;
      for (int step = 0; step < 3; ++step) {
        net.zero_grad();
        if (collectives.rank() < 3 - step)
          (net.a->forward(x) + net.b->forward(x)).backward();
        else
          buckets.shadow();
        seen.push_back(net.b->weight.grad().clone());
      }
      return seen;
    });
    CHECK(all_equal(all));
    CHECK(all[2][0].equal(torch::full({1, 4}, 2.0)));
    CHECK(all[2][1].equal(torch::full({1, 4}, 1.5)));
    CHECK(all[2][2].equal(torch::full({1, 4}, 1.0)));
  }
}

TEST_CASE(
    "buckets: by rank, a rank without a batch brings zeros of full weight, as in DDP") {  // J2
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {.average = Average::by_rank});
    std::vector<float> seen;
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      if (collectives.rank() == 1 || step < 2)
        (net.w * (collectives.rank() + 1.0F)).sum().backward();
      else
        buckets.shadow();
      seen.push_back(2 * net.w.grad().item<float>());
    }
    return seen;
  });
  CHECK(all[0] == std::vector<float>{3, 3, 2, 2});
  CHECK(all[1] == all[0]);
}

TEST_CASE("buckets: what has piled up on a rank counts when it shadows the pass") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    buckets.set_sync(false);
    (net.w * (collectives.rank() + 1.0F)).sum().backward();
    buckets.set_sync(true);
    if (collectives.rank() == 0)
      (net.w * 10.0F).sum().backward();
    else
      buckets.shadow();
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{6.5F, 6.5F});
}

TEST_CASE("buckets: shadows of several models come in any order") {
  on_ranks(2, [](Collectives& collectives) {
    torch::nn::Sequential first(Linear(3, 4));
    torch::nn::Sequential second(Linear(4, 1));
    GradientBuckets of_first("first", *first, collectives, tiny());
    GradientBuckets of_second("second", *second, collectives, tiny());
    for (int step = 0; step < 3; ++step) {
      if (collectives.rank() == 0) {
        second->forward(first->forward(torch::ones({3}))).backward();
      } else {
        of_first.shadow();
        of_second.shadow();
      }
    }
    return 0;
  });
}

// --- buffers --------------------------------------------------------------------------------

TEST_CASE("buckets: rank 0's buffers of any type are given to all, in evaluation too") {  // F1, F2
  const auto all = on_ranks(2, [](Collectives& collectives) {
    torch::nn::BatchNorm1d net(1);
    GradientBuckets buckets("net", *net, collectives, {});
    for (int step = 0; step < collectives.rank() + 2; ++step)
      net->forward(torch::randn({4, 1}) + 5 * collectives.rank());
    const auto before = net->running_mean.clone();
    net->eval();
    buckets.broadcast_buffers();
    return Tensors{before, net->running_mean.clone(), net->num_batches_tracked.clone(),
                   net->forward(torch::ones({1, 1})).detach()};
  });
  CHECK_FALSE(all[0][0].equal(all[1][0]));
  CHECK(all[1][1].equal(all[0][0]));
  CHECK(all[1][2].item<std::int64_t>() == 2);
  CHECK(all[1][3].equal(all[0][3]));
}

TEST_CASE("buckets: a buffer whose memory the module has replaced is found") {  // F3
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    auto seen = net.register_buffer("seen", torch::zeros({1}));
    GradientBuckets buckets("net", net, collectives, {});
    seen.set_data(torch::full({2}, collectives.rank() + 1.0F));
    buckets.broadcast_buffers();
    return net.buffers()[0].clone();
  });
  CHECK(all_equal({{all[0]}, {all[1]}, {torch::ones({2})}}));
}

// --- what belongs to whom -------------------------------------------------------------------

TEST_CASE("buckets: clipping and zeroing on one rank does not touch another's gradient") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    auto net = mlp();
    GradientBuckets buckets("net", *net, collectives, {});
    net->forward(torch::randn({4, 10})).pow(2).sum().backward();
    const auto before = gradients(*net);
    collectives.barrier();
    if (collectives.rank() == 0) {
      torch::nn::utils::clip_grad_norm_(net->parameters(), 1e-3);
      CHECK_FALSE(equal(gradients(*net), before));
      net->zero_grad();
    }
    collectives.barrier();
    return Tensors{before[0], net->parameters()[0].grad().clone()};
  });
  CHECK(all[1][0].equal(all[1][1]));
  CHECK_FALSE(all[0][1].any().item<bool>());
}

TEST_CASE("buckets: gradients that the user replaces or resets are found") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    GradientBuckets buckets("net", net, collectives, {});
    const auto pass = [&] { (net.w * (collectives.rank() + 1.0F)).sum().backward(); };
    pass();
    net.w.mutable_grad() = torch::full({1}, 10.0F);
    pass();
    CHECK(net.w.grad().item<float>() == 11.5F);
    net.w.mutable_grad().reset();
    pass();
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{1.5F, 1.5F});
}

TEST_CASE("buckets: gradients have the strides of their parameters") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    torch::nn::Conv2d net(3, 4, 3);
    net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    GradientBuckets buckets("net", *net, collectives, {});
    net->forward(torch::randn({2, 3, 5, 5})).sum().backward();
    CHECK(net->weight.grad().strides() == net->weight.strides());
    return gradients(*net);
  });
  CHECK(all_equal(all));
}

TEST_CASE("buckets: none of their hooks outlives them, and their gradients do") {
  const auto all = on_ranks(2, [](Collectives& collectives) {
    Slope net;
    const auto pass = [&] { (net.w * (collectives.rank() + 1.0F)).sum().backward(); };
    const auto kept = net.w * 1.0F;  // a graph that keeps the hooked node alive
    {
      GradientBuckets buckets("net", net, collectives, {});
      pass();
    }
    CHECK(net.w.grad().item<float>() == 1.5F);
    net.zero_grad();
    pass();
    CHECK(net.w.grad().item<float>() == collectives.rank() + 1.0F);
    net.zero_grad();
    GradientBuckets second("net", net, collectives, {});
    pass();
    CHECK(second.stats().passes == 1);
    return net.w.grad().item<float>();
  });
  CHECK(all == std::vector<float>{1.5F, 1.5F});
}

TEST_CASE("buckets: the exchange begins before backward has ended") {
  on_ranks(2, [](Collectives& collectives) {
    torch::nn::Sequential net;
    for (int i = 0; i < 20; ++i) net->push_back(Linear(64, 64));
    GradientBuckets buckets("net", *net, collectives, tiny());
    for (int step = 0; step < 3; ++step) net->forward(torch::randn({32, 64})).sum().backward();
    CHECK(buckets.stats().passes == 3);
    CHECK(buckets.stats().exchange_ns > buckets.stats().waited_ns);
    return 0;
  });
}
