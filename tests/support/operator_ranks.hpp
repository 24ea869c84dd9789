#pragma once

#include "sgd/internal/operator_state.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/temp_folder.hpp"

#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace troupe::test {

/// [n, 4] and classes 0 to 2 that follow from them.
inline sgd::DataLoader points(std::int64_t n, sgd::LoaderOptions options) {
  auto x = (torch::arange(n * 4).reshape({n, 4}) * 37 % 101).to(torch::kFloat) / 50 - 1;
  auto y = x.narrow(1, 0, 3).argmax(1);
  return {sgd::AnyDataset({x}, y), options};
}

/// A rank of one operator, on its own thread.
template <class Op>
struct OperatorRank {
  OperatorRank(sgd::internal::Collectives& collectives, sgd::internal::RankEnvironment environment)
      : generator(0, torch::kCPU) {
    environment.rank = environment.local_rank = collectives.rank();
    environment.world_size = collectives.world_size();
    environment.collectives = &collectives;
    environment.generator = &generator;
    driver.emplace(op, std::move(environment));
  }

  int rank() const { return op.rank(); }
  tune::Metrics train(std::int64_t num_steps = 0) {
    return driver->train({.num_steps = num_steps});
  }
  tune::Metrics validate(std::int64_t num_steps = 0) {
    return driver->validate({.num_steps = num_steps});
  }

  sgd::internal::RankGenerator generator;
  Op op;
  std::optional<sgd::internal::OperatorDriver> driver;
};

/// Runs `body` on a thread for each rank; gives what each threw, or "".
template <class Op>
std::vector<std::string> errors_of_ranks(int world_size,
                                         const sgd::internal::RankEnvironment& environment,
                                         const std::function<void(OperatorRank<Op>&)>& body) {
  return run_ranks(world_size, [&](sgd::internal::Collectives& collectives) {
    OperatorRank<Op> rank(collectives, environment);
    body(rank);
  });
}

/// The same, where nothing may be thrown.
template <class Op>
void on_ranks(int world_size, const sgd::internal::RankEnvironment& environment,
              const std::function<void(OperatorRank<Op>&)>& body) {
  for (const auto& error : errors_of_ranks<Op>(world_size, environment, body))
    if (!error.empty()) throw std::runtime_error(error);
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// All parameters and buffers, one after the other.
inline torch::Tensor flat(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> all;
  for (const auto& tensor : module.parameters()) all.push_back(tensor.flatten());
  for (const auto& tensor : module.buffers()) all.push_back(tensor.to(torch::kFloat).flatten());
  return torch::cat(all).clone();
}

/// The whole state of a rank, in a folder.
template <class Op>
void save_rank(OperatorRank<Op>& rank, const std::filesystem::path& folder) {
  auto out = unwrap(CheckpointWriter::begin(folder, {}));
  rank.driver->save_shared(*out);
  {
    const CheckpointWriter::Within own(*out, "own/");
    rank.driver->save_own(*out);
  }
  unwrap(out->commit());
}

template <class Op>
void load_rank(OperatorRank<Op>& rank, const std::filesystem::path& folder) {
  const auto in = unwrap(CheckpointReader::open(folder));
  rank.driver->load_shared(in);
  rank.driver->load_own(in.below("own/"));
}

/// Names of the state and sums of their bytes, to compare.
inline std::vector<std::string> sums(const std::filesystem::path& folder) {
  std::vector<std::string> all;
  const auto in = unwrap(CheckpointReader::open(folder));
  for (const auto& entry : in.entries()) {
    std::string line = entry.name;
    for (const auto byte : entry.xxh3) line += " " + std::to_string(byte);
    all.push_back(std::move(line));
  }
  return all;
}

}  // namespace troupe::test
