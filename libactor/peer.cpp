#include "libactor/peer.hpp"

#include "libactor/actor.hpp"
#include "libactor/assert.hpp"
#include "libactor/clock.hpp"
#include "libactor/internal/acceptor.hpp"
#include "libactor/internal/channel.hpp"
#include "libactor/internal/message_types.hpp"
#include "libactor/internal/system.hpp"
#include "libactor/internal/tls.hpp"

#include <utility>

namespace troupe {
namespace {

using internal::Role;

constexpr std::chrono::seconds kLifetime = std::chrono::hours(24);
constexpr int kThreads = 8;  // of a system: its actors', CAF's network, clock and printer, ours

}  // namespace

Result<std::vector<PeerCredentials>> make_group_credentials(
    const std::vector<std::string>& members) {
  const auto now = SystemClock().wall();
  const auto authority = internal::make_authority("group", now);
  if (!authority) return authority.error();
  std::vector<PeerCredentials> all;
  for (const auto& member : members) {
    auto own = internal::issue(*authority,
                               {.name = member, .role = Role::worker, .lifetime = kLifetime}, now);
    if (!own) return own.error();
    all.push_back({.member = member,
                   .authority = authority->certificate,
                   .certificate = std::move(own->certificate),
                   .key = std::move(own->key)});
  }
  return all;
}

struct PeerSystem::Impl {
  explicit Impl(internal::Identity own)  // tidy: shell: a member of that name
      : identity(std::move(own)),
        system({.types = internal::message_types(),
                .when_stuck = internal::WhenStuck::leave_system}) {}

  internal::Identity identity;
  internal::System system;
  std::unique_ptr<internal::Acceptor> acceptor;  // last: it hands connections to the system
};

Result<std::unique_ptr<PeerSystem>> PeerSystem::make(const PeerCredentials& own) {
  auto identity = internal::Identity::from_pem(own.authority, {own.certificate, own.key});
  if (!identity) return with_context(identity.error(), "credentials of " + own.member);
  if (auto enough = check_threads(kThreads); !enough) return enough.error();
  return std::unique_ptr<PeerSystem>(new PeerSystem(std::make_unique<Impl>(std::move(*identity))));
}

PeerSystem::PeerSystem(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerSystem::~PeerSystem() = default;

caf::actor_system& PeerSystem::actors() { return impl_->system.actors(); }

Result<std::uint16_t> PeerSystem::listen(const std::string& address, const caf::actor& published) {
  TROUPE_ASSERT(!impl_->acceptor, address);
  auto acceptor =
      internal::Acceptor::listen(impl_->system, impl_->identity, published,
                                 {.address = address, .port = 0, .allowed = {Role::worker}});
  if (!acceptor) return acceptor.error();
  impl_->acceptor = std::move(*acceptor);
  return impl_->acceptor->port();
}

Result<caf::actor> PeerSystem::dial(const std::string& address, std::uint16_t port,
                                    const std::string& member, std::chrono::milliseconds limit) {
  return internal::dial(impl_->system, impl_->identity,
                        {.address = address,
                         .port = port,
                         .name = member,
                         .roles = {Role::worker},
                         .deadline = limit});
}

}  // namespace troupe
