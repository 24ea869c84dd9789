#include "sgd/internal/epoch_plan.hpp"

#include "sgd/internal/limits.hpp"
#include "sgd/internal/order.hpp"
#include "sgd/internal/refuse.hpp"

#include <algorithm>
#include <string>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

void check_between(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    refuse(std::string(name) + " is " + std::to_string(value) + "; " + std::to_string(low) +
           " to " + std::to_string(high) + " are possible");
}

std::int64_t padded_size(std::int64_t size, std::int64_t step, std::int64_t parts, Tail tail) {
  const std::int64_t left = size % step;
  switch (tail) {
    case Tail::drop: return size - left;
    case Tail::pad: return size - left + std::min(step, (left + parts - 1) / parts * parts);
    case Tail::split: break;
  }
  return size;
}

}  // namespace

void check(const LoaderOptions& options) {
  check_between("batch_size", options.batch_size, 1, limits::kMaxBatch);
  check_between("prefetch", options.prefetch, 0, limits::kMaxPrefetch);
}

EpochPlan::EpochPlan(std::int64_t dataset_size, const LoaderOptions& options, Share share,
                     std::int64_t epoch)
    : part_(options.shard ? share.rank : 0),
      parts_(options.shard ? share.world_size : 1),
      order_(options.shuffle ? shuffled(dataset_size, dataset_size, share.seed, epoch)
                             : torch::arange(dataset_size, torch::kInt64)) {
  check(options);
  const bool global = options.shard && share.global_batch != 0;
  if (global) check_between("the global batch size", share.global_batch, 1, limits::kMaxBatch);
  step_ = global ? share.global_batch : options.batch_size * parts_;
  padded_ = padded_size(dataset_size, step_, parts_, options.tail);
}

torch::Tensor EpochPlan::indices(std::int64_t step) const {
  const std::int64_t begin = step * step_;
  const std::int64_t count = std::min(step_, padded_ - begin);
  const std::int64_t from = begin + count * part_ / parts_;
  const std::int64_t to = begin + count * (part_ + 1) / parts_;
  if (to <= order_.size(0)) return order_.narrow(0, from, to - from);
  return order_.index_select(0, torch::arange(from, to, torch::kInt64).remainder(order_.size(0)));
}

}  // namespace troupe::sgd::internal
