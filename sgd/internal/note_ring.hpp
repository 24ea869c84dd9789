#pragma once

#include "sgd/internal/exchange.hpp"
#include "sgd/internal/limits.hpp"

#include <array>
#include <atomic>
#include <cstdint>

/// Notes from one rank to one other, in order, through memory that two processes map. One thread at
/// a time writes, and one takes. Each side keeps its place to itself and only tells it to the other
/// one: whatever lies in the memory, nothing beside the ring is read or written.
namespace troupe::sgd::internal {

/// All zero: empty.
struct NoteRing {
  alignas(64) std::atomic<std::uint64_t> written;  // of all notes that ever were
  alignas(64) std::atomic<std::uint64_t> taken;
  alignas(64) std::array<Note, limits::kRingNotes> notes;
};
static_assert(
    std::atomic<std::uint64_t>::is_always_lock_free);  // else it would work in one process

class NoteWriter {
 public:
  explicit NoteWriter(NoteRing& ring) : ring_(&ring) {}
  /// False: it is full.
  bool write(const Note& note) {
    if (written_ - ring_->taken.load(std::memory_order_acquire) >= limits::kRingNotes) return false;
    ring_->notes[written_++ % limits::kRingNotes] = note;
    ring_->written.store(written_, std::memory_order_release);
    return true;
  }

 private:
  NoteRing* ring_;
  std::uint64_t written_ = 0;
};

class NoteReader {
 public:
  explicit NoteReader(NoteRing& ring) : ring_(&ring) {}
  /// More than `limits::kRingNotes`: somebody has overwritten the ring.
  std::uint64_t unread() const { return ring_->written.load(std::memory_order_acquire) - taken_; }
  /// When there is one.
  Note take() {
    const Note note = ring_->notes[taken_++ % limits::kRingNotes];
    ring_->taken.store(taken_, std::memory_order_release);
    return note;
  }

 private:
  NoteRing* ring_;
  std::uint64_t taken_ = 0;
};

}  // namespace troupe::sgd::internal
