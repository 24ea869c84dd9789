#include "sgd/internal/rank.hpp"

#include "libactor/clock.hpp"
#include "libactor/log.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/operator_function.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include <ATen/Parallel.h>
#include <torch/cuda.h>

namespace troupe::sgd::internal {
namespace {

/// Rank i of a process computes on its i-th GPU, or shares them when there are fewer.
torch::Device device_of(const RankPlan& plan, int local_rank) {
  if (!plan.use_gpu) return torch::kCPU;
  const auto count = static_cast<int>(torch::cuda::device_count());
  if (count == 0)
    throw Exception(make_error(Errc::bad_request,
                               "use_gpu is set, and this LibTorch finds no CUDA device; leave it "
                               "away to train on CPUs"));
  return torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank % count));
}

/// User code that calls exit() has the thread's own objects destroyed first, then the process's,
/// under the feet of the other ranks: this one ends the process before.
struct ExitGuard {
  bool armed = false;
  ~ExitGuard() {
    if (!armed) return;
    std::fprintf(stderr, "user code of a rank has called exit()\n");
    std::fflush(nullptr);
    ::_exit(1);
  }
};
thread_local ExitGuard exit_guard;

}  // namespace

Rank::Rank(Spec spec)
    : spec_(std::move(spec)), interval_(limits::kFirstSnapshot), thread_([this] { run(); }) {}

Rank::~Rank() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Rank::call(const CallSpec& call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
  }
  changed_.notify_all();
}

bool Rank::ended_within(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  end_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, limit, [this] { return ended_; });
}

RankStatus Rank::status() const {
  RankStatus status{.rank = spec_.rank};
  {
    const std::lock_guard lock(mutex_);
    status.doing = doing_;
    status.batch = batch_;
    status.batch_count = batch_count_;
  }
  const auto missing = spec_.exchange->missing();
  status.collective = missing.collective;
  status.missing.assign(missing.ranks.begin(), missing.ranks.end());
  status.waiting_ms = missing.since.count();
  return status;
}

