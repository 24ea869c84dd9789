#include "sgd/internal/trainer.hpp"

#include "libactor/actor.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/rank_host.hpp"
#include "sgd/internal/shared_segment.hpp"
#include "sgd/internal/snapshots.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

namespace troupe::sgd::internal {
namespace {

const bool kTypesAdded = add_message_types(&add_block<caf::id_block::troupe_sgd>);

namespace fs = std::filesystem;

using Answer = Result<std::vector<std::string>>;

/// What the actor and the user's threads share.
struct Shared {
  std::mutex mutex;
  std::map<std::uint64_t, std::promise<Answer>> calls;
  bool shut_down = false;
  std::atomic<int> world_size{0};
  // touched by the actor while a call runs, else by the user's thread
  std::vector<SnapshotMemory> memory;  ///< of each process
  std::string loaded;                  ///< the state that was set; the snapshots before it are void
  std::int64_t void_until = 0;         ///< their numbers
};

struct Found {
  std::int64_t number = 0;
  std::int64_t next = 1;  ///< a number that no process has written, whole group or not
  std::vector<std::string> paths = {};
};

/// The newest snapshot that is whole in every process that took it, with the shared part first;
/// else what was loaded; else nothing.
Found newest_common(const Shared& shared) {
  std::map<std::int64_t, std::vector<std::string>, std::greater<>> by_number;
  std::map<std::int64_t, std::int64_t> wanted;
  Found found{.number = shared.void_until, .next = shared.void_until + 1};
  for (const auto& memory : shared.memory)
    for (const auto& kept : memory.kept()) {
      const auto number = kept.reader.info().iteration;
      found.next = std::max(found.next, number + 1);
      if (number <= shared.void_until) continue;
      auto path = memory.paths()[static_cast<std::size_t>(kept.place)];
      auto& paths = by_number[number];
      if (kept.reader.has(kProcessesBlob)) {
        wanted[number] = kept.reader.integer(kProcessesBlob);
        paths.insert(paths.begin(), std::move(path));
      } else {
        paths.push_back(std::move(path));
      }
    }
  if (!shared.loaded.empty()) found.paths = {shared.loaded};
  for (auto& [number, paths] : by_number)
    if (wanted.contains(number) && std::ssize(paths) == wanted[number]) {
      found.number = number;
      found.paths = std::move(paths);
      break;
    }
  return found;
}

/// The state that call `id` ended with; empty: none was kept, and an older one is not that.
Result<std::vector<CheckpointReader>> snapshot_of_call(const Shared& shared, std::uint64_t id) {
  std::vector<CheckpointReader> readers;
  for (const auto& path : newest_common(shared).paths) {
    auto reader = open_state(path);
    if (!reader) return reader.error();
    readers.push_back(std::move(*reader));
  }
  const bool is_that = !readers.empty() && readers.front().has(kCallBlob) &&
                       readers.front().integer(kCallBlob) == static_cast<std::int64_t>(id);
  if (!is_that) readers.clear();
  return readers;
}

/// The shell around `WorkerGroup`.
class TrainerActor {
 public:
  static inline const char* name = "trainer";
  using Self = caf::stateful_actor<TrainerActor>;

  struct Place {
    Cluster* cluster = nullptr;
    Worker* worker = nullptr;
  };

  void begin(Self* self, const std::shared_ptr<const TrainerPlan>& plan,
             const std::shared_ptr<Shared>& shared, Place place) {
    self_ = self;
    plan_ = plan;
    shared_ = shared;
    place_ = place;
    core_.emplace(plan->group);
    if (place.cluster)
      supervisor_ = spawn_supervisor(*place.cluster, caf::actor_cast<caf::actor>(self));
    tick_every(limits::kStatus, caf::actor_cast<caf::actor>(self),
               caf::make_message(status_tick_atom_v));
  }

