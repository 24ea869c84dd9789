#include "libactor/internal/node.hpp"

#include "libactor/actor.hpp"
#include "libactor/internal/zygote_protocol.hpp"
#include "libactor/limits.hpp"

#include <sys/socket.h>

#include <caf/all.hpp>

#include <csignal>
#include <filesystem>

namespace troupe::internal {

bool ZygoteMail::push(ZygoteEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  return events_.size() == 1;
}

std::deque<ZygoteEvent> ZygoteMail::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

namespace {

using Self = caf::stateful_actor<NodeState>*;

Result<void> start_zygote(Self self) {
  auto& state = self->state;
  state.mail = std::make_shared<ZygoteMail>();
  state.zygote_ready = false;
  state.zygote_options.on_event =
      [mail = state.mail, node = caf::actor_cast<caf::actor_addr>(self)](ZygoteEvent event) {
        if (!mail->push(std::move(event))) return;
        if (auto alive = caf::actor_cast<caf::actor>(node)) caf::anon_send(alive, zygote_atom_v);
      };
  auto started = Zygote::start(state.zygote_options);
  if (!started) return started.error();
  state.zygote = std::move(*started);
  return state.zygote->set_parameters(state.parameters);
}

void gone(Self self, std::uint64_t lease, WorkerExited report) {
  auto& state = self->state;
  const auto at = state.running.find(lease);
  if (at == state.running.end()) return;
  // Where user code had forked, its child still holds the other end: the line is cut here, not
  // there.
  at->second.connection.cut();
  report.request = lease;
  report.killed_for_memory = at->second.killed_for_memory;
  if (report.signal == SIGKILL) {
    const auto kills = oom_kill_count("/");
    report.oom_killed = kills > state.oom_kills;
    state.oom_kills = kills;
  }
  self->send(at->second.supervisor, std::move(report));
  self->send(state.head, freed_atom_v, lease);
  state.running.erase(at);
}

void start(Self self, const LeaseGrant& grant, const caf::actor& supervisor) {
  auto& state = self->state;
  const auto& spec = grant.start.spec;
  NodeState::Running running{.supervisor = supervisor, .memory_bytes = spec.resources.memory_bytes};
  const auto refuse = [&](const Error& error) {
    state.running[grant.lease] = std::move(running);
    gone(self, grant.lease,
         {.never_started = true,
          .hopeless = code_of(error) != Errc::io,
          .text = spec.name + ": " + text_of(error)});
  };
  if (!state.zygote)
    if (auto again = start_zygote(self); !again) return refuse(again.error());
  auto control = socket_pair(SOCK_STREAM);
  auto line = socket_pair(SOCK_SEQPACKET);
  if (!control) return refuse(control.error());
  if (!line) return refuse(line.error());
  auto connection = serve(*state.system, std::move(control->first), supervisor);
  if (!connection) return refuse(connection.error());
  running.connection = std::move(*connection);
  running.line = std::move(line->first);

  const std::vector<int> devices(grant.devices.begin(), grant.devices.end());
  const auto visible = visible_devices(spec.resources.gpus, state.machine.gpus, devices);
  if (!visible.warning.empty() && !std::exchange(state.told_of_devices, true))
    log_warn(visible.warning);
  WorkerStart worker{.lease = grant.lease,
                     .incarnation = grant.lease,
                     .entry = spec.entry,
                     .id = spec.id,
                     .name = spec.name,
                     .directory = spec.directory,
                     .resources = spec.resources,
                     .threads = thread_count(spec.resources.cpus),
                     .seed = spec.seed,
                     .devices = visible.cuda_visible_devices,
                     .forward_output = spec.forward_output};
  if (auto sent =
          state.zygote->start_worker(worker, std::move(control->second), std::move(line->second));
      !sent)
    return refuse(sent.error());
  if (running.memory_bytes > 0 && !std::exchange(state.sampling, true))
    tick_every(limits::kMemorySample, caf::actor_cast<caf::actor>(self),
               caf::make_message(sample_atom_v));
  state.running[grant.lease] = std::move(running);
}

void on_lost(Self self, const std::string& text) {
  auto& state = self->state;
  const bool ever_ready = state.zygote_ready;
  state.zygotes_lost = ever_ready ? 0 : state.zygotes_lost + 1;
  const bool hopeless = state.zygotes_lost >= limits::kZygoteTries;
  log_warn("the zygote was lost and is replaced: " + text);
  std::vector<std::uint64_t> lost;
  for (const auto& [lease, running] : state.running) lost.push_back(lease);
  state.zygote.reset();
  for (const auto lease : lost)
    gone(self, lease,
         {.zygote_lost = !hopeless, .never_started = hopeless, .hopeless = hopeless, .text = text});
  if (!hopeless) {
    if (auto again = start_zygote(self); !again) log_error(describe(again.error()));
  }
}

void on_event(Self self, ZygoteEvent& event) {
  auto& state = self->state;
  if (std::get_if<zygote_event::Ready>(&event)) {
    state.zygote_ready = true;
    state.zygotes_lost = 0;
  } else if (const auto* warned = std::get_if<zygote_event::Warned>(&event)) {
    log_warn(warned->text);
  } else if (const auto* started = std::get_if<zygote_event::Started>(&event)) {
    if (const auto at = state.running.find(started->lease); at != state.running.end()) {
      at->second.pid = started->pid;
      self->send(
          at->second.supervisor,
          WorkerStarted{.request = started->lease, .lease = started->lease, .pid = started->pid});
    }
  } else if (const auto* failed = std::get_if<zygote_event::StartFailed>(&event)) {
    gone(self, failed->lease,
         {.never_started = true, .hopeless = failed->hopeless, .text = failed->text});
  } else if (const auto* exited = std::get_if<zygote_event::Exited>(&event)) {
    gone(self, exited->lease, {.exit_code = exited->exit.code, .signal = exited->exit.signal});
  } else if (auto* output = std::get_if<zygote_event::Output>(&event)) {
    if (const auto at = state.running.find(output->lease); at != state.running.end())
      self->send(at->second.supervisor,
                 WorkerLines{.request = output->lease, .text = std::move(output->lines)});
  } else if (const auto* lost = std::get_if<zygote_event::Lost>(&event)) {
    on_lost(self, lost->text);
  }
}

/// Memory above the grant ends the worker, with both numbers in its error.txt.
void sample(Self self) {
  auto& state = self->state;
  std::map<pid_t, std::string> groups;
  for (const auto& [lease, running] : state.running)
    if (running.memory_bytes > 0 && running.pid != 0 && running.killed_for_memory.empty())
      groups[running.pid] = std::to_string(lease);
  if (groups.empty()) return;
  for (const auto& [lease, used] : pss_by_lease("/", groups, kLeaseVariable)) {
    const auto at = state.running.find(std::stoull(lease));
    if (at == state.running.end()) continue;
    auto above = above_grant(at->second.memory_bytes, used);
    if (!above) continue;
    at->second.killed_for_memory = std::move(*above);
    if (state.zygote) state.zygote->signal(at->first, SIGKILL, true);
  }
}

}  // namespace

caf::behavior node(Self self, const NodeOptions& options) {
  guard(self);
  auto& state = self->state;
  state.system = options.system;
  state.machine = options.machine;
  state.zygote_options.strict = options.strict;
  state.parameters = parameters();
  state.oom_kills = oom_kill_count("/");
  if (auto started = start_zygote(self); !started) log_error(describe(started.error()));
  return {
      [self](nodes_atom, const caf::actor& head) { self->state.head = head; },
      [self](const LeaseGrant& grant, const caf::actor& supervisor) {
        start(self, grant, supervisor);
      },
      [self](signal_atom, std::uint64_t lease, std::int32_t number) {
        if (self->state.zygote) self->state.zygote->signal(lease, number, true);
      },
      [self](params_atom, const std::string& name,
             const std::string& value) -> caf::result<std::string> {
        auto& parameters = self->state.parameters;
        parameters[name] = value;
        if (self->state.zygote)
          if (auto set = self->state.zygote->set_parameters(parameters); !set)
            return text_of(set.error());
        return std::string();
      },
      [self](zygote_atom) {
        for (auto& event : self->state.mail->take()) on_event(self, event);
      },
      [self](sample_atom) { sample(self); },
  };
}

}  // namespace troupe::internal
