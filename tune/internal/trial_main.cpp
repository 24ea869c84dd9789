#include "tune/internal/trial_main.hpp"

#include "libactor/checkpoint_folder.hpp"
#include "libactor/id.hpp"
#include "libactor/log.hpp"
#include "tune/internal/wire.hpp"

#include <unistd.h>

namespace troupe::tune::internal {
TrialMain::TrialMain(Worker& worker) : worker_(worker), actor_(worker) {}

Result<void> TrialMain::begin() {
  auto argument = decode_argument(worker_.argument());
  if (!argument) return argument.error();
  argument_ = std::move(*argument);
  auto config = decode_config(argument_.config);
  if (!config) return config.error();
  config_ = std::move(*config);
  keys_.emplace(argument_.trial_id, argument_.experiment_id);
  place_ = {.pid = ::getpid(), .hostname = host_name(), .node_ip = "127.0.0.1"};
  schedule_.emplace(argument_.checkpoint_freq, clock_.now());
  step_began_ = clock_.now();

  const auto& folder = context().directory();
  if (auto cleaned = clean_checkpoints(folder); !cleaned) log_warn(describe(cleaned.error()));
  if (argument_.max_iteration == 0) return {};
  auto scan = newest_valid_checkpoint(folder, argument_.max_iteration);
  for (const auto& refused : scan.refused)
    actor_.note("a checkpoint can't be used: " + text_of(refused));
  if (!scan.newest) return {};
  checkpoint_ = std::move(scan.newest);
  const auto& info = checkpoint_->info();
  iteration_ = info.iteration;
  parent_uuid_ = checkpoint_->uuid();
  keys_->restore({.iteration = checkpoint_->integer(kRowIterationBlob),
                  .time_s = info.time_total_s,
                  .timesteps = info.timesteps_total >= 0 ? Value(info.timesteps_total) : Value()});
  worker_.set_iteration(iteration_);
  return {};
}

void TrialMain::ready(bool set_up) {
  actor_.ready({.iteration = iteration_,
                .checkpoint = checkpoint_ ? checkpoint_->folder().filename().string() : "",
                .uuid = checkpoint_ ? checkpoint_->uuid() : "",
                .set_up = set_up});
  step_began_ = clock_.now();
}

Result<TrialOrder> TrialMain::report(Metrics metrics, bool from_function, bool with_checkpoint) {
  if (auto settled = settle(); !settled) return settled.error();
  const auto step_time = std::chrono::duration<double>(clock_.now() - step_began_);
  ++iteration_;
  const auto row = keys_->complete({.metrics = std::move(metrics),
                                    .step_time = step_time,
                                    .from_function = from_function,
                                    .has_checkpoint = with_checkpoint},
                                   place_, clock_.wall());
  worker_.set_iteration(iteration_);
  auto order = actor_.report(iteration_, encode(row));
  step_began_ = clock_.now();
  return order;
}

bool TrialMain::save_due(const TrialOrder& order, bool can_save) const {
  if (!can_save) return false;
  if (order.save || order.decision == Decision::pause) return true;
  if (order.decision == Decision::stop) return argument_.checkpoint_at_end;
  return schedule_->due(iteration_, clock_.now());
}

Result<void> TrialMain::write_checkpoint(std::int64_t iteration,
                                         const std::function<void(CheckpointWriter&)>& write) {
  if (auto settled = settle(); !settled) return settled;
  save_began_ = clock_.now();
  writer_iteration_ = iteration;
  const auto folder = context().directory() / checkpoint_name(iteration);
  writer_.reset();
  if (auto gone = remove_checkpoint(folder); !gone && code_of(gone.error()) != Errc::not_found) {
    told_disk(gone.error());
    return {};
  }
  const auto& totals = keys_->totals();
  auto writer = CheckpointWriter::begin(
      folder, {.trial_id = argument_.trial_id,
               .iteration = writer_iteration_,
               .time_total_s = totals.time_s,
               .timesteps_total = totals.timesteps.is_int() ? totals.timesteps.as_int() : -1,
               .config_json = config_.to_json(),
               .parent_uuid = parent_uuid_});
  if (!writer) {
    told_disk(writer.error());
    return {};
  }
  writer_ = std::move(*writer);
  auto written = fence(Errc::user_code, [&] { write(*writer_); });
  if (!written) {
    writer_.reset();
    return with_context(written.error(), "save_checkpoint");
  }
  return {};
}

void TrialMain::publish_checkpoint() {
  if (!writer_) return;
  writer_->integer(kRowIterationBlob, keys_->totals().iteration);
  publishing_ =
      std::async(std::launch::async, [writer = std::move(writer_)]() { return writer->commit(); });
  const auto now = clock_.now();
  schedule_->saved(now, now - save_began_);
}

Result<void> TrialMain::settle() {
  if (!publishing_.valid()) return {};
  auto uuid = publishing_.get();
  if (!uuid) {
    told_disk(uuid.error());
    return {};
  }
  parent_uuid_ = *uuid;
  return actor_.saved(writer_iteration_, checkpoint_name(writer_iteration_), *uuid);
}

void TrialMain::told_disk(const Error& error) {
  actor_.note("no checkpoint of iteration " + std::to_string(writer_iteration_) +
              ", the one before stays: " + text_of(error));
  schedule_->saved(clock_.now(), {});
}

int TrialMain::fail(const Error& error) {
  (void)settle();  // a checkpoint that is on its way serves the restart
  worker_.fail(text_of(error));
  return 1;
}

void TrialMain::note_unread_keys() {
  std::string keys;
  for (const auto& key : config_.unread()) keys += (keys.empty() ? "'" : ", '") + key + "'";
  if (!keys.empty()) actor_.note("config has what setup() never read: " + keys);
}

}  // namespace troupe::tune::internal