  caf::behavior behavior() {
    return {
        [this](call_atom, const CallSpec& call, std::int32_t retries) {
          core_->call(call, retries, clock_.now());
          run_commands();
        },
        [this](status_tick_atom) {
          for (const auto& [process, host] : hosts_)
            self_->request(host, limits::kSilent, host_status_atom_v)
                .then(
                    [this](const HostStatus& status) {
                      if (status.epoch != core_->epoch()) return;
                      core_->on_status(status, clock_.now());
                      statuses_[status.process] = status.ranks;
                    },
                    [](const caf::error&) {});
          core_->on_tick(clock_.now());
          tell_status();
          run_commands();
        },
        [this](const ChildEvent& event) { on_child(event); },
        [this](host_hello_atom, std::uint64_t child, const caf::actor& host) {
          const auto at = children_.find(child);
          if (at == children_.end()) return;
          hosts_[at->second] = host;
          core_->on_hello(at->second, clock_.now());
          run_commands();
        },
        [this](const Formed& formed) {
          if (global_batch_ == 0 && core_->world_size() > 0)
            global_batch_ = formed.global_batch / core_->world_size() * plan_->group.num_workers;
          core_->on_formed(formed, clock_.now());
          shared_->world_size = core_->world_size();
          run_commands();
        },
        [this](const CallDone& done) {
          core_->on_done(done);
          run_commands();
        },
        [this](const CallFailed& failed) {
          core_->on_failed(failed, clock_.now());
          run_commands();
        },
        [this](again_atom) {
          core_->begin_anew();
          run_commands();
        },
        [this](leave_atom) {
          core_->shut_down();
          run_commands();
          self_->quit();
        },
    };
  }

 private:
  void on_child(const ChildEvent& event) {
    const auto at = children_.find(event.child);
    if (event.kind == ChildEvent::Kind::output) {
      if (plan_->output) plan_->output(event.text);
      return;
    }
    if (at == children_.end()) return;
    const int process = at->second;
    switch (event.kind) {
      case ChildEvent::Kind::waiting: core_->on_waiting(process, event.text); break;
      case ChildEvent::Kind::refused:
        children_.erase(at);
        core_->on_refused(process, event.text);
        break;
      case ChildEvent::Kind::ended:
      case ChildEvent::Kind::failed:
        children_.erase(at);
        hosts_.erase(process);
        core_->on_ended(process,
                        event.kind == ChildEvent::Kind::failed ? event.text : "its process ended",
                        clock_.now());
        break;
      default: return;
    }
    run_commands();
  }

  void run_commands() {
    for (;;) {
      auto commands = core_->take_commands();
      if (commands.empty()) break;
      for (auto& command : commands) std::visit([this](auto& c) { carry_out(c); }, command);
    }
    shared_->world_size = core_->world_size();
  }

  void carry_out(const StartProcess& start) {
    while (shared_->memory.size() <= static_cast<std::size_t>(start.process)) {
      auto memory = SnapshotMemory::make();
      if (!memory) {
        say("no snapshots can be kept: " + describe(memory.error()));
        break;
      }
      shared_->memory.push_back(std::move(*memory));
    }
    const auto child = ++child_count_;
    children_[child] = start.process;
    if (place_.worker) {
      hosts_[start.process] = spawn_rank_host(self_->system(), caf::actor_cast<caf::actor>(self_),
                                              start.process, plan_->make, place_.worker->context());
      core_->on_hello(start.process, clock_.now());
      return;
    }
    std::error_code error;
    fs::create_directories(plan_->directory, error);
    Resources resources{.cpus = start.rank_count * plan_->cpus_per_rank};
    if (plan_->gpus_per_rank > 0) resources.gpus = start.rank_count * plan_->gpus_per_rank;
    const auto id = plan_->name + "_" + std::to_string(start.process);
    self_->send(supervisor_, supervise_atom_v, child,
                ChildSpec{.id = id,
                          .name = plan_->name,
                          .entry = plan_->entry,
                          .directory = plan_->directory.string(),
                          .resources = resources,
                          .seed = plan_->ranks.seed,
                          .forward_output = true,
                          .argument = std::to_string(start.process),
                          .restart = {.max_failures = 0, .max_infrastructure_failures = 0},
                          .incarnation = child});
  }

