#pragma once

#include "sgd/internal/exchange.hpp"

#include <chrono>
#include <cstdint>
#include <string>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// The exchange as LibTorch code sees it: one object a rank, on its compute thread. Everything here
/// throws `Exception` when the group has failed (see `Exchange::wait`).
///
/// Tensors may lie on any device and in any memory: what others can't reach goes through a buffer
/// that they can.
class Collectives {
 public:
  Collectives(Exchange& exchange, std::chrono::milliseconds limit);

  int rank() const { return exchange_.place().rank; }
  int world_size() const { return exchange_.place().world_size; }
  Exchange& exchange() const { return exchange_; }

  // --- for the user's operator, by name ---
  /// In place, the same bits on all ranks.
  void all_reduce(torch::Tensor tensor, Reduce reduce);
  void broadcast(torch::Tensor tensor, int root);
  /// [world_size, *], in rank order; `tensor` must have one shape on all ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  void barrier();

  // --- for gradient buckets ---
  /// A flat buffer that others reach, [count], zeroed. On a GPU: a tensor of that device.
  torch::Tensor allocate(std::int64_t count, torch::ScalarType type, torch::Device device);
  std::uint32_t open_channel(std::string name) { return exchange_.open_channel(std::move(name)); }
  /// Starts the weighted average of a buffer made by `allocate`, in place, and returns at once.
  Exchange::Ticket start_average(std::uint32_t channel, torch::Tensor& flat, double weight);
  void wait(Exchange::Ticket ticket);

  /// Nanoseconds that this rank has spent waiting in collectives since it was made.
  std::int64_t waited_ns() const { return waited_ns_; }

 private:
  void run(const Contribution& contribution);

  Exchange& exchange_;
  std::chrono::milliseconds limit_;
  std::int64_t waited_ns_ = 0;
};

}  // namespace troupe::sgd::internal
