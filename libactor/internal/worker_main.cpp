#include "libactor/internal/worker_main.hpp"

#include "libactor/actor.hpp"
#include "libactor/entry.hpp"
#include "libactor/internal/channel.hpp"
#include "libactor/internal/context_state.hpp"
#include "libactor/internal/message_types.hpp"
#include "libactor/internal/messages.hpp"
#include "libactor/internal/worker_limits.hpp"
#include "libactor/limits.hpp"

#include <unistd.h>

#include <caf/all.hpp>

namespace troupe {

const Context& Worker::context() const { return impl_.context; }
const std::string& Worker::argument() const { return impl_.argument; }
std::uint64_t Worker::child() const { return impl_.child; }
std::uint64_t Worker::incarnation() const { return impl_.incarnation; }
void Worker::set_iteration(std::int64_t iteration) { impl_.state->iteration = iteration; }
void Worker::fail(std::string text) { impl_.failure = std::move(text); }

caf::actor_system& actor_system(Worker& worker) { return *worker.impl().system; }
caf::actor owner_of(Worker& worker) { return worker.impl().owner; }

namespace internal {
namespace {

/// Hears what the supervisor says while the main thread is in user code. When the supervisor is
/// gone nobody wants this process any more: it leaves from here, whatever the main thread is doing.
caf::behavior listener(caf::event_based_actor* self, const caf::actor& supervisor,
                       const std::shared_ptr<Context::State>& state) {
  guard(self);
  self->monitor(supervisor);
  self->set_down_handler([](const caf::down_msg&) { ::_exit(kOwnerLostExitCode); });
  return {[state](cancel_atom) { state->cancelled = true; }};
}

std::shared_ptr<Context::State> context_of(const WorkerStart& start) {
  auto state = std::make_shared<Context::State>();
  state->id = start.id;
  state->name = start.name;
  state->directory = start.directory;
  state->resources = start.resources;
  state->threads = start.threads;
  state->device_index = start.resources.gpus && start.resources.gpus->parts() > 0 ? 0 : -1;
  state->seed = start.seed;
  return state;
}

int lost(const Error& error) {
  log_warn("a worker can't reach its owner and ends: " + describe(error));
  return kOwnerLostExitCode;
}

}  // namespace

int worker_main(const WorkerStart& start, Fd control, Fd line) {
  (void)line;  // stays open: by it the node can join two workers
  start_log("worker " + start.id);
  apply_worker_limits({.threads = start.threads});

  System system({.network_threads = 0, .types = message_types()});
  auto supervisor = connect(system, std::move(control), limits::kHandshake);
  if (!supervisor) ::_exit(lost(supervisor.error()));

  Worker::Impl impl{.state = context_of(start), .system = &system.actors()};
  impl.context = Context(impl.state);
  const auto ear = system.actors().spawn(listener, *supervisor, impl.state);
  caf::scoped_actor self{system.actors()};
  Error error;
  self->request(*supervisor, limits::kRequest, hello_atom_v, start.lease, ear)
      .receive(
          [&](WorkerBegin& begin, caf::actor& owner) {
            impl.child = begin.child;
            impl.incarnation = begin.incarnation;
            impl.argument = std::move(begin.argument);
            impl.owner = owner;
          },
          [&](caf::error& e) { error = e; });
  if (error) ::_exit(lost(error));

  int code = 1;
  if (const auto body = find_entry(start.entry)) {
    Worker worker(impl);
    const auto done = fence(Errc::user_code, [&] { return body(worker); });
    if (done)
      code = *done;
    else
      impl.failure = text_of(done.error());
  } else {
    impl.failure =
        "this program has no entry '" + start.entry + "': driver and workers are not one build";
  }
  if (code != 0 && impl.failure.empty()) impl.failure = "the body returned " + std::to_string(code);

  // Acknowledged, then out without the destructors: nothing in this process is worth waiting for.
  std::fflush(nullptr);
  self->request(*supervisor, limits::kHandshake, goodbye_atom_v, start.lease, impl.failure)
      .receive([](std::uint64_t) {}, [&](caf::error& e) { code = lost(e); });
  ::_exit(code);
}

}  // namespace internal
}  // namespace troupe
