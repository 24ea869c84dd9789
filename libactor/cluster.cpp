#include "libactor/cluster.hpp"

#include "libactor/actor.hpp"
#include "libactor/id.hpp"
#include "libactor/internal/cluster_impl.hpp"
#include "libactor/internal/head.hpp"
#include "libactor/internal/message_types.hpp"
#include "libactor/internal/node.hpp"
#include "libactor/internal/supervisor_actor.hpp"
#include "libactor/limits.hpp"
#include "libactor/preload.hpp"

#include <caf/all.hpp>

namespace troupe {

Cluster::Cluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cluster::~Cluster() = default;
Cluster::Cluster(Cluster&&) noexcept = default;
Cluster& Cluster::operator=(Cluster&&) noexcept = default;

std::string Cluster::address() const { return {}; }

std::vector<NodeInfo> Cluster::nodes() const {
  caf::scoped_actor self{impl_->system->actors()};
  std::vector<NodeInfo> result;
  self->request(impl_->head, limits::kRequest, internal::nodes_atom_v)
      .receive([&](std::vector<NodeInfo>& nodes) { result = std::move(nodes); },
               [](caf::error&) {});
  return result;
}

Resources Cluster::total() const { return impl_->info.total; }

Result<void> Cluster::could_grant(const Resources& wanted) const {
  if (auto good = wanted.check(); !good) return good;
  caf::scoped_actor self{impl_->system->actors()};
  Result<void> result;
  self->request(impl_->head, limits::kRequest, internal::nodes_atom_v, wanted)
      .receive(
          [&](const std::string& why) {
            if (!why.empty()) result = make_error(Errc::out_of_resources, why);
          },
          [&](caf::error& error) { result = error; });
  return result;
}

Result<void> Cluster::set_parameter(std::string_view name, std::string_view value) {
  auto parameters = internal::parameters();
  parameters[std::string(name)] = std::string(value);
  std::size_t bytes = 0;
  for (const auto& [key, text] : parameters) bytes += key.size() + text.size();
  if (bytes > limits::kParametersBytes)
    return make_error(Errc::bad_request, "parameter '" + std::string(name) +
                                             "': all parameters together have " +
                                             std::to_string(bytes) + " bytes, at most " +
                                             std::to_string(limits::kParametersBytes) +
                                             " are allowed; give larger data "
                                             "by a file, and its path here");
  internal::set_parameters(std::move(parameters));
  caf::scoped_actor self{impl_->system->actors()};
  Result<void> result;
  self->request(impl_->node, limits::kRequest, internal::params_atom_v, std::string(name),
                std::string(value))
      .receive(
          [&](const std::string& problem) {
            if (!problem.empty()) result = make_error(Errc::io, problem);
          },
          [&](caf::error& error) { result = error; });
  return result;
}

Cluster::Impl::~Impl() {
  caf::scoped_actor self{system->actors()};
  for (auto* part : {&head, &node}) {
    if (!*part) continue;
    self->send_exit(*part, caf::exit_reason::user_shutdown);
    self->wait_for(*part);
    *part = nullptr;
  }
}

caf::actor spawn_supervisor(Cluster& cluster, caf::actor owner) {
  return actor_system(cluster).spawn(internal::supervisor, cluster.impl().head, std::move(owner));
}

caf::actor_system& actor_system(Cluster& cluster) { return cluster.impl().system->actors(); }

namespace internal {

Result<std::unique_ptr<Cluster::Impl>> start_cluster(ClusterOptions options) {
  if (auto can = check_threads(limits::kThreadsAtStart); !can) return can.error();
  auto impl = std::make_unique<Cluster::Impl>();
  impl->machine = std::move(options.machine);
  impl->info = {.id = NodeId::random().text(),
                .host = impl->machine.host,
                .total = impl->machine.resources(),
                .free = impl->machine.resources()};
  impl->system = std::make_unique<System>(SystemOptions{.threads = limits::kDriverThreads,
                                                        .network_threads = 0,
                                                        .types = message_types(),
                                                        .when_stuck = WhenStuck::leave_system});
  auto& actors = impl->system->actors();
  impl->node = actors.spawn<caf::detached>(
      node, NodeOptions{
                .system = impl->system.get(), .machine = impl->machine, .strict = options.strict});
  impl->head = actors.spawn(head, impl->info, impl->node);
  caf::anon_send(impl->node, nodes_atom_v, impl->head);
  return impl;
}

}  // namespace internal
}  // namespace troupe
