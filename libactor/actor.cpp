#include "libactor/actor.hpp"

#include "libactor/internal/messages.hpp"

#include <caf/all.hpp>

#include <future>
#include <thread>
#include <vector>

namespace troupe {
namespace {

/// Holds no more than the address of its target: a clock's pending message must not keep that
/// alive.
caf::behavior ticker(caf::event_based_actor* self, std::chrono::milliseconds period,
                     const caf::actor_addr& target, const caf::message& tick) {
  self->monitor(target);
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  self->delayed_send(self, period, internal::tick_atom_v);
  return {[self, period, target, tick](internal::tick_atom) {
    const auto alive = caf::actor_cast<caf::actor>(target);
    if (!alive) return self->quit();
    self->send(alive, tick);
    self->delayed_send(self, period, internal::tick_atom_v);
  }};
}

}  // namespace

Result<void> check_threads(int count) {
  std::promise<void> all;
  std::vector<std::thread> threads;
  const auto started = fence(Errc::io, [&] {
    const auto end = all.get_future().share();
    for (int i = 0; i < count; ++i) threads.emplace_back([end] { end.wait(); });
  });
  all.set_value();
  for (auto& thread : threads) thread.join();
  if (started) return {};
  return with_context(started.error(), "no thread can be started, see ulimit -u and ulimit -v");
}

void tick_every(std::chrono::milliseconds period, const caf::actor& target,
                const caf::message& tick) {
  target->home_system().spawn<caf::hidden>(ticker, period, caf::actor_cast<caf::actor_addr>(target),
                                           tick);
}

}  // namespace troupe
