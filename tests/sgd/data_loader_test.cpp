#include "sgd/data_loader.hpp"

#include "libactor/result.hpp"

#include <doctest/doctest.h>

#include <torch/torch.h>

using namespace troupe;

namespace {

/// Sample i is [i, i + 0.5] with the class i.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {torch::tensor({double(i), double(i) + 0.5}), torch::tensor(i)};
  }
  torch::optional<std::size_t> size() const override { return 10; }
};

torch::Tensor rows(std::vector<std::int64_t> indices) { return torch::tensor(indices); }

}  // namespace

TEST_CASE("data_loader: bytes of images become floats in [0, 1]") {
  const sgd::AnyDataset images(sgd::Split{
      torch::tensor({0, 51, 255}, torch::kUInt8).view({3, 1, 1, 1}), torch::tensor({4, 5, 6})});
  CHECK(images.size() == 3);
  const auto batch = images.batch(rows({2, 1}));
  CHECK(batch.features[0].equal(torch::tensor({1.0F, 0.2F}).view({2, 1, 1, 1})));
  CHECK(batch.target.equal(torch::tensor({6, 5})));
}

TEST_CASE("data_loader: tensors in memory give rows of every feature and of the target") {
  const sgd::AnyDataset data({torch::arange(6).view({3, 2}), torch::arange(3) * 10},
                             torch::arange(3) * 0.5);
  CHECK(data.size() == 3);
  const auto batch = data.batch(rows({2, 0}));
  REQUIRE(batch.features.size() == 2);
  CHECK(batch.features[0].equal(torch::tensor({4, 5, 0, 1}).view({2, 2})));
  CHECK(batch.features[1].equal(torch::tensor({20, 0})));
  CHECK(batch.target.equal(torch::tensor({1.0, 0.0})));
}

TEST_CASE("data_loader: data sets of torch::data are taken as they are") {
  const auto check = [](const sgd::AnyDataset& data, double offset) {
    CHECK(data.size() == 10);
    const auto batch = data.batch(rows({7, 3}));
    CHECK(batch.features[0].equal(torch::tensor({7.0, 7.5, 3.0, 3.5}).view({2, 2}) + offset));
    CHECK(batch.target.equal(torch::tensor({7, 3})));
  };
  const auto add_one = [] {
    return torch::data::transforms::TensorLambda<>([](torch::Tensor data) { return data + 1; });
  };
  check(sgd::AnyDataset(Numbers()), 0);
  check(sgd::AnyDataset(Numbers().map(add_one())), 1);
  check(sgd::AnyDataset(Numbers().map(add_one()).map(torch::data::transforms::Stack<>())), 1);
}

TEST_CASE("data_loader: a data set without targets gives batches without target") {
  const sgd::AnyDataset data(torch::data::datasets::TensorDataset(torch::arange(4)));
  const auto batch = data.batch(rows({3, 1}));
  CHECK(batch.features[0].equal(torch::tensor({3, 1})));
  CHECK_FALSE(batch.target.defined());
}

TEST_CASE("data_loader: tensors that don't count the same samples are refused by name") {
  CHECK_THROWS_WITH_AS(
      sgd::AnyDataset({torch::zeros({3, 2}), torch::zeros({2})}, torch::zeros({3})),
      "bad request: data set: 2 samples in feature 1, 3 in the target", Exception);
  CHECK_THROWS_WITH_AS(sgd::AnyDataset(sgd::Split{torch::zeros({2, 1, 1, 1}), torch::zeros({3})}),
                       "bad request: data set: 2 samples in the images, 3 in the target",
                       Exception);
  CHECK_THROWS_AS(sgd::AnyDataset({torch::zeros(3)}, torch::Tensor()), Exception);
  CHECK_THROWS_AS(sgd::AnyDataset({}, torch::zeros(3)), Exception);
}
