#include "libactor/internal/channel.hpp"

#include "libactor/internal/socket.hpp"

#include "tests/libactor/internal/test_messages.hpp"
#include "tests/support/child.hpp"

#include <doctest/doctest.h>
#include <caf/all.hpp>
#include <caf/io/middleman.hpp>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <future>
#include <optional>
#include <set>
#include <string>

using namespace troupe;

using internal::System;
using test::Child;
using namespace std::chrono_literals;

namespace {

/// Two processes joined by a socket pair: the child connects, and tells the parent of itself.
struct Pair {
  explicit Pair(
      const std::function<int(System&, const caf::actor& owner)>& in_child,
      internal::AddTypes more_types = [](caf::actor_system_config&) {}) {
    auto ends = internal::socket_pair(SOCK_STREAM);
    REQUIRE(ends);
    child.emplace([&]() -> int {
      ends->first.reset();
      System system({.types = {test::add_types}});
      auto owner = internal::connect(system, std::move(ends->second), 5s);
      ::_exit(owner ? in_child(system, *owner) : 98);  // as workers leave
    });
    ends->second.reset();
    system.emplace(internal::SystemOptions{.types = {test::add_types, more_types}});
    hub = system->actors().spawn([this]() -> caf::behavior {
      return {[this](const caf::actor& peer) { arrived.set_value(peer); },
              [](double x) { return x; }};
    });
    auto served = internal::serve(*system, std::move(ends->first), hub);
    REQUIRE(served);
    connection = std::move(*served);
  }
  ~Pair() {
    if (hub) caf::anon_send_exit(hub, caf::exit_reason::user_shutdown);
    hub = nullptr;
  }

  /// The actor that the child has sent.
  caf::actor peer() {
    auto future = arrived.get_future();
    REQUIRE(future.wait_for(5s) == std::future_status::ready);
    return future.get();
  }

  std::optional<Child> child;
  std::optional<System> system;
  std::promise<caf::actor> arrived;
  caf::actor hub;
  internal::Connection connection;
};

/// Serves an echo until it is killed.
int serve_echo(System& system, const caf::actor& owner) {
  caf::anon_send(owner, caf::actor{system.actors().spawn(test::echo)});
  for (;;) ::pause();
}

}  // namespace

TEST_CASE("channel: over a socket pair numbers arrive bit for bit, both ways") {
  Pair pair(serve_echo);
  const caf::actor peer = pair.peer();
  for (const std::uint64_t bits : {0x7FF0000000000000ul, 0xFFF80000DEADBEEFul, 0x0000000000000001ul,
                                   std::bit_cast<std::uint64_t>(0.1)}) {
    const auto reply = test::ask<double>(pair.system->actors(), peer, std::bit_cast<double>(bits));
    REQUIRE(reply);
    CHECK(std::bit_cast<std::uint64_t>(*reply) == bits);
  }
  const Blob blob = Blob::copy_of(std::string(3'000'000, 'b'));
  const auto echoed = test::ask<Blob>(pair.system->actors(), peer, blob);
  REQUIRE(echoed);
  CHECK(*echoed == blob);
}

TEST_CASE("channel: a killed worker is down at its owner in less than a second") {
  Pair pair(serve_echo);
  const Error reason =
      test::wait_down(pair.system->actors(), pair.peer(), 1s, [&] { pair.child->kill(); });
  CHECK(code_of(reason) == Errc::peer_lost);
}

TEST_CASE("channel: cut ends a connection whose other end a grandchild still holds") {
  Pair pair([](System& system, const caf::actor& owner) {
    if (::fork() == 0) {  // user code that forks: it keeps the socket
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    return serve_echo(system, owner);
  });
  const Error reason =
      test::wait_down(pair.system->actors(), pair.peer(), 1s, [&] { pair.connection.cut(); });
  CHECK(code_of(reason) == Errc::peer_lost);
}

TEST_CASE("channel: the worker sees that its owner has cut the line") {
  Pair pair([](System& system, const caf::actor& owner) {
    const Error reason = test::wait_down(system.actors(), owner, 5s, [&] {
      caf::anon_send(owner, caf::actor{system.actors().spawn(test::echo)});
    });
    return code_of(reason) == Errc::peer_lost ? 0 : 1;
  });
  pair.peer();
  pair.connection.cut();
  CHECK(pair.child->wait() == 0);
}

TEST_CASE(
    "channel: connect ends by its time-out when nobody serves, and at once when it is closed") {
  auto silent = internal::socket_pair(SOCK_STREAM);
  auto closed = internal::socket_pair(SOCK_STREAM);
  REQUIRE(silent);
  REQUIRE(closed);
  closed->first.reset();
  System system;
  const auto none = internal::connect(system, std::move(silent->second), 100ms);
  REQUIRE_FALSE(none);
  CHECK(code_of(none.error()) == Errc::timed_out);
  const auto lost = internal::connect(system, std::move(closed->second), 5s);
  REQUIRE_FALSE(lost);
  CHECK(code_of(lost.error()) == Errc::peer_lost);
}

TEST_CASE("channel: a peer cannot spawn actors here") {
  static std::atomic<bool> spawned = false;
  const auto add_spawnable = [](caf::actor_system_config& config) {
    config.add_actor_type("spawnable", []() -> caf::behavior {
      spawned = true;
      return test::echo();
    });
  };
  Pair pair(
      [](System& system, const caf::actor& owner) {
        caf::scoped_actor self{system.actors()};
        bool answered = false;
        self->request(system.actors().middleman().actor_handle(), 300ms, caf::spawn_atom::value,
                      owner.node(), std::string("spawnable"), caf::make_message(),
                      std::set<std::string>{})
            .receive([&](const caf::strong_actor_ptr&) { answered = true; },
                     [](const caf::error&) {});
        if (answered) return 1;
        return serve_echo(system, owner);
      },
      add_spawnable);
  const caf::actor peer = pair.peer();
  CHECK(test::ask<double>(pair.system->actors(), peer, 1.5));  // all before it has been handled
  CHECK_FALSE(spawned);
}
