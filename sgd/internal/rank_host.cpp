#include "sgd/internal/rank_host.hpp"

#include "libactor/clock.hpp"
#include "libactor/log.hpp"
#include "sgd/internal/comm_actor.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/shared_group.hpp"

#include <malloc.h>
#include <unistd.h>

#include <caf/all.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<troupe::sgd::internal::RankTold>)

namespace troupe::sgd::internal {
namespace {

class RankHost {
 public:
  static inline const char* name = "rank_host";
  using Self = caf::stateful_actor<RankHost>;

  void begin(Self* self, caf::actor trainer, int process, MakeOperator make,
             const Context& context) {
    self_ = self;
    trainer_ = std::move(trainer);
    process_ = process;
    make_ = make;
    context_ = &context;
  }

  caf::behavior behavior() {
    return {[this](const RankPlan& plan) { form(plan); },
            [this](const CallSpec& call) {
              call_ = call.id;
              answers_.assign(ranks_.size(), {});
              waiting_ = ranks_.size();
              for (auto& rank : ranks_) rank->call(call);
            },
            [this](rank_told_atom, const std::shared_ptr<RankTold>& told) { on_told(*told); },
            [this](host_status_atom) {
              HostStatus status{.process = process_, .epoch = plan_.member.epoch};
              for (const auto& rank : ranks_) status.ranks.push_back(rank->status());
              return status;
            },
            [this](leave_atom) { leave(); }};
  }

 private:
  void form(const RankPlan& plan) {
    if (!ranks_.empty()) return;
    plan_ = plan;
    // Freed memory is kept for the next step (libactor sets that), but not by the arenas of other
    // threads: without this the second rank's activations fault at every step.
    if (plan.member.rank_count > 1 && std::getenv("MALLOC_ARENA_MAX") == nullptr)
      ::mallopt(M_ARENA_MAX, 1);
    auto group = join_group(plan);
    if (!group) {
      self_->send(trainer_, CallFailed{.epoch = plan.member.epoch,
                                       .process = process_,
                                       .text = text_of(group.error()),
                                       .code = static_cast<std::uint8_t>(code_of(group.error()))});
      return;
    }
    group_ = std::move(*group);
    auto snapshots =
        std::make_shared<Snapshots>(SnapshotPlan{.memory = plan.memory,
                                                 .next_place = plan.next_place,
                                                 .next_number = plan.next_snapshot,
                                                 .within_calls = plan.snapshots_within_calls,
                                                 .writes_shared = plan.member.first_rank == 0});
    waiting_ = static_cast<std::size_t>(plan.member.rank_count);
    for (int i = 0; i < plan.member.rank_count; ++i)
      ranks_.push_back(std::make_unique<Rank>(Rank::Spec{
          .plan = plan,
          .rank = plan.member.first_rank + i,
          .context = context_,
          .make = make_,
          .exchange = &group_->exchange(plan.member.first_rank + i),
          .snapshots = snapshots,
          .tell = [host = caf::actor_cast<caf::actor>(self_)](RankTold told) {
            caf::anon_send(host, rank_told_atom_v, std::make_shared<RankTold>(std::move(told)));
          }}));
  }

  Result<std::unique_ptr<ExchangeGroup>> join_group(const RankPlan& plan) {
    if (!plan.shared_memory.empty())
      return join_shared_group({.path = plan.shared_memory,
                                .epoch = plan.member.epoch,
                                .first_rank = plan.member.first_rank,
                                .rank_count = plan.member.rank_count});
    return std::unique_ptr<ExchangeGroup>(
        new LocalGroup(plan.member.world_size, plan.member.epoch, comm_actors(self_->system())));
  }

  /// The first error of a rank is the cause; what the others then say follows from it.
  void on_told(const RankTold& told) {
    if (failed_ || told.call != call_) return;
    if (told.error) {
      failed_ = true;
      group_->fail(make_error(Errc::peer_lost, "rank " + std::to_string(told.rank) +
                                                   " has failed: " + text_of(told.error)));
      self_->send(trainer_, CallFailed{.epoch = plan_.member.epoch,
                                       .process = process_,
                                       .rank = told.rank,
                                       .text = text_of(told.error),
                                       .code = static_cast<std::uint8_t>(code_of(told.error))});
      return;
    }
    const auto index = static_cast<std::size_t>(told.rank - plan_.member.first_rank);
    if (call_ != 0) answers_[index] = told.metrics;
    if (--waiting_ > 0) return;
    if (call_ == 0)
      self_->send(trainer_, Formed{plan_.member.epoch, process_, told.global_batch});
    else
      self_->send(trainer_, CallDone{plan_.member.epoch, call_, process_, std::move(answers_)});
  }

  /// Joining a thread that user code holds would hold this actor, and with it the process's end.
  void leave() {
    if (group_) group_->fail(make_error(Errc::cancelled, "the trainer was shut down"));
    const auto until = SystemClock().now() + limits::kLeave;
    bool all = true;
    for (auto& rank : ranks_) {
      const auto rest =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - SystemClock().now());
      all = rank->ended_within(std::max(rest, std::chrono::milliseconds(0))) && all;
    }
    if (all) {
      ranks_.clear();
      group_.reset();
    } else {
      log_warn("user code of a rank did not come to an end and is left behind");
      for (auto& rank : ranks_) (void)rank.release();
      (void)group_.release();
    }
    self_->quit();
  }

  Self* self_ = nullptr;
  caf::actor trainer_;
  int process_ = 0;
  MakeOperator make_ = nullptr;
  const Context* context_ = nullptr;
  RankPlan plan_;
  std::unique_ptr<ExchangeGroup> group_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint64_t call_ = 0;  ///< 0: setting up
  std::vector<std::string> answers_;
  std::size_t waiting_ = 0;
  bool failed_ = false;
};

caf::behavior rank_host(RankHost::Self* self, const caf::actor& trainer, int process,
                        MakeOperator make, const Context& context) {
  self->state.begin(self, trainer, process, make, context);
  return self->state.behavior();
}

}  // namespace

caf::actor spawn_rank_host(caf::actor_system& system, caf::actor trainer, int process,
                           MakeOperator make, const Context& context) {
  return system.spawn<caf::detached>(rank_host, std::move(trainer), process, make,
                                     std::cref(context));
}

int serve_ranks(Worker& worker, MakeOperator make) {
  const auto host = spawn_rank_host(actor_system(worker), owner_of(worker),
                                    std::stoi(worker.argument()), make, worker.context());
  caf::anon_send(owner_of(worker), host_hello_atom_v, worker.child(), host);
  for (;;) ::pause();  // the owner kills this process, or is gone and the process with it
}

}  // namespace troupe::sgd::internal
