#include "sgd/internal/comm_actor.hpp"

#include "libactor/limits.hpp"
#include "libactor/log.hpp"

#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <vector>

namespace troupe::sgd::internal {

/// Only inside this process.
struct LocalNote {
  Note note;
};

}  // namespace troupe::sgd::internal

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sgd::internal::LocalNote)

namespace troupe::sgd::internal {
namespace {

caf::behavior comm_actor(caf::event_based_actor* self, Exchange* exchange) {
  self->set_exception_handler([exchange](std::exception_ptr& thrown) -> caf::error {
    const auto error = fence(Errc::io, [&] { std::rethrow_exception(thrown); }).error();
    exchange->fail(error);
    return error;
  });
  return {[exchange](const LocalNote& brought) { exchange->deliver(brought.note); }};
}

class ActorCarrier final : public Carrier {
 public:
  ActorCarrier(caf::actor_system& system, std::span<Exchange* const> exchanges) : system_(system) {
    for (Exchange* exchange : exchanges)
      actors_.push_back(system.spawn<caf::detached>(comm_actor, exchange));
  }

  ~ActorCarrier() override {
    caf::scoped_actor self(system_);
    for (const auto& actor : actors_) {
      self->monitor(actor);
      self->send_exit(actor, caf::exit_reason::user_shutdown);
    }
    bool ended = true;
    for (std::size_t left = actors_.size(); left > 0 && ended; --left)
      self->receive([](const caf::down_msg&) {},
                    caf::after(troupe::limits::kShutdown) >> [&ended] { ended = false; });
    if (!ended) log_error("a comm actor does not end");
  }

  void carry(int to_rank, const Note& note) override {
    caf::anon_send(actors_[static_cast<std::size_t>(to_rank)], LocalNote{note});
  }

 private:
  caf::actor_system& system_;
  std::vector<caf::actor> actors_;
};

}  // namespace

MakeCarrier comm_actors(caf::actor_system& system) {
  return [&system](std::span<Exchange* const> exchanges) {
    return std::make_unique<ActorCarrier>(system, exchanges);
  };
}

}  // namespace troupe::sgd::internal