void Rank::run() {
  exit_guard.armed = true;
  at::set_num_threads(spec_.plan.threads);
  const auto told = fence(Errc::user_code, [this] {
    try {
      set_up();
    } catch (const tune::ConfigError& e) {
      throw Exception(make_error(Errc::bad_request, e.what()));
    }
  });
  spec_.tell({.rank = spec_.rank,
              .global_batch = told ? driver_->global_batch() : 0,
              .error = told ? Error{} : told.error()});
  for (std::unique_lock lock(mutex_);;) {
    doing_ = "idle";
    changed_.wait(lock, [this] { return end_ || !calls_.empty(); });
    if (end_) break;
    const auto call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    carry_out(call);
    lock.lock();
  }
  driver_.reset();
  operator_.reset();
  generator_in_use_.reset();
  exit_guard.armed = false;
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Rank::set_up() {
  const auto& plan = spec_.plan;
  const auto device = device_of(plan, local_rank());
  collectives_ =
      std::make_unique<Collectives>(*spec_.exchange, std::chrono::milliseconds(plan.timeout_ms));
  generator_ = std::make_unique<RankGenerator>(
      mix_seed(plan.seed, static_cast<std::uint64_t>(spec_.rank), 0), device);
  generator_in_use_ = generator_->use();
  auto config = tune::Config::from_json(plan.config);
  operator_ = spec_.make();
  driver_ = std::make_unique<OperatorDriver>(
      *operator_, RankEnvironment{.context = spec_.context,
                                  .config = unwrap(std::move(config)),
                                  .rank = spec_.rank,
                                  .local_rank = local_rank(),
                                  .world_size = plan.member.world_size,
                                  .device = device,
                                  .use_fp16 = plan.use_fp16,
                                  .seed = plan.seed,
                                  .global_batch = plan.global_batch,
                                  .shard_data = plan.shard_data,
                                  .scheduler_step = static_cast<SchedulerStep>(plan.scheduler_step),
                                  .collectives = collectives_.get(),
                                  .generator = generator_.get(),
                                  .doing =
                                      [this](std::string_view doing, std::int64_t batch,
                                             std::int64_t batch_count) {
                                        const std::lock_guard lock(mutex_);
                                        doing_ = doing;
                                        batch_ = batch;
                                        batch_count_ = batch_count;
                                      },
                                  .step_done = [this] { step_done(); }});
  if (!plan.restore.empty()) restore();
  collectives_->barrier();
  last_snapshot_ = SystemClock().now();
}

/// The shared part from the first state, its own from whichever has it.
void Rank::restore() {
  const auto shared = unwrap(open_state(spec_.plan.restore.front()));
  driver_->load_shared(shared);
  for (const auto& path : spec_.plan.restore) {
    const auto own = unwrap(open_state(path)).below(rank_part(spec_.rank));
    if (own.entries().empty()) continue;
    driver_->load_own(own);
    if (shared.has(kCallBlob) && own.has(kResultBlob)) {
      call_done_ = static_cast<std::uint64_t>(shared.integer(kCallBlob));
      result_done_ = own.text(kResultBlob);
    }
    return;
  }
  driver_->load_like(shared.below(rank_part(0)));
}

void Rank::carry_out(const CallSpec& call) {
  RankTold told{.rank = spec_.rank, .call = call.id};
  const auto done = fence(Errc::user_code, [&] {
    if (call.id == call_done_) {  // it had ended when the process was lost
      told.metrics = result_done_;
      return;
    }
    told.metrics = perform(call).to_json();
    if (call.kind != CallSpec::Kind::form) take_snapshot(&call, told.metrics);
  });
  if (!done) told.error = done.error();
  spec_.tell(std::move(told));
}

tune::Metrics Rank::perform(const CallSpec& call) {
  const auto options = [&] {
    return PassOptions{
        .num_steps = call.num_steps,
        .profile = call.profile,
        .info = call.info.empty() ? tune::Config() : unwrap(tune::Config::from_json(call.info))};
  };
  switch (call.kind) {
    case CallSpec::Kind::train: return driver_->train(options());
    case CallSpec::Kind::validate:
      if (call.optional && !driver_->has_validation_data()) return {};
      return driver_->validate(options());
    case CallSpec::Kind::update_scheduler: driver_->update_scheduler(call.metric); return {};
    case CallSpec::Kind::call_operators: return find_function(call.function)(*operator_);
    case CallSpec::Kind::snapshot:
    case CallSpec::Kind::form: return {};
  }
  return {};
}

void Rank::step_done() {
  if (!spec_.snapshots->within_calls() || !driver_->can_stop_between_steps()) return;
  if (++steps_ >= interval_) take_snapshot(nullptr, {});
}

void Rank::take_snapshot(const CallSpec* ended, const std::string& metrics) {
  if (!spec_.snapshots->enabled()) return;
  const auto begun = SystemClock().now();
  spec_.snapshots->take(
      *collectives_, local_rank(),
      [&](CheckpointWriter& out) {
        driver_->save_shared(out);
        out.integer(kProcessesBlob, spec_.plan.member.process_count);
        if (ended) out.integer(kCallBlob, static_cast<std::int64_t>(ended->id));
      },
      [&](CheckpointWriter& out) {
        driver_->save_own(out);
        if (ended) out.text(kResultBlob, metrics);
      });
  const auto now = SystemClock().now();
  if (steps_ > 0) {  // rank 0 says how many steps until the next: all must meet there
    auto interval = torch::tensor(
        {steps_until_next((begun - last_snapshot_) / steps_, now - begun)}, torch::kInt64);
    collectives_->broadcast(interval, 0);
    interval_ = interval.item<std::int64_t>();
  }
  steps_ = 0;
  last_snapshot_ = now;
}

}  // namespace troupe::sgd::internal
