#pragma once

#include "libactor/result.hpp"
#include "sgd/internal/note_ring.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace troupe::sgd::internal {

/// Memory of a group of ranks that live in several processes of one machine, for one epoch: their
/// buffers, rings of notes between them, a bell for each, and the first error.
///
///   auto segment = SharedSegment::create({.world_size = 4, .epoch = 7});   // the trainer
///   auto group = join_shared_group({.path = segment->path(), …});          // each process
///   segment->fail(error);              // the trainer, when a process has died or does not answer
///
/// It has no name in any file system: it is gone with the last process that has it open. Copies of
/// this object are the same memory. What lies there is believed only as far as it can do no harm: a
/// process that writes rubbish gives wrong sums or an error, never an access outside.
class SharedSegment {
 public:
  struct Options {
    int world_size = 1;
    std::uint64_t epoch = 0;
    std::uint64_t memory_bytes = 0;  ///< for the buffers of all ranks; 0: as the machine has
  };
  /// Errors: bad_request: too many ranks; out_of_resources. What is not used takes address space
  /// only.
  static Result<SharedSegment> create(const Options& options);
  /// By what `path` says in a process of the same user that has it open. Errors: not_found: that
  /// one is gone; corrupt: something else lies there; out_of_resources.
  static Result<SharedSegment> open(const std::string& path);

  std::string path() const;
  int world_size() const;
  std::uint64_t epoch() const;

  /// Wakes everybody in every process. Returns the first error, which stays. Long texts are cut.
  Error fail(const Error& error) const;
  /// Empty (`caf::none`) while all is well.
  Error failure() const;

  // --- for the exchange ---
  /// Once for each rank; false: somebody is it already.
  bool claim(int rank) const;
  NoteRing& ring(int from_rank, int to_rank) const;

  /// Bells lose nothing. Who takes notes reads `bell`, then looks through the rings, then waits
  /// with the number read. Who brings one writes it, then calls `ring_bell`. If the look missed a
  /// note, the number read was older than that note's ring; so either the kernel, which compares
  /// under its lock, finds another number and does not wait, or the ring comes later and wakes.
  std::uint32_t bell(int rank) const;
  void ring_bell(int rank) const;
  /// False: the time is over.
  bool wait_for_bell(int rank, std::uint32_t seen, std::chrono::milliseconds limit) const;

  /// As in `Mail`. There is no way back: a group takes its buffers once.
  std::span<std::byte> allocate(std::size_t size_bytes) const;
  std::uint64_t address_of(std::span<const std::byte> data) const;
  std::byte* resolve(std::uint64_t address, std::uint64_t size_bytes) const;
  std::shared_ptr<void> memory() const;

 private:
  struct Mapping;
  explicit SharedSegment(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace troupe::sgd::internal
