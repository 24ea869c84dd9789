#include "libactor/internal/system.hpp"

#include "tests/libactor/internal/test_messages.hpp"
#include "tests/support/child.hpp"

#include <doctest/doctest.h>

#include <caf/all.hpp>
#include <caf/io/middleman.hpp>
#include <future>
#include <thread>

using namespace troupe;
using internal::System;
using namespace std::chrono_literals;

TEST_CASE("system: CAF's settings are those that the cluster needs") {
  System system({.threads = 3, .types = {test::add_types}});
  const auto& config = system.actors().config();
  CHECK(caf::get_or(config, "scheduler.policy", caf::atom("")) == caf::atom("sharing"));
  CHECK(caf::get_or(config, "scheduler.max-threads", std::size_t{0}) == 3);
  CHECK(caf::get_or(config, "middleman.workers", std::size_t{0}) == 1);
  CHECK(system.actors().registry().get(caf::atom("SpawnServ")) == nullptr);
  CHECK(system.actors().registry().get(caf::atom("ConfigServ")) == nullptr);
}

TEST_CASE("system: two in one process have identities of their own") {
  System control;
  System bulk;
  CHECK(control.actors().node() != bulk.actors().node());
}

TEST_CASE("system: an actor that does not end costs a process of ours its life, after the time") {
  test::Child child([] {
    System system({.shutdown = 100ms});
    const caf::actor kept = system.actors().spawn(test::echo);
    system.actors().registry().put(caf::atom("kept"), kept);
    return 0;
  });
  CHECK(child.wait() == 70);
}

TEST_CASE("system: in the user's process it is left behind") {
  test::Child child([] {
    {
      System system({.shutdown = 100ms, .when_stuck = internal::WhenStuck::leave_system});
      system.actors().registry().put(caf::atom("kept"), system.actors().spawn(test::echo));
    }
    return 0;
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("system: it ends although another thread that has asked its actors lives on") {
  test::Child child([] {
    std::promise<void> asked, ended;
    std::thread other;
    {
      System system({.types = {test::add_types}, .shutdown = 2s});
      other = std::thread([&] {
        std::ignore = test::ask<double>(system.actors(), system.actors().spawn(test::echo), 1.5);
        asked.set_value();
        ended.get_future().wait();
      });
      asked.get_future().wait();
    }
    ended.set_value();
    other.join();
    return 0;
  });
  CHECK(child.wait() == 0);
}
