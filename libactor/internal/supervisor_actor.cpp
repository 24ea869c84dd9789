#include "libactor/internal/supervisor_actor.hpp"

#include "libactor/actor.hpp"
#include "libactor/limits.hpp"

#include <caf/all.hpp>

#include <atomic>
#include <csignal>

namespace troupe::internal {
namespace {

using Self = caf::stateful_actor<SupervisorState>*;
using Child = SupervisorState::Child;

/// Unique among all supervisors of this process, since a worker's hello names nothing else.
std::uint64_t next_request() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Child* child_of(Self self, std::uint64_t request) {
  auto& state = self->state;
  const auto at = state.child_of_request.find(request);
  return at == state.child_of_request.end() ? nullptr : &state.children.at(at->second);
}

void tell(Self self, std::uint64_t number, const Child& child, ChildEvent event) {
  event.child = number;
  event.incarnation = child.incarnation;
  self->send(self->state.owner, std::move(event));
}

/// Asks the head for a new process.
void place(Self self, std::uint64_t number) {
  Child& child = self->state.children.at(number);
  child.request = next_request();
  ++child.incarnation;
  child.lease = 0;
  child.node = nullptr;
  child.worker = nullptr;
  child.hello = {};
  child.ending = {};
  self->state.child_of_request[child.request] = number;
  self->send(self->state.head, place_atom_v,
             StartRequest{.request = child.request, .spec = child.spec},
             caf::actor_cast<caf::actor>(self));
}

void forget(Self self, std::uint64_t number) {
  auto& state = self->state;
  const auto at = state.children.find(number);
  if (at == state.children.end()) return;
  state.child_of_request.erase(at->second.request);
  state.children.erase(at);
}

void kill(Self self, const Child& child) {
  if (child.node)
    self->send(child.node, signal_atom_v, child.lease, SIGKILL);
  else
    self->send(self->state.head, unplace_atom_v, child.request);
}

void stop(Self self, std::uint64_t number, StopMode mode, const std::string& text) {
  const auto at = self->state.children.find(number);
  if (at == self->state.children.end()) return;
  Child& child = at->second;
  switch (mode) {
    case StopMode::kill:
      kill(self, child);
      forget(self, number);
      return;
    case StopMode::fail:
      child.ending.killed_for = Ending::KilledFor::user;
      child.ending.killed_because = text;
      kill(self, child);
      return;
    case StopMode::cancel:
      child.cancelled = true;
      if (child.worker) self->send(child.worker, cancel_atom_v);
      self->delayed_send(self, limits::kTerminateGrace, deadline_atom_v, child.request);
      return;
  }
}

/// Nobody will hear of this process again: decide what it means.
void exited(Self self, const WorkerExited& report) {
  Child* child = child_of(self, report.request);
  if (!child) return;
  const auto number = self->state.child_of_request.at(report.request);
  self->state.child_of_request.erase(report.request);
  if (report.never_started && report.hopeless) {
    tell(self, number, *child, {.kind = ChildEvent::Kind::refused, .text = report.text});
    forget(self, number);
    return;
  }
  Ending& ending = child->ending;
  if ((report.never_started || report.zygote_lost) &&
      ending.killed_for == Ending::KilledFor::nothing) {
    ending.killed_for = Ending::KilledFor::infrastructure;
    ending.killed_because = report.text;
  }
  ending.never_began = !child->worker;
  ending.reaped = !report.zygote_lost;
  ending.exit_code = report.exit_code;
  ending.signal = report.signal;
  ending.oom_killed = report.oom_killed;
  if (!report.killed_for_memory.empty()) {
    ending.killed_for = Ending::KilledFor::user;
    ending.killed_because = report.killed_for_memory;
  }
  const Failure failure = classify(ending);
  if (failure.kind == Failure::Kind::none) {
    tell(self, number, *child, {.kind = ChildEvent::Kind::ended});
    forget(self, number);
    return;
  }
  if (child->lease != 0 && self->clock().now() - child->started > limits::kGotOn)
    child->policy.progressed();
  const auto decision = child->policy.failed(failure);
  const bool again = decision.restart && !child->cancelled;
  child->delay = decision.delay;
  tell(self, number, *child,
       {.kind = ChildEvent::Kind::failed,
        .text = decision.text,
        .user = failure.kind == Failure::Kind::user,
        .restart = again,
        .user_failures = child->policy.user_failures()});
  if (!again) forget(self, number);
}

/// Not before the owner was told that the process started: what the worker then says to the owner
/// directly must find it known.
void answer_hello(Self self, Child& child) {
  if (child.cancelled) self->send(child.worker, cancel_atom_v);
  child.hello.deliver(WorkerBegin{.child = self->state.child_of_request.at(child.request),
                                  .incarnation = child.incarnation,
                                  .argument = child.spec.argument},
                      self->state.owner);
  child.hello = {};
}

void started(Self self, const WorkerStarted& report) {
  const auto node = caf::actor_cast<caf::actor>(self->current_sender());
  Child* child = child_of(self, report.request);
  if (!child) {  // not wanted any more
    self->send(node, signal_atom_v, report.lease, SIGKILL);
    return;
  }
  child->lease = report.lease;
  child->node = node;
  child->started = self->clock().now();
  if (child->ending.killed_for != Ending::KilledFor::nothing) kill(self, *child);
  tell(self, self->state.child_of_request.at(report.request), *child,
       {.kind = ChildEvent::Kind::started, .pid = report.pid});
  if (child->worker) answer_hello(self, *child);
}

}  // namespace

caf::behavior supervisor(Self self, caf::actor head, caf::actor owner) {
  self->state.head = std::move(head);
  self->state.owner = owner;
  self->monitor(owner);
  guard(self);
  self->set_down_handler([self](const caf::down_msg& down) {
    if (down.source != self->state.owner) return;
    for (const auto& [number, child] : self->state.children) kill(self, child);
    self->quit();
  });
  return {
      [self](supervise_atom, std::uint64_t number, const ChildSpec& spec) {
        Child child;
        child.spec = spec;
        child.policy = SupervisorPolicy(spec.restart, spec.user_failures);
        child.incarnation = spec.incarnation;
        self->state.children[number] = std::move(child);
        place(self, number);
      },
      [self](restart_atom, std::uint64_t number, const std::string& argument) {
        const auto at = self->state.children.find(number);
        if (at == self->state.children.end()) return;
        at->second.spec.argument = argument;
        if (at->second.delay.count() == 0)
          place(self, number);
        else
          self->delayed_send(self, at->second.delay, again_atom_v, number, at->second.incarnation);
      },
      [self](again_atom, std::uint64_t number, std::uint64_t incarnation) {
        const auto at = self->state.children.find(number);
        if (at != self->state.children.end() && at->second.incarnation == incarnation)
          place(self, number);
      },
      [self](stop_atom, std::uint64_t number, StopMode mode, const std::string& text) {
        stop(self, number, mode, text);
      },
      [self](deadline_atom, std::uint64_t request) {
        if (Child* child = child_of(self, request)) kill(self, *child);
      },
      [self](const StartPending& pending) {
        Child* child = child_of(self, pending.request);
        if (!child) return;
        const auto number = self->state.child_of_request.at(pending.request);
        tell(self, number, *child,
             {.kind = pending.impossible ? ChildEvent::Kind::refused : ChildEvent::Kind::waiting,
              .text = pending.text});
        if (pending.impossible) forget(self, number);
      },
      [self](const WorkerStarted& report) { started(self, report); },
      [self](const WorkerExited& report) { exited(self, report); },
      [self](const WorkerLines& output) {
        if (Child* child = child_of(self, output.request))
          tell(self, self->state.child_of_request.at(output.request), *child,
               {.kind = ChildEvent::Kind::output, .text = output.text});
      },
      [self](hello_atom, std::uint64_t request,
             const caf::actor& worker) -> caf::result<WorkerBegin, caf::actor> {
        auto promise = self->make_response_promise();
        Child* child = child_of(self, request);
        if (!child) {
          promise.deliver(make_error(Errc::refused, "this worker is not wanted any more"));
          return promise;
        }
        child->worker = worker;
        child->hello = promise;
        if (child->lease != 0) answer_hello(self, *child);
        return promise;
      },
      [self](goodbye_atom, std::uint64_t request,
             const std::string& failure) -> caf::result<std::uint64_t> {
        if (Child* child = child_of(self, request)) {
          child->ending.said_goodbye = true;
          child->ending.goodbye_failure = failure;
        }
        return request;
      },
  };
}

}  // namespace troupe::internal
