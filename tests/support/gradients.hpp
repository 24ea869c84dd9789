#pragma once

#include "sgd/internal/gradient_buckets.hpp"
#include "tests/support/ranks.hpp"

#include <functional>
#include <set>
#include <string>
#include <vector>

/// What tests of gradients over several ranks need.
namespace troupe::test {

using sgd::Average;
using sgd::Compression;
using sgd::DdpOptions;
using sgd::internal::Collectives;
using sgd::internal::GradientBuckets;
using torch::nn::Linear;
using torch::nn::LinearOptions;

using Tensors = std::vector<torch::Tensor>;

inline Tensors gradients(const torch::nn::Module& module) {
  Tensors all;
  for (const auto& p : module.parameters())
    all.push_back(p.grad().defined() ? p.grad().clone() : torch::Tensor());
  return all;
}

inline Tensors values(const torch::nn::Module& module) {
  Tensors all;
  for (const auto& p : module.parameters()) all.push_back(p.detach().clone());
  return all;
}

inline bool equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !a[i].equal(b[i]))) return false;
  return true;
}

inline bool close(const Tensors& a, const Tensors& b, double relative, double absolute) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].allclose(b[i], relative, absolute)) return false;
  return a.size() == b.size();
}

inline bool all_equal(const std::vector<Tensors>& ranks) {
  for (const auto& rank : ranks)
    if (!equal(rank, ranks[0])) return false;
  return true;
}

/// Σ share·x in rank order, each factor cast once.
inline torch::Tensor average(const Tensors& by_rank, const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  torch::Tensor result;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto term = by_rank[rank] * static_cast<float>(weights[rank] / sum);
    result = rank == 0 ? term : result + term;
  }
  return result;
}

/// Two layers that a step may use or leave out.
struct Branches : torch::nn::Module {
  Branches(std::int64_t a_size = 4, std::int64_t b_size = 4)
      : a(register_module("a", Linear(LinearOptions(a_size, 1).bias(false)))),
        b(register_module("b", Linear(LinearOptions(b_size, 1).bias(false)))) {}
  Linear a, b;
};

/// y = w·x with w = 2.
struct Slope : torch::nn::Module {
  Slope() : w(register_parameter("w", torch::full({1}, 2.0))) {}
  torch::Tensor loss(const torch::Tensor& x) { return (w * x).pow(2).mean(); }
  torch::Tensor w;
};

inline torch::nn::Sequential mlp() {
  return torch::nn::Sequential(Linear(10, 32), torch::nn::ReLU(), Linear(32, 32), torch::nn::Tanh(),
                               Linear(32, 3));
}

/// Buckets of one gradient each.
inline DdpOptions tiny() { return {.bucket_bytes = 1, .first_bucket_bytes = 1}; }

inline DdpOptions finding() { return {.find_unused_parameters = true}; }

/// One sentence for all ranks.
inline std::string told(int world_size, const std::function<void(Collectives&)>& body) {
  const auto sentences = run_ranks(world_size, body);
  CHECK(std::set(sentences.begin(), sentences.end()).size() == 1);
  return sentences[0];
}

inline torch::Tensor batch(std::uint64_t seed, torch::IntArrayRef shape) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed));
}

}  // namespace troupe::test
