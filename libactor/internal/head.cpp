#include "libactor/internal/head.hpp"

#include "libactor/actor.hpp"
#include "libactor/assert.hpp"

#include <caf/all.hpp>

namespace troupe::internal {
namespace {

using Self = caf::stateful_actor<HeadState>*;

RequestId id_of(std::uint64_t request) { return RequestId(std::to_string(request)); }

/// Grants what can be granted now, and tells the others once why they wait.
void pump(Self self) {
  auto& state = self->state;
  for (auto& grant : state.placement.pump()) {
    const auto at = state.waiting.find(grant.request);
    TROUPE_ASSERT(at != state.waiting.end(), grant.request);
    LeaseGrant lease{.lease = at->second.start.request,
                     .start = std::move(at->second.start),
                     .devices = {grant.device_indices.begin(), grant.device_indices.end()}};
    self->send(state.nodes.at(grant.node.text()), std::move(lease), at->second.supervisor);
    state.waiting.erase(at);
  }
  for (const auto& pending : state.placement.pending()) {
    auto& wanted = state.waiting.at(pending.request);
    if (wanted.told == pending.why) continue;
    wanted.told = pending.why;
    self->send(wanted.supervisor,
               StartPending{.request = wanted.start.request, .text = pending.why});
  }
}

}  // namespace

caf::behavior head(Self self, NodeInfo info, caf::actor node) {
  guard(self);
  self->state.host = info.host;
  self->state.nodes[info.id] = std::move(node);
  const auto added = self->state.placement.add_node(NodeId(info.id), info.total);
  TROUPE_ASSERT(added, describe(added.error()));
  self->set_down_handler([self](const caf::down_msg& down) {
    std::erase_if(self->state.supervisors,
                  [&](const caf::actor& x) { return x.address() == down.source; });
    for (auto at = self->state.waiting.begin(); at != self->state.waiting.end();)
      if (down.source == at->second.supervisor.address()) {
        self->state.placement.cancel(at->first);
        at = self->state.waiting.erase(at);
      } else {
        ++at;
      }
    pump(self);
  });
  return {
      [self](place_atom, const StartRequest& start, const caf::actor& supervisor) {
        auto& state = self->state;
        const auto refuse = [&](const std::string& text) {
          self->send(supervisor,
                     StartPending{.request = start.request, .impossible = true, .text = text});
        };
        // No machine can join this cluster yet, so what is impossible now is so for ever.
        if (auto why = state.placement.impossible(start.spec.resources)) return refuse(*why);
        const auto id = id_of(start.request);
        if (auto queued = state.placement.request(id, start.spec.resources, self->clock().now());
            !queued)
          return refuse(text_of(queued.error()));
        if (self->state.supervisors.insert(supervisor).second) self->monitor(supervisor);
        state.waiting[id] = {.start = start, .supervisor = supervisor};
        pump(self);
      },
      [self](unplace_atom, std::uint64_t request) {
        const auto id = id_of(request);
        if (self->state.waiting.erase(id) > 0) {
          self->state.placement.cancel(id);
          pump(self);
          return;
        }
        // Granted meanwhile: its node is starting it, and the supervisor will refuse it.
      },
      [self](freed_atom, std::uint64_t request) {
        self->state.placement.release(id_of(request));
        pump(self);
      },
      [self](nodes_atom, const Resources& wanted) {
        return self->state.placement.impossible(wanted).value_or(std::string());
      },
      [self](nodes_atom) -> caf::result<std::vector<NodeInfo>> {
        std::vector<NodeInfo> result;
        for (const auto& node : self->state.placement.nodes())
          result.push_back({.id = node.id.text(),
                            .host = self->state.host,
                            .total = node.total,
                            .free = node.free});
        return result;
      },
  };
}

}  // namespace troupe::internal
