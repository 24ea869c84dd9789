#pragma once

#include "libactor/clock.hpp"
#include "libactor/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::internal {

/// What a process may be in a cluster, in its certificate's subject: OU=head.
enum class Role : std::uint8_t { head, node, driver, worker };

std::string_view name_of(Role role);
std::optional<Role> role_named(std::string_view name);

/// A certificate and its private key, both as PEM.
struct Certified {
  std::string certificate = {};
  std::string key = {};
};

struct CertificateOptions {
  std::string name = {};  ///< 1 to 64 printable characters
  Role role = Role::worker;
  std::chrono::seconds lifetime = std::chrono::days(7);
  /// Valid from that much before `now`: the clocks of two machines differ.
  std::chrono::seconds backdate = std::chrono::hours(1);
};

/// A new authority that signs itself, for ten years. P-256.
Result<Certified> make_authority(std::string_view name, Clock::WallTime now);

/// A certificate for one process, signed by `authority`.
Result<Certified> issue(const Certified& authority, const CertificateOptions& options,
                        Clock::WallTime now);

}  // namespace troupe::internal
