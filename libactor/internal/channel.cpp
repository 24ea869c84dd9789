#include "libactor/internal/channel.hpp"

#include <caf/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/scribe_impl.hpp>

#include <set>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>

namespace troupe::internal {
namespace {

namespace net = caf::io::network;

/// CAF keeps published actors by port; ours have none, and are looked up while they are published.
constexpr std::uint16_t kNoPort = 0;

caf::actor basp(System& system) {
  return system.actors().middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

net::default_multiplexer& multiplexer(System& system) {
  return dynamic_cast<net::default_multiplexer&>(system.actors().middleman().backend());
}

Result<Fd> duplicate(const Fd& fd) {
  Fd copy(::fcntl(fd.value(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error("duplicate a socket");
  return copy;
}

Result<void> make_non_blocking(const Fd& fd) {
  const int flags = ::fcntl(fd.value(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.value(), F_SETFL, flags | O_NONBLOCK) < 0)
    return system_error("make a socket non-blocking");
  return {};
}

void publish(System& system, caf::io::scribe_ptr scribe, const caf::actor& published) {
  caf::anon_send(basp(system), caf::publish_atom::value, std::move(scribe), kNoPort,
                 caf::actor_cast<caf::strong_actor_ptr>(published), std::set<std::string>{});
}

Result<caf::actor> greet(System& system, caf::io::scribe_ptr scribe,
                         std::chrono::milliseconds timeout) {
  Result<caf::actor> result{Error{}};
  caf::scoped_actor self{system.actors()};
  self->request(basp(system), timeout, caf::connect_atom::value, std::move(scribe), kNoPort)
      .receive(
          [&](const caf::node_id&, const caf::strong_actor_ptr& found,
              const std::set<std::string>&) {
            if (found)
              result = caf::actor_cast<caf::actor>(found);
            else
              result = make_error(Errc::refused, "the peer has published no actor");
          },
          [&](const caf::error& failed) { result = failed; });
  return result;
}

}  // namespace

void Connection::cut() {
  if (duplicate_) ::shutdown(duplicate_.value(), SHUT_RDWR);
  duplicate_.reset();
}

Result<Connection> serve(System& system, Fd own_end, const caf::actor& published) {
  auto held = duplicate(own_end);
  if (!held) return held.error();
  if (auto set = make_non_blocking(own_end); !set) return set.error();
  publish(system, caf::make_counted<net::scribe_impl>(multiplexer(system), own_end.release()),
          published);
  return Connection(std::move(*held));
}

Result<caf::actor> connect(System& system, Fd own_end, std::chrono::milliseconds timeout) {
  auto held = duplicate(own_end);
  if (!held) return held.error();
  if (auto set = make_non_blocking(own_end); !set) return set.error();
  auto found = greet(
      system, caf::make_counted<net::scribe_impl>(multiplexer(system), own_end.release()), timeout);
  if (found) return found;
  Connection(std::move(*held)).cut();
  return with_context(found.error(), "connect to the owner");
}

}  // namespace troupe::internal
