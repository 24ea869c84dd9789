#include "libactor/internal/system.hpp"

#include "libactor/log.hpp"
#include "libactor/result.hpp"

#include <caf/all.hpp>
#include <caf/io/middleman.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

namespace troupe::internal {
namespace {

struct Config : caf::actor_system_config {
  explicit Config(const SystemOptions& options) {
    load<caf::io::middleman>();
    for (AddTypes add : options.types) add(*this);
    // work stealing polls: 230 µs a remote request instead of 55 to 100
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", static_cast<std::size_t>(options.threads));
    set("middleman.workers", static_cast<std::size_t>(options.network_threads));
    set("middleman.app-identifiers", std::vector<std::string>{"troupe/1"});
    // CAF's heartbeats stay off, as they are by default: they take a long message for silence. So
    // do automatic connections: they open a port that speaks without any authentication.
  }
};

}  // namespace

struct System::Parts {
  explicit Parts(const SystemOptions& options) : config(options), actors(config) {}

  Config config;
  caf::actor_system actors;
};

System::System(SystemOptions options)
    : shutdown_(options.shutdown), when_stuck_(options.when_stuck) {
  std::signal(SIGPIPE, SIG_IGN);  // a TLS peer that dies would end this process
  parts_ = std::make_unique<Parts>(options);
  // Peers could spawn by the one and keep bytes in the other.
  auto& registry = parts_->actors.registry();
  for (const caf::atom_value name : {caf::atom("SpawnServ"), caf::atom("ConfigServ")}) {
    caf::anon_send_exit(registry.get(name), caf::exit_reason::user_shutdown);
    registry.erase(name);
  }
}

System::~System() {
  Parts* parts = parts_.release();
  std::packaged_task<void()> end([parts] { delete parts; });
  auto ended = end.get_future();
  std::thread thread;
  const auto started = fence(Errc::io, [&] { thread = std::thread(std::move(end)); });
  if (!started && when_stuck_ == WhenStuck::leave_system) return;  // no thread: others have told so
  if (started && ended.wait_for(shutdown_) == std::future_status::ready) {
    thread.join();
    return;
  }
  if (when_stuck_ == WhenStuck::leave_process) {
    std::fputs("troupe: an actor does not end; leaving the process hard\n", stderr);
    std::_Exit(70);
  }
  log_warn("an actor does not end: its system is left behind");
  thread.detach();
}

caf::actor_system& System::actors() { return parts_->actors; }

}  // namespace troupe::internal
