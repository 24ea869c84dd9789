#pragma once

#include "libactor/peer.hpp"
#include "sgd/internal/groups.hpp"
#include "sgd/internal/link.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::sgd::internal {

/// Where a group's leader listens.
struct PeerAddress {
  std::string address = {};
  std::uint16_t port = 0;
};

/// One for each group of ranks, in the order of `rank_counts`: made once by whoever forms the
/// groups.
Result<std::vector<PeerCredentials>> make_link_credentials(const std::vector<int>& rank_counts);

/// The link of a group whose leader is another process than the others', over TLS:
///
///   auto link = PeerLink::listen({.groups = …, .epoch = …, .credentials = …});
///   … link->port() goes to whoever forms the groups, and all addresses come back …
///   link->join(addresses, limit);
///   LocalGroup group(groups, epoch, comm_actors(system), *link);
///
/// The younger leader dials the older. A leader whose process or connection ends is told to `fail`
/// at once. A link serves one epoch, as its credentials do.
class PeerLink final : public Link {
 public:
  struct Options {
    Groups groups = {};
    std::uint64_t epoch = 0;
    PeerCredentials credentials = {};
    std::string address = "127.0.0.1";  ///< of this machine, as the others reach it; a number
  };
  static Result<std::unique_ptr<PeerLink>> listen(Options options);
  ~PeerLink() override;

  std::uint16_t port() const;
  /// Until all groups are linked; addresses: by group. Call it before a LocalGroup is made.
  /// timed_out: names the ranks that have not come; refused: another epoch, another world.
  Result<void> join(const std::vector<PeerAddress>& addresses, std::chrono::milliseconds limit);

  void open(Exchange& leader, std::function<void(const Error&)> fail) override;
  void close() override;
  void publish(const Note& piece) override;
  void begin(const Job& job) override;
  void fail(const Error& error) override;

 private:
  struct Impl;
  explicit PeerLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sgd::internal