  void carry_out(const FormProcess& form) {
    const auto host = hosts_.find(form.process);
    if (host == hosts_.end()) return;
    RankPlan plan = plan_->ranks;
    if (plan.global_batch == 0) plan.global_batch = global_batch_;
    plan.member = form.member;
    auto memory = shared_memory(form.member);
    if (!memory) {
      core_->on_failed({.epoch = form.member.epoch,
                        .process = form.process,
                        .text = text_of(memory.error()),
                        .code = static_cast<std::uint8_t>(Errc::out_of_resources)},
                       clock_.now());
      return;
    }
    plan.shared_memory = std::move(*memory);
    plan.snapshots_within_calls = plan_->snapshots;
    const auto found = newest_common(*shared_);
    plan.restore = found.paths;
    plan.next_snapshot = found.next;
    const auto index = static_cast<std::size_t>(form.process);
    if (index < shared_->memory.size()) {
      plan.memory = shared_->memory[index].paths();
      for (const auto& kept : shared_->memory[index].kept())
        if (kept.reader.info().iteration == found.number) plan.next_place = 1 - kept.place;
    }
    self_->send(host->second, std::move(plan));
  }

  /// What joins the ranks of several processes, made once an epoch; its path.
  Result<std::string> shared_memory(const Membership& member) {
    if (member.process_count == 1) return std::string();
    if (!segment_ || segment_->epoch() != member.epoch) {
      auto made = SharedSegment::create({.world_size = member.world_size, .epoch = member.epoch});
      if (!made) return made.error();
      segment_ = std::move(*made);
    }
    return segment_->path();
  }

  void carry_out(const RunCall& run) {
    if (const auto host = hosts_.find(run.process); host != hosts_.end())
      self_->send(host->second, run.call);
  }

  void carry_out(const EndProcess& end) {
    statuses_.erase(end.process);
    const auto host = hosts_.extract(end.process);
    if (place_.worker) {
      if (!host.empty()) self_->send(host.mapped(), leave_atom_v);
      return;
    }
    std::erase_if(children_, [&](const auto& entry) {
      if (entry.second != end.process) return false;
      self_->send(supervisor_, stop_atom_v, entry.first, StopMode::kill, std::string());
      return true;
    });
  }

  void carry_out(FinishCall& finish) {
    const std::lock_guard lock(shared_->mutex);
    auto call = shared_->calls.extract(finish.id);
    if (call.empty()) return;
    if (finish.error)
      call.mapped().set_value(finish.error);
    else
      call.mapped().set_value(std::move(finish.metrics));
  }

  void carry_out(const Tell& tell) { say(tell.sentence); }

  void say(const std::string& sentence) const {
    if (plan_->say) plan_->say(sentence);
  }

  void tell_status() {
    if (!plan_->on_status || !core_->running()) return;
    std::vector<RankStatus> all;
    for (const auto& [process, ranks] : statuses_)
      all.insert(all.end(), ranks.begin(), ranks.end());
    plan_->on_status(all);
  }

  Self* self_ = nullptr;
  std::shared_ptr<const TrainerPlan> plan_;
  std::shared_ptr<Shared> shared_;
  Place place_;
  SystemClock clock_;
  std::optional<WorkerGroup> core_;
  caf::actor supervisor_;
  std::uint64_t child_count_ = 0;
  std::map<std::uint64_t, int> children_;  ///< the supervisor's numbers to ours
  std::map<int, caf::actor> hosts_;
  std::optional<SharedSegment> segment_;
  std::int64_t global_batch_ = 0;  ///< stays when the group becomes smaller; 0: not known yet
  std::map<int, std::vector<RankStatus>> statuses_;
};

caf::behavior trainer_actor(TrainerActor::Self* self,
                            const std::shared_ptr<const TrainerPlan>& plan,
                            const std::shared_ptr<Shared>& shared, TrainerActor::Place place) {
  self->state.begin(self, plan, shared, place);
  return self->state.behavior();
}

Error was_shut_down() {
  return make_error(Errc::cancelled, "the trainer was shut down; make another one");
}

}  // namespace

struct Trainer::Impl {
  std::shared_ptr<const TrainerPlan> plan;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  caf::actor actor;
  std::mutex one_call;  ///< at a time
  std::uint64_t call_count = 0;

