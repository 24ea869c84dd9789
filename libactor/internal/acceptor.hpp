#pragma once

#include "libactor/internal/system.hpp"
#include "libactor/internal/tls.hpp"
#include "libactor/limits.hpp"
#include "libactor/result.hpp"

#include <caf/actor.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::internal {

struct ListenOptions {
  std::string address = "127.0.0.1";  ///< numeric
  std::uint16_t port = 0;             ///< 0: any free one
  std::vector<Role> allowed = {Role::head, Role::node, Role::driver, Role::worker};
  std::chrono::milliseconds deadline = limits::kHandshake;  ///< from TCP's accept to the greeting
};

/// Lets peers in that prove who they are, and gives them `published`. Everybody else costs a
/// descriptor and a few KiB until the deadline, at most limits::kConnections at once; when there
/// are more, the oldest of the address that has most goes.
class Acceptor {
 public:
  static Result<std::unique_ptr<Acceptor>> listen(System& system, const Identity& identity,
                                                  const caf::actor& published,
                                                  ListenOptions options = {});
  ~Acceptor();  ///< established connections stay
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  std::uint16_t port() const;

 private:
  class Loop;
  explicit Acceptor(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace troupe::internal
