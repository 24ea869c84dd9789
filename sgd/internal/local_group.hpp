#pragma once

#include "sgd/internal/exchange_group.hpp"
#include "sgd/internal/groups.hpp"
#include "sgd/internal/link.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::sgd::internal {

/// Brings notes to ranks of this process, each rank's on one thread of its own, in the order in
/// which they were sent. When it is destroyed, nothing is delivered any more.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual void carry(int to_rank, const Note& note) = 0;
};

/// Called once, with the exchange of each rank.
using MakeCarrier = std::function<std::unique_ptr<Carrier>(std::span<Exchange* const>)>;

/// The exchanges of a group whose ranks all live in this process:
///
///   LocalGroup group(world_size, epoch, comm_actors(system));
///   group.exchange(rank)   // one for each compute thread
///
/// or of one of several groups, whose leaders are linked:
///
///   LocalGroup group(groups, epoch, comm_actors(system), *peer_link);
///   group.exchange(rank)   // for the ranks of this group
///
/// An error that one rank notices fails all of them, in all groups. Small collectives are done at
/// once by the compute thread that comes last (`limits::kDirectBytes`); notes of larger ones are
/// carried, so that a hook in the backward pass is not kept from its work.
class LocalGroup final : public ExchangeGroup {
 public:
  LocalGroup(int world_size, std::uint64_t epoch, const MakeCarrier& make_carrier);
  LocalGroup(const Groups& groups, std::uint64_t epoch, const MakeCarrier& make_carrier,
             Link& link);
  ~LocalGroup() override;
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int world_size() const;
  Exchange& exchange(int rank) override;
  void fail(const Error& error) override;

 private:
  LocalGroup(const Groups& groups, std::uint64_t epoch, const MakeCarrier& make_carrier,
             Link* link);
  void fail(const Error& error, bool tell_others);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sgd::internal