  void start(caf::actor_system& system, TrainerPlan the_plan, TrainerActor::Place place) {
    plan = std::make_shared<const TrainerPlan>(std::move(the_plan));
    actor = system.spawn<caf::detached>(trainer_actor, plan, shared, place);
    actor->attach_functor([shared = shared] {  // whatever ends it: nobody waits for it any more
      const std::lock_guard lock(shared->mutex);
      for (auto& [id, answer] : shared->calls) answer.set_value(was_shut_down());
      shared->calls.clear();
    });
  }
};

Trainer::Trainer(Cluster& cluster, TrainerPlan plan) : impl_(std::make_unique<Impl>()) {
  impl_->start(actor_system(cluster), std::move(plan), {.cluster = &cluster});
}

Trainer::Trainer(Worker& worker, TrainerPlan plan) : impl_(std::make_unique<Impl>()) {
  impl_->start(actor_system(worker), std::move(plan), {.worker = &worker});
}

Trainer::~Trainer() { shut_down(); }

void Trainer::shut_down() {
  const std::lock_guard lock(impl_->shared->mutex);
  if (std::exchange(impl_->shared->shut_down, true)) return;
  caf::anon_send(impl_->actor, leave_atom_v);
}

int Trainer::world_size() const { return impl_->shared->world_size; }

Result<std::vector<tune::Metrics>> Trainer::call(CallSpec call, int retries) {
  const std::lock_guard one(impl_->one_call);
  call.id = ++impl_->call_count;
  std::future<Answer> answer;
  {
    const std::lock_guard lock(impl_->shared->mutex);  // sent before the actor is told to leave
    if (impl_->shared->shut_down) return was_shut_down();
    answer = impl_->shared->calls[call.id].get_future();
    caf::anon_send(impl_->actor, call_atom_v, call, static_cast<std::int32_t>(retries));
  }
  auto texts = answer.get();  // the group's own limits end every call
  if (!texts) return texts.error();
  std::vector<tune::Metrics> metrics;
  for (const auto& text : *texts) {
    auto read = tune::Metrics::from_json(text);
    if (!read) return read.error();
    metrics.push_back(std::move(*read));
  }
  return metrics;
}

Result<std::vector<CheckpointReader>> Trainer::state() {
  Result<std::vector<CheckpointReader>> last{std::vector<CheckpointReader>()};
  {
    const std::lock_guard one(impl_->one_call);
    const std::lock_guard lock(impl_->shared->mutex);
    if (impl_->shared->shut_down) return was_shut_down();
    last = snapshot_of_call(*impl_->shared, impl_->call_count);
  }
  if (!last || !last->empty()) return last;  // nearly always: calls end with one
  auto taken = call({.kind = CallSpec::Kind::snapshot}, 3);
  if (!taken) return taken.error();
  last = snapshot_of_call(*impl_->shared, impl_->call_count);
  if (last && last->empty())
    return make_error(Errc::io, "the trainer's state could not be kept; its log says why");
  return last;
}

Result<void> Trainer::set_state(std::string path) {
  auto reader = open_state(path);
  if (!reader) return reader.error();
  if (!reader->has(kProcessesBlob))
    return make_error(Errc::bad_request, path + " is a checkpoint, but not one of a trainer");
  auto& shared = *impl_->shared;
  const auto loaded_before = std::exchange(shared.loaded, std::move(path));
  const auto void_before = shared.void_until;
  for (const auto& memory : shared.memory)
    for (const auto& kept : memory.kept())
      shared.void_until = std::max(shared.void_until, kept.reader.info().iteration);
  caf::anon_send(impl_->actor, again_atom_v);
  const auto taken = call({.kind = CallSpec::Kind::snapshot}, 3);
  if (taken) return {};
  shared.loaded = loaded_before;
  shared.void_until = void_before;
  return taken.error();
}

}  // namespace troupe::sgd::internal
