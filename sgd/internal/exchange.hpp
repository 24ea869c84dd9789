#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/result.hpp"
#include "sgd/ddp_options.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// How the ranks of a group add up their tensors. Knows neither CAF nor LibTorch: buffers come as
/// bytes, and messages go and come through `Mail`.
namespace troupe::sgd::internal {

using Reduce = ReduceOp;

/// What one rank brings to one collective. Its buffer must stay where it is, and nobody but the
/// exchange may touch it, until `wait` has returned.
struct Contribution {
  enum class Kind : std::uint8_t { reduce, broadcast, gather, barrier };
  Kind kind = Kind::reduce;
  Reduce reduce = Reduce::sum;
  DType dtype = DType::float32;
  std::span<std::byte> data = {};  ///< in place; gather: world_size equal parts, the own one filled
  double weight = 1;               ///< average: Σ weight·x / Σ weight; 0 brings nothing
  int root = 0;                    ///< broadcast
};

/// What ranks tell each other. A plain value of fixed size, so that it fits a message, a queue and
/// shared memory alike.
struct Note {
  enum class Kind : std::uint8_t {
    piece,   ///< "my buffer for this collective is ready, here it is"
    done,    ///< "I have read of yours what I need, and written into it what is mine to write"
    joined,  ///< the leader's: "your buffer has what all groups have brought"
  };
  Kind kind = Kind::piece;
  Contribution::Kind collective = Contribution::Kind::reduce;
  Reduce reduce = Reduce::sum;
  DType dtype = DType::none;
  std::int32_t from = 0;
  std::int32_t root = 0;
  std::uint32_t channel = 0;   ///< 0: the user's own calls; others: one a model
  std::uint64_t epoch = 0;     ///< of membership; another one's notes are dropped
  std::uint64_t sequence = 0;  ///< of the collective in its channel
  std::uint64_t address = 0;   ///< of the buffer, in a form that `Mail::resolve` understands
  std::uint64_t size_bytes = 0;
  double weight = 1;
};

/// The way between ranks that reach the same memory, as one rank has it. `Exchange` is written
/// against this; there is one for ranks of a process (`local_group.hpp`), and one for processes
/// (`shared_group.hpp`).
class Mail {
 public:
  virtual ~Mail() = default;
  /// Brings the note to that rank's `deliver`, oneself's too. Never blocks. What is quickly done
  /// may be delivered on the calling thread.
  virtual void send(int to_rank, const Note& note) = 0;
  /// Where `data` lies, for others; 0 when it is not all in memory that `allocate` made.
  virtual std::uint64_t address_of(std::span<const std::byte> data) = 0;
  /// nullptr when `rank` has no such memory.
  virtual std::byte* resolve(int rank, std::uint64_t address, std::uint64_t size_bytes) = 0;
  /// Memory that others reach, zeroed, 64-byte aligned; empty when there is no more. It lives until
  /// nobody holds `memory()`, and the group does so itself: after a failure others may still write
  /// there for a moment.
  virtual std::span<std::byte> allocate(std::size_t size_bytes) = 0;
  virtual std::shared_ptr<void> memory() = 0;
};

class Link;  // link.hpp

/// One rank's part in all collectives of its world.
///
/// A collective has two phases. Each rank tells all others where its buffer lies (`piece`). Who has
/// heard of all buffers owns one slice of them: it adds up the slice over all buffers in rank
/// order, writes the result into every buffer, and tells all (`done`). Who has heard that from all
/// is through. So results are the same bits on all ranks and in every run.
///
/// With several groups (ranks that reach the same memory) the leader, a group's first rank, passes
/// pieces on to the leaders of the others; slices begin when those of the whole world are there, so
/// that every rank knows all weights, and differences and missing ranks are found as in one group.
/// A slice is added up over the group, each rank with its share in the world, into the leader's
/// buffer alone. When all slices are done the leader joins it with those of the other groups by its
/// link, writes the result into every buffer of its group, and tells all (`joined`). The sum is
/// then one over ranks within a group, and one over groups; float16 and bfloat16 are rounded once
/// in each group, and after each addition between groups.
///
/// `start` is called on the rank's compute thread and only sends; `deliver` on whichever thread
/// brings notes, and takes this rank's slice there; `wait` on the compute thread, where it takes
/// slices that nobody has taken yet. With `world_size` 1 nothing is sent and nothing is changed.
///
/// After `fail`, or when ranks do not do the same, everything that waits or starts gets the error,
/// on every rank the same one; the group must then be made anew.
class Exchange {
 public:
  struct Place {
    int rank = 0;
    int world_size = 1;
    std::uint64_t epoch = 0;
    int first_rank = 0;  ///< of this rank's group
    int rank_count = 0;  ///< of this rank's group; 0: it is the world
  };
  /// Of one collective: channel and sequence.
  struct Ticket {
    std::uint32_t channel = 0;
    std::uint64_t sequence = 0;
  };

  /// `mail` and `link` must outlive it. link: the leader has one where there are several groups.
  Exchange(Place place, Mail& mail, Link* link = nullptr);
  ~Exchange();

  const Place& place() const;
  /// A new line of collectives; every rank opens the same ones in the same order. `name` is for
  /// sentences: "gradients of net".
  std::uint32_t open_channel(std::string name);

  Ticket start(std::uint32_t channel, const Contribution& contribution);
  /// Once for each ticket. Errors: timed_out, naming the ranks that have not come and where they
  /// were last seen; whatever `fail` said; bad_request: ranks came with different collectives, or
  /// with one that does not exist for their type; corrupt: a note that no exchange sends.
  Result<void> wait(Ticket ticket, std::chrono::milliseconds limit);

  void deliver(const Note& note);
  /// The same when this rank's compute thread waits: that thread does then what is to be done,
  /// which spares waking another. Else does nothing and returns false.
  bool deliver_to_waiting(const Note& note);
  /// What `Link::begin` has been given holds the result. On any thread.
  void joined(Ticket ticket);
  /// Notes of later epochs that came too early, for the exchange that follows.
  std::vector<Note> take_early();

  /// Wakes everybody. The first error stays.
  void fail(const Error& error);
  /// Empty (`caf::none`) while all is well.
  Error failure() const;
  /// Called once, on the thread that notices, when this rank finds an error that the others must
  /// hear of: the group's owner passes it to every rank's `fail`, this one's too. Set it before the
  /// first note.
  void on_failure(std::function<void(const Error&)> told);

  /// Ranks that this one waits for now, and in what: for reports of slow ones.
  struct Missing {
    std::string collective = {};  ///< empty: it waits for nobody
    std::vector<int> ranks = {};
    std::chrono::milliseconds since = {};
  };
  Missing missing() const;

  Mail& mail() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sgd::internal
