#pragma once

#include "libactor/limits.hpp"
#include "libactor/result.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/meta/type_name.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// How processes of a small group talk to each other directly, also from machine to machine: by TLS
/// with certificates of an authority that was made for this group alone. Shows CAF, as `actor.hpp`
/// does.
namespace troupe {

/// What a member shows to the others, and by what it knows them, as PEM. It has a private key in
/// it: let it travel over sockets between a process and its owner only.
struct PeerCredentials {
  std::string member = {};  ///< its name
  std::string authority = {};
  std::string certificate = {};
  std::string key = {};
};

/// For CAF's and our logs: no secret is in it.
inline std::string to_string(const PeerCredentials& credentials) {
  return "PeerCredentials of " + credentials.member;
}

/// An authority that signs one certificate for each member, and then is forgotten: nobody else can
/// ever belong to the group. The connections must be made within a day. members: 1 to 64 printable
/// characters each.
Result<std::vector<PeerCredentials>> make_group_credentials(
    const std::vector<std::string>& members);

/// A member's actor system for what goes to the others: a second one of the process, so that bulk
/// does not hold up what else the process says. End its actors before it is destroyed.
class PeerSystem {
 public:
  /// bad_request: no such credentials; io: no threads can be started.
  static Result<std::unique_ptr<PeerSystem>> make(const PeerCredentials& own);
  ~PeerSystem();
  PeerSystem(const PeerSystem&) = delete;
  PeerSystem& operator=(const PeerSystem&) = delete;

  caf::actor_system& actors();

  /// The port. Members of the group that dial it get `published`; everybody else is closed within
  /// limits::kHandshake. Once. address: numeric.
  Result<std::uint16_t> listen(const std::string& address, const caf::actor& published);

  /// What that member has published. Dial a pair in one direction only. refused: it is another
  /// member, or of another group; else as a socket fails: peer_lost, timed_out, not_found.
  Result<caf::actor> dial(const std::string& address, std::uint16_t port, const std::string& member,
                          std::chrono::milliseconds limit = limits::kHandshake);

 private:
  struct Impl;
  explicit PeerSystem(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PeerCredentials& x) {
  return f(caf::meta::type_name("troupe::PeerCredentials"), x.member, x.authority, x.certificate,
           x.key);
}

}  // namespace troupe
