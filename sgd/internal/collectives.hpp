#pragma once

#include "sgd/internal/exchange.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace troupe::sgd::internal {

/// The exchange as LibTorch code sees it: one object a rank, on its compute thread. Everything here
/// throws `Exception` when the group has failed (see `Exchange::wait`).
///
/// Tensors may lie on any device, in any memory and with any strides: what others can't reach goes
/// through a buffer that they can, by two copies. That of a GPU lies in the host's memory too.
/// With one rank nothing is done, and no tensor is touched.
class Collectives {
 public:
  Collectives(Exchange& exchange, std::chrono::milliseconds limit);

  int rank() const { return exchange_.place().rank; }
  int world_size() const { return exchange_.place().world_size; }
  Exchange& exchange() const { return exchange_; }

  // --- for the user's operator, by name ---
  /// In place, the same bits on all ranks. Sum, least or greatest; average: each rank counts alike.
  void all_reduce(torch::Tensor tensor, Reduce reduce);
  void broadcast(torch::Tensor tensor, int root);
  /// [world_size, *], in rank order; `tensor` must have one shape on all ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  void barrier();

  // --- for gradient buckets ---
  /// A flat buffer, [count], zeroed: what needs no copy to be exchanged. On a GPU: a tensor of that
  /// device. It may outlive this.
  torch::Tensor allocate(std::int64_t count, torch::ScalarType type, torch::Device device);
  std::uint32_t open_channel(std::string name) { return exchange_.open_channel(std::move(name)); }
  /// Starts the weighted average of a buffer made by `allocate`, in place, and returns at once.
  Exchange::Ticket start_average(std::uint32_t channel, torch::Tensor& flat, double weight);
  /// Once for each ticket; `flat` is the average then.
  void wait(Exchange::Ticket ticket);

  /// Nanoseconds that this rank has spent waiting in collectives since it was made.
  std::int64_t waited_ns() const { return waited_ns_; }

 private:
  using Memory = std::span<std::byte>;

  void finish(Exchange::Ticket ticket);
  void run(const Contribution& contribution) { finish(exchange_.start(0, contribution)); }
  void run_in_place(torch::Tensor& tensor, Contribution contribution);
  /// Memory that others reach, for a time.
  Memory borrow(std::size_t size_bytes);
  void give_back(Memory memory) { unused_.push_back(memory); }

  /// An average of what others can't reach.
  struct Detour {
    torch::Tensor flat;
    Memory memory;
  };

  Exchange& exchange_;
  std::chrono::milliseconds limit_;
  std::int64_t waited_ns_ = 0;
  std::vector<Memory> unused_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Detour> detours_;  // by ticket
};

}  // namespace troupe::sgd::internal
