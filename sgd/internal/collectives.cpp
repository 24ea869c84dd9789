#include "sgd/internal/collectives.hpp"

#include "libactor/clock.hpp"
#include "sgd/internal/dtype.hpp"
#include "sgd/internal/refuse.hpp"

#include <algorithm>
#include <bit>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

constexpr std::size_t kLeastBorrowed = std::size_t{64} << 10;

DType checked_dtype(const torch::Tensor& tensor) {
  if (!tensor.defined()) refuse("a collective was given an undefined tensor");
  const DType dtype = dtype_of(tensor.scalar_type());
  if (tensor.layout() != torch::kStrided || dtype == DType::none)
    refuse("a collective was given a tensor that is sparse, quantized or of type " +
           std::string(c10::toString(tensor.scalar_type())) + ": make it dense first");
  return dtype;
}

/// Of a tensor that is plain in memory.
std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

bool is_plain(const torch::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/// `memory` as a tensor like `like`.
torch::Tensor as_tensor(std::span<std::byte> memory, const torch::Tensor& like) {
  return torch::from_blob(memory.data(), like.sizes(),
                          torch::TensorOptions().dtype(like.scalar_type()));
}

std::span<std::byte> allocate_in(Mail& mail, std::size_t size_bytes) {
  const auto memory = mail.allocate(size_bytes);
  if (memory.empty())
    throw Exception(make_error(
        Errc::out_of_resources,
        "no " + std::to_string(size_bytes) + " bytes are left that all ranks of the group reach"));
  return memory;
}

}  // namespace

Collectives::Collectives(Exchange& exchange, std::chrono::milliseconds limit)
    : exchange_(exchange), limit_(limit) {}

void Collectives::all_reduce(torch::Tensor tensor, Reduce reduce) {
  run_in_place(tensor, {.kind = Contribution::Kind::reduce, .reduce = reduce});
}

void Collectives::broadcast(torch::Tensor tensor, int root) {
  run_in_place(tensor, {.kind = Contribution::Kind::broadcast, .root = root});
}

void Collectives::run_in_place(torch::Tensor& tensor, Contribution contribution) {
  contribution.dtype = checked_dtype(tensor);
  if (world_size() == 1) return;
  const torch::NoGradGuard no_grad;
  if (is_plain(tensor) && exchange_.mail().address_of(bytes_of(tensor)) != 0) {
    contribution.data = bytes_of(tensor);
    run(contribution);
    tensor.unsafeGetTensorImpl()->bump_version();  // as any write in place
    return;
  }
  const Memory memory = borrow(tensor.nbytes());
  const auto copy = as_tensor(memory, tensor);
  copy.copy_(tensor);
  contribution.data = memory.first(tensor.nbytes());
  run(contribution);
  tensor.copy_(copy);
  give_back(memory);
}

torch::Tensor Collectives::all_gather(const torch::Tensor& tensor) {
  const DType dtype = checked_dtype(tensor);
  const torch::NoGradGuard no_grad;
  auto shape = tensor.sizes().vec();
  shape.insert(shape.begin(), world_size());
  auto gathered = torch::empty(shape, tensor.options().requires_grad(false));
  if (world_size() == 1) {
    gathered[0].copy_(tensor);
    return gathered;
  }
  const Memory memory = borrow(gathered.nbytes());
  const auto copy = as_tensor(memory, gathered);
  copy[rank()].copy_(tensor);
  run({.kind = Contribution::Kind::gather,
       .dtype = dtype,
       .data = memory.first(gathered.nbytes())});
  gathered.copy_(copy);
  give_back(memory);
  return gathered;
}

void Collectives::barrier() {
  if (world_size() > 1) run({.kind = Contribution::Kind::barrier, .dtype = DType::none});
}

torch::Tensor Collectives::allocate(std::int64_t count, torch::ScalarType type,
                                    torch::Device device) {
  const auto options = torch::TensorOptions().dtype(type);
  if (!device.is_cpu() || world_size() == 1) return torch::zeros({count}, options.device(device));
  const std::size_t size = static_cast<std::size_t>(count) * c10::elementSize(type);
  if (size == 0) return torch::zeros({0}, options);
  Mail& mail = exchange_.mail();
  return torch::from_blob(
      allocate_in(mail, size).data(), {count}, [keep = mail.memory()](void*) {}, options);
}

Exchange::Ticket Collectives::start_average(std::uint32_t channel, torch::Tensor& flat,
                                            double weight) {
  Contribution mine{.kind = Contribution::Kind::reduce,
                    .reduce = Reduce::average,
                    .dtype = checked_dtype(flat),
                    .weight = weight};
  if (world_size() == 1) return exchange_.start(channel, mine);
  if (is_plain(flat) && exchange_.mail().address_of(bytes_of(flat)) != 0) {
    mine.data = bytes_of(flat);
    return exchange_.start(channel, mine);
  }
  const torch::NoGradGuard no_grad;
  const Memory memory = borrow(flat.nbytes());
  as_tensor(memory, flat).copy_(flat);
  mine.data = memory.first(flat.nbytes());
  const auto ticket = exchange_.start(channel, mine);
  detours_[{ticket.channel, ticket.sequence}] = {flat, memory};
  return ticket;
}

void Collectives::wait(Exchange::Ticket ticket) {
  auto detour = detours_.extract({ticket.channel, ticket.sequence});
  finish(ticket);
  if (detour.empty()) return;
  const torch::NoGradGuard no_grad;
  auto& [flat, memory] = detour.mapped();
  flat.copy_(as_tensor(memory, flat));
  give_back(memory);
}

void Collectives::finish(Exchange::Ticket ticket) {
  const SystemClock clock;
  const auto begin = clock.now();
  auto waited = exchange_.wait(ticket, limit_);
  waited_ns_ += std::chrono::nanoseconds(clock.now() - begin).count();
  if (!waited) throw Exception(waited.error());
}

Collectives::Memory Collectives::borrow(std::size_t size_bytes) {
  const auto fits = std::find_if(unused_.begin(), unused_.end(),
                                 [&](Memory memory) { return memory.size() >= size_bytes; });
  if (fits != unused_.end()) {
    const Memory memory = *fits;
    unused_.erase(fits);
    return memory;
  }
  return allocate_in(exchange_.mail(), std::bit_ceil(std::max(size_bytes, kLeastBorrowed)));
}

}  // namespace troupe::sgd::internal
