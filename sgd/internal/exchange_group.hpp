#pragma once

#include "sgd/internal/exchange.hpp"

namespace troupe::sgd::internal {

/// The exchanges of those ranks of a world that live in this process. Destroy it when their compute
/// threads have ended; memory that `Mail::allocate` made may live on.
class ExchangeGroup {
 public:
  virtual ~ExchangeGroup() = default;
  /// For the compute thread of that rank; rank: in the world.
  virtual Exchange& exchange(int rank) = 0;
  /// Ends everything that waits, on all ranks of the world, with this error: a rank is lost, or has
  /// thrown. Thread-safe; the first one stays.
  virtual void fail(const Error& error) = 0;
};

}  // namespace troupe::sgd::internal
