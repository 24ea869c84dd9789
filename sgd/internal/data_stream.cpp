#include "sgd/internal/data_stream.hpp"

#include "sgd/internal/blob_name.hpp"
#include "sgd/internal/refuse.hpp"

#include <algorithm>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

constexpr std::int64_t kStandIn = 2;  // samples: batch norm can't do with one

}  // namespace

DataStream::DataStream(std::string what, DataLoader loader, Share share, torch::Device device,
                       Collectives* collectives)
    : what_(std::move(what)),
      loader_(std::move(loader)),
      share_(share),
      device_(device),
      steps_(plan(0, false).steps()) {
  if (collectives != nullptr) agree(collectives);
}

/// Every rank must come to every step, so the one with the most steps decides.
void DataStream::agree(Collectives* collectives) {
  const std::int64_t size = loader_.dataset.size();
  const torch::Tensor mine = torch::tensor({size, steps_, std::int64_t{loader_.options.shard}});
  const torch::Tensor all = collectives->all_gather(mine);
  const auto at = all.accessor<std::int64_t, 2>();
  for (int rank = 0; rank < share_.world_size; ++rank) {
    const auto has = [&](int r) {
      return "rank " + std::to_string(r) + " has " + std::to_string(at[r][0]) + " samples in " +
             std::to_string(at[r][1]) + " steps" + (at[r][2] != 0 ? "" : " of its own");
    };
    const bool differs = at[rank][0] != at[0][0] || at[rank][1] != at[0][1];
    if (at[rank][2] != at[0][2] || (at[0][2] != 0 && differs))
      refuse(what_ + ": " + has(0) + ", " + has(rank) +
             ": data that are shared out must be the same on all ranks; with shard = false each "
             "rank may have its own");
    steps_ = std::max(steps_, at[rank][1]);
  }
  for (int rank = 0; rank < share_.world_size; ++rank)
    if (at[rank][0] == 0 && steps_ > 0)
      refuse(what_ + ": rank " + std::to_string(rank) +
             " has none, others have: give it one sample at least, or share the data out");
}

EpochPlan DataStream::plan(std::int64_t epoch, bool shuffle) const {
  LoaderOptions options = loader_.options;
  options.shuffle = shuffle;
  return EpochPlan(loader_.dataset.size(), options, share_, epoch);
}

std::int64_t DataStream::global_batch() const {
  if (!loader_.options.shard) return loader_.options.batch_size;
  return share_.global_batch != 0 ? share_.global_batch
                                  : loader_.options.batch_size * share_.world_size;
}

void DataStream::start_epoch() { place(epoch_ + 1, 0); }

void DataStream::place(std::int64_t epoch, std::int64_t step) {
  source_.reset();
  epoch_ = epoch;
  step_ = step;
  if (epoch > 0) plan_ = plan(epoch - 1, loader_.options.shuffle);
}

std::int64_t DataStream::samples(std::int64_t step) const {
  return step < plan_->steps() ? plan_->indices(step).size(0) : 0;
}

Batch DataStream::batch() {
  if (samples(step_) == 0) return stand_in();
  if (!source_)
    source_.emplace(loader_.dataset, *plan_, share_,
                    BatchSource::Range{epoch_ - 1, step_, plan_->steps()}, loader_.options.prefetch,
                    device_);
  return source_->next();
}

Batch DataStream::stand_in() const {
  LoaderOptions options = loader_.options;
  options.batch_size = std::min(kStandIn, loader_.dataset.size());
  options.shuffle = false;
  options.shard = false;
  const EpochPlan first(loader_.dataset.size(), options, share_, 0);
  return BatchSource(loader_.dataset, first, share_, {0, 0, 1}, 0, device_).next();
}

void DataStream::save(CheckpointWriter& out, std::string_view name) const {
  out.integer(blob_name(name, "epoch"), epoch_);
  out.integer(blob_name(name, "step"), step_);
  out.integer(blob_name(name, "steps"), steps_);
  out.integer(blob_name(name, "global_batch"), global_batch());
}

void DataStream::load(const CheckpointReader& in, std::string_view name) {
  const std::int64_t step = in.integer(blob_name(name, "step"));
  const bool ended = step >= in.integer(blob_name(name, "steps"));
  const std::int64_t global = in.integer(blob_name(name, "global_batch"));
  place(in.integer(blob_name(name, "epoch")),
        ended ? steps_ : std::min(steps_, step * global / global_batch()));
}

}  // namespace troupe::sgd::internal
