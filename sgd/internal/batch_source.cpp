#include "sgd/internal/batch_source.hpp"

#include "libactor/assert.hpp"
#include "sgd/internal/generators.hpp"

#include <dlfcn.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

/// LibTorch's operators stay on this thread: the cores are the compute threads'.
/// (`at::set_num_threads` would speak for other threads too.)
void use_one_core() {
  at::get_num_threads();  // a thread's first question sets the number: not after us
  if (void* set = ::dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set)(1);
}

/// Applies `change` to each tensor that is there.
Batch changed(Batch batch, auto&& change) {
  for (auto& feature : batch.features) feature = change(feature);
  if (batch.target.defined()) batch.target = change(batch.target);
  return batch;
}

}  // namespace

struct BatchSource::Impl {
  const AnyDataset dataset;
  const EpochPlan plan;
  const Share share;
  const Range range;
  const std::int64_t prefetch;
  const torch::Device device;

  RankGenerator generator{share.seed, torch::kCPU};
  std::int64_t next_step = range.first_step;  ///< that `next` gives

  std::mutex mutex = {};
  std::condition_variable moved = {};
  std::deque<Batch> ready = {};
  std::exception_ptr failure = {};  ///< after the batches in `ready`
  bool stopping = false;
  std::thread thread = {};

  /// On the CPU.
  Batch make(std::int64_t step) {
    const torch::Tensor indices = plan.indices(step);
    if (indices.numel() == 0) return {};
    const auto rank = static_cast<std::uint64_t>(share.rank);
    const auto seed = mix_seed(share.seed, rank, static_cast<std::uint64_t>(range.epoch));
    generator.seed(mix_seed(seed, rank, static_cast<std::uint64_t>(step)));
    const auto use = generator.use();
    return dataset.batch(indices);
  }

  void run() {
    use_one_core();
    try {
      for (std::int64_t step = range.first_step; step < range.end_step; ++step) {
        Batch batch = make(step);
        // Only from pinned memory does a copy to the device run beside other work.
        if (device.is_cuda())
          batch = changed(std::move(batch), [](const auto& tensor) { return tensor.pin_memory(); });
        std::unique_lock lock(mutex);
        ready.push_back(std::move(batch));
        moved.notify_all();
        moved.wait(lock, [&] { return stopping || std::ssize(ready) < prefetch; });
        if (stopping) return;
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      moved.notify_all();
    }
  }

  Batch take() {
    std::unique_lock lock(mutex);
    moved.wait(lock, [&] { return !ready.empty() || failure; });
    if (ready.empty()) std::rethrow_exception(failure);
    Batch batch = std::move(ready.front());
    ready.pop_front();
    moved.notify_all();
    return batch;
  }
};

BatchSource::BatchSource(AnyDataset dataset, EpochPlan plan, Share share, Range range,
                         std::int64_t prefetch, torch::Device device)
    : impl_(new Impl{.dataset = std::move(dataset),
                     .plan = std::move(plan),
                     .share = share,
                     .range = range,
                     .prefetch = prefetch,
                     .device = device}) {
  if (prefetch > 0) impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

BatchSource::~BatchSource() {
  if (!impl_->thread.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->moved.notify_all();
  }
  impl_->thread.join();
}

Batch BatchSource::next() {
  TROUPE_ASSERT(impl_->next_step < impl_->range.end_step, impl_->next_step);
  Batch batch = impl_->prefetch > 0 ? impl_->take() : impl_->make(impl_->next_step);
  ++impl_->next_step;
  return changed(std::move(batch), [&](const auto& tensor) {
    return tensor.to(impl_->device, /*non_blocking=*/true);
  });
}

}  // namespace troupe::sgd::internal
