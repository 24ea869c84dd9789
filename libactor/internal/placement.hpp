#pragma once

#include "libactor/clock.hpp"
#include "libactor/id.hpp"
#include "libactor/resources.hpp"
#include "libactor/result.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::internal {

/// What one machine has and what of it is free. GPUs are counted device by device: 0.6 does not fit
/// on two halves, and above 1 whole devices are given.
class NodeLedger {
 public:
  /// total: checked, with a whole number of gpus.
  explicit NodeLedger(const Resources& total);

  /// The devices that `wanted` would get (none when it wants none), or nullopt when it does not fit
  /// now.
  std::optional<std::vector<int>> fit(const Resources& wanted) const;
  void take(const Resources& wanted, const std::vector<int>& devices);
  void give_back(const Resources& wanted, const std::vector<int>& devices);

  /// The same machine with nothing taken.
  NodeLedger emptied() const;
  /// 0 when `wanted` fits now, else how much is missing, in parts of what is wanted.
  double shortage(const Resources& wanted) const;
  /// "cpus=2: 0 of 2 free" for the first thing that is short; empty when it fits.
  std::string what_is_short(const Resources& wanted) const;

  Resources total() const;
  Resources free() const;

 private:
  std::map<std::string, std::int64_t> total_;  ///< cpus, memory and custom; never 0
  std::map<std::string, std::int64_t> free_;   ///< the same names
  std::vector<Amount> free_devices_;           ///< what is free of each, at most 1
};

/// A request that was given what it asked for, on one machine.
struct Grant {
  RequestId request = {};
  NodeId node = {};
  Resources resources = {};              ///< as asked
  std::vector<int> device_indices = {};  ///< in the machine's list of GPUs
};

/// The head's ledger, the only place that knows what is free. Pure: no clock, no I/O.
///
/// Requests are served in order of arrival. For the oldest that does not fit, one machine is set
/// aside: what came later gets there only what leaves the oldest all that is free of what it needs,
/// so it can't be delayed.
class Placement {
 public:
  /// bad_request: the amounts are wrong, gpus is no whole number, or the id is taken.
  Result<void> add_node(NodeId id, Resources total);

  /// Queues. bad_request: the amounts are wrong, or the id is taken. What no machine can ever grant
  /// is queued too, since one that can may join: see `impossible` and `pending`.
  Result<void> request(RequestId id, Resources wanted, Clock::Time now);

  /// Grants what can be granted, oldest first.
  std::vector<Grant> pump();

  /// Gives back what was granted; false when there is no such grant.
  bool release(const RequestId& id);
  /// Forgets a request that is not granted yet; false when there is none.
  bool cancel(const RequestId& id);

  struct Pending {
    RequestId request = {};
    Resources wanted = {};
    Clock::Time since = {};
    bool impossible = false;  ///< for the machines of now
    std::string why = {};     ///< "needs cpus=2: 0 of 2 free on this machine"
  };
  std::vector<Pending> pending() const;  ///< oldest first

  /// Why no machine could ever grant this: names the resource, the amount asked, and the most that
  /// one machine has. nullopt when one could, or when there is no machine yet.
  std::optional<std::string> impossible(const Resources& wanted) const;

  struct NodeState {
    NodeId id = {};
    Resources total = {};
    Resources free = {};
  };
  std::vector<NodeState> nodes() const;

 private:
  struct Node {
    NodeId id = {};
    NodeLedger ledger;
  };
  struct Waiting {
    RequestId id = {};
    Resources wanted = {};
    Clock::Time since = {};
  };
  struct Place {
    std::size_t node = 0;  ///< index in nodes_
    std::vector<int> devices = {};
  };
  struct Held {
    Place place = {};
    Resources resources = {};
  };
  struct Reservation {
    Waiting oldest = {};
    std::size_t node = 0;
  };

  std::optional<Place> find_place(const Resources& wanted, bool behind_oldest) const;
  /// False when no machine can ever grant it.
  bool set_aside_for(const Waiting& waiting);
  bool delays_the_oldest(const Place& place, const Resources& wanted) const;
  /// Of the machines that could ever grant it, the one where the least is missing now.
  std::optional<std::size_t> nearest_node(const Resources& wanted) const;
  std::string why_waiting(const Waiting& waiting) const;
  std::string node_name(std::size_t node) const;

  std::vector<Node> nodes_;
  std::deque<Waiting> queue_;
  std::map<RequestId, Held> held_;
  std::optional<Reservation> reservation_;
};

}  // namespace troupe::internal
