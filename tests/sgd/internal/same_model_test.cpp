#include "sgd/internal/same_model.hpp"

#include "tests/support/ranks.hpp"

#include <set>

using namespace troupe;
using sgd::internal::broadcast_tensors;
using sgd::internal::check_same_model;
using sgd::internal::Collectives;
using torch::nn::Linear;
using torch::nn::LinearOptions;

namespace {

/// Modules under names, in the order given.
struct Parts : torch::nn::Module {
  template <class M>
  void add(const std::string& name, M part) {
    register_module(name, part);
  }
};

/// What all ranks are told, when rank `odd` has another module than the others.
std::string told(int world_size, int odd, const std::function<void(Parts&)>& usual,
                 const std::function<void(Parts&)>& other) {
  const auto sentences = test::run_ranks(world_size, [&](Collectives& collectives) {
    Parts parts;
    (collectives.rank() == odd ? other : usual)(parts);
    check_same_model("net", parts, "none", collectives);
  });
  CHECK(std::set(sentences.begin(), sentences.end()).size() == 1);
  return sentences[0];
}

}  // namespace

TEST_CASE("same model: ranks with the same model pass, whatever its values") {
  test::on_ranks(3, [](Collectives& collectives) {
    Parts parts;
    parts.add("fc", Linear(3, 4));
    parts.add("bn", torch::nn::BatchNorm1d(4));
    check_same_model("net", parts, "none", collectives);
    return 0;
  });
}

TEST_CASE("same model: a rank without a bias is an error on all ranks, with both counts") {
  CHECK(told(
            3, 1, [](Parts& parts) { parts.add("fc", Linear(3, 4)); },
            [](Parts& parts) { parts.add("fc", Linear(LinearOptions(3, 4).bias(false))); }) ==
        "model 'net' is not the same on all ranks: parameter 'fc.bias' (Float [4], trainable) on "
        "ranks 0 and 2; the options none on rank 1 (trainable parameters: 2 on ranks 0 and 2; 1 "
        "on rank 1)");
}

TEST_CASE("same model: ranks with other models or data are told so, all alike") {
  const auto sentences = test::run_ranks(3, [&](Collectives& collectives) {
    const bool odd = collectives.rank() == 2;
    sgd::internal::check_same_parts(odd ? "model 'a', no training data" : "model 'a', model 'b'",
                                    collectives);
  });
  for (const auto& sentence : sentences)
    CHECK(sentence ==
          "setup must register the same on all ranks: model 'a', model 'b' on ranks 0 and 1; "
          "model 'a', no training data on rank 2");
}

TEST_CASE("same model: a rank with a frozen weight is an error that names it") {
  CHECK(told(
            2, 1, [](Parts& parts) { parts.add("fc", Linear(3, 4)); },
            [](Parts& parts) {
              Linear fc(3, 4);
              fc->weight.requires_grad_(false);
              parts.add("fc", fc);
            }) ==
        "model 'net' is not the same on all ranks: parameter 'fc.weight' (Float [4, 3], "
        "trainable) on rank 0; parameter 'fc.weight' (Float [4, 3], frozen) on rank 1 (trainable "
        "parameters: 2 on rank 0; 1 on rank 1)");
}

TEST_CASE("same model: another shape is an error that all ranks are told alike, with the name") {
  CHECK(told(
            2, 0, [](Parts& parts) { parts.add("fc", Linear(3, 4)); },
            [](Parts& parts) { parts.add("fc", Linear(5, 4)); }) ==
        "model 'net' is not the same on all ranks: parameter 'fc.weight' (Float [4, 5], "
        "trainable) on rank 0; parameter 'fc.weight' (Float [4, 3], trainable) on rank 1");
}

TEST_CASE("same model: another type is an error") {
  CHECK(told(
            2, 1, [](Parts& parts) { parts.add("fc", Linear(3, 4)); },
            [](Parts& parts) {
              parts.add("fc", Linear(3, 4));
              parts.to(torch::kFloat64);
            })
            .find("(Double [4, 3], trainable) on rank 1") != std::string::npos);
}

TEST_CASE("same model: layers of one shape in another order are an error") {
  CHECK(told(
            2, 1,
            [](Parts& parts) {
              parts.add("x", Linear(3, 3));
              parts.add("y", Linear(3, 3));
            },
            [](Parts& parts) {
              parts.add("y", Linear(3, 3));
              parts.add("x", Linear(3, 3));
            })
            .find("parameter 'x.weight' (Float [3, 3], trainable) on rank 0; parameter "
                  "'y.weight' (Float [3, 3], trainable) on rank 1") != std::string::npos);
}

TEST_CASE("same model: other buffers, ties, strides or options are an error") {
  const auto plain = [](Parts& parts) {
    parts.add("a", Linear(3, 3));
    parts.add("b", Linear(3, 3));
  };
  CHECK(told(2, 1, plain, [&](Parts& parts) {
          plain(parts);
          parts.register_buffer("seen", torch::zeros({1}, torch::kLong));
        }).find("buffer 'seen' (Long [1]) on rank 1") != std::string::npos);
  CHECK(told(2, 1, plain, [&](Parts& parts) {
          Linear shared(3, 3);
          parts.add("a", shared);
          parts.add("b", shared);
        }).find("parameter 'b.weight' (the same as 'a.weight') on rank 1") != std::string::npos);
  CHECK(told(2, 1, plain, [&](Parts& parts) {
          plain(parts);
          const torch::NoGradGuard no_grad;
          auto weight = parts.parameters()[0];
          weight.set_data(weight.t().contiguous().t());
        }).find("with strides [1, 3]") != std::string::npos);

  const auto sentences = test::run_ranks(2, [&](Collectives& collectives) {
    Parts parts;
    plain(parts);
    check_same_model("net", parts, collectives.rank() == 0 ? "x" : "y", collectives);
  });
  CHECK(sentences[0] ==
        "model 'net' is not the same on all ranks: the options x on rank 0; the options y on rank "
        "1");
  CHECK(sentences[1] == sentences[0]);
}

TEST_CASE("same model: rank 0's values of any type and strides are broadcast") {
  const auto all = test::on_ranks(3, [](Collectives& collectives) {
    const int rank = collectives.rank();
    std::vector<torch::Tensor> tensors{torch::full({3}, rank + 0.5),
                                       torch::full({2, 2}, rank, torch::kLong),
                                       torch::full({4}, rank == 0, torch::kBool),
                                       torch::full({2, 3}, rank + 0.25).t(),
                                       torch::full({}, rank, torch::kBFloat16),
                                       torch::empty({0})};
    broadcast_tensors(tensors, collectives);
    return tensors;
  });
  for (const auto& tensors : all) {
    CHECK(tensors[0].equal(torch::full({3}, 0.5)));
    CHECK(tensors[1].equal(torch::zeros({2, 2}, torch::kLong)));
    CHECK(tensors[2].all().item<bool>());
    CHECK(tensors[3].equal(torch::full({3, 2}, 0.25)));
    CHECK(tensors[4].item<float>() == 0);
  }
}

TEST_CASE("same model: a broadcast counts as a write for autograd") {
  test::on_ranks(2, [](Collectives& collectives) {
    auto weight = torch::ones({2}, torch::requires_grad());
    const auto loss = (weight * weight).sum();
    broadcast_tensors(std::vector{weight}, collectives);
    if (collectives.rank() == 1) CHECK_THROWS(loss.backward());
    return 0;
  });
}
