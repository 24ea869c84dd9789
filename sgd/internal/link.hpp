#pragma once

#include "sgd/internal/exchange.hpp"

#include <cstddef>
#include <functional>
#include <span>

namespace troupe::sgd::internal {

/// What the groups have to join: `data` holds what this one has brought, and shall hold what all
/// have. reduce: the sum (or least, or greatest) over this group, already with its share.
/// broadcast: the values, in the group of `root`. gather: the parts of this group's ranks, in their
/// places.
struct Job {
  Exchange::Ticket ticket = {};
  Contribution::Kind kind = Contribution::Kind::reduce;
  Reduce reduce = Reduce::sum;
  DType dtype = DType::float32;
  int root = 0;
  std::span<std::byte> data = {};
};

/// The way from a group to the others, for its leader's exchange. Thread-safe; only `close` blocks.
class Link {
 public:
  virtual ~Link() = default;
  /// From now on what comes is brought to `leader`, and an error of another group, or its loss, to
  /// `fail`; also what has come before. Called once.
  virtual void open(Exchange& leader, std::function<void(const Error&)> fail) = 0;
  /// When it returns nothing is brought any more, and the other groups have what they were sent.
  virtual void close() = 0;

  /// To the leader's exchange in every other group: a piece of a rank of this one.
  virtual void publish(const Note& piece) = 0;
  /// `Exchange::joined` follows. Called for each collective of the world that has bytes, when all
  /// ranks of all groups have brought theirs.
  virtual void begin(const Job& job) = 0;
  /// Ends the exchange of every other group, with this error.
  virtual void fail(const Error& error) = 0;
};

}  // namespace troupe::sgd::internal
