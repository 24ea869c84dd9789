#include "sgd/internal/shared_group.hpp"

#include "libactor/assert.hpp"
#include "libactor/clock.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/shared_segment.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::sgd::internal {
namespace {

/// One rank's.
class SharedMail final : public Mail {
 public:
  SharedMail(SharedSegment segment, int rank) : segment_(std::move(segment)), rank_(rank) {
    for (int other = 0; other < segment_.world_size(); ++other) {
      out_.push_back({NoteWriter(segment_.ring(rank, other))});
      in_.emplace_back(segment_.ring(other, rank));
    }
  }

  void send(int to_rank, const Note& note) override {
    const std::lock_guard lock(mutex_);
    out_[static_cast<std::size_t>(to_rank)].waiting.push_back(note);
    if (to_rank == rank_)
      segment_.ring_bell(rank_);
    else
      write(to_rank);
  }

  /// Writes what had no room. True when nothing is left.
  bool flush() {
    const std::lock_guard lock(mutex_);
    bool all = true;
    for (int to_rank = 0; to_rank < segment_.world_size(); ++to_rank)
      if (to_rank != rank_) all = write(to_rank) && all;
    return all;
  }

  /// The next note from that rank, if there is one. One's own do not go through a ring: nobody else
  /// can write them. corrupt: what lies there no rank has sent.
  Result<std::optional<Note>> take(int from_rank) {
    const auto from = static_cast<std::size_t>(from_rank);
    if (from_rank == rank_) return take_own();
    NoteReader& ring = in_[from];
    const std::uint64_t unread = ring.unread();
    if (unread == 0) return std::nullopt;
    if (unread <= limits::kRingNotes)
      if (const Note note = ring.take(); note.from == from_rank) return note;
    return make_error(Errc::corrupt, "somebody has overwritten the notes from rank " +
                                         std::to_string(from_rank) + " to rank " +
                                         std::to_string(rank_));
  }

  std::uint64_t address_of(std::span<const std::byte> data) override {
    return segment_.address_of(data);
  }
  std::byte* resolve(int, std::uint64_t address, std::uint64_t size_bytes) override {
    return segment_.resolve(address, size_bytes);
  }
  std::span<std::byte> allocate(std::size_t size_bytes) override {
    return segment_.allocate(size_bytes);
  }
  std::shared_ptr<void> memory() override { return segment_.memory(); }

 private:
  struct Out {
    NoteWriter writer;
    std::deque<Note> waiting = {};
  };

  std::optional<Note> take_own() {
    const std::lock_guard lock(mutex_);
    auto& own = out_[static_cast<std::size_t>(rank_)].waiting;
    if (own.empty()) return std::nullopt;
    const Note note = own.front();
    own.pop_front();
    return note;
  }

  /// With the lock. True when nothing is left.
  bool write(int to_rank) {
    auto& [writer, waiting] = out_[static_cast<std::size_t>(to_rank)];
    bool wrote = false;
    while (!waiting.empty() && writer.write(waiting.front())) {
      waiting.pop_front();
      wrote = true;
    }
    if (wrote) segment_.ring_bell(to_rank);
    return waiting.empty();
  }

  SharedSegment segment_;
  const int rank_;
  std::mutex mutex_;  // of out_: compute and comm thread send
  std::vector<Out> out_;
  std::vector<NoteReader> in_;  // of the comm thread
};

/// Brings one rank its notes.
class CommThread {
 public:
  CommThread(SharedSegment segment, SharedMail& mail, Exchange& exchange, ExchangeGroup& group)
      : segment_(std::move(segment)),
        mail_(mail),
        exchange_(exchange),
        group_(group),
        thread_([this] {
          if (auto ran = fence(Errc::io, [this] { run(); }); !ran) group_.fail(ran.error());
        }) {}
  ~CommThread() {
    ends_ = true;
    segment_.ring_bell(rank());
    thread_.join();
  }
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

 private:
  int rank() const { return exchange_.place().rank; }

  void run() {
    std::optional<Clock::Time> end;
    for (;;) {
      const std::uint32_t seen = segment_.bell(rank());  // before all that it tells of
      if (const Error error = segment_.failure()) return exchange_.fail(error);
      const bool all_sent = mail_.flush();
      if (ends_) {  // others may still need what this rank had to say
        if (!end) end = clock_.now() + limits::kBell;
        if (all_sent || clock_.now() >= *end) return;
      }
      if (!deliver())
        segment_.wait_for_bell(rank(), seen, all_sent ? limits::kBell : limits::kFullRing);
    }
  }

  /// One note of each rank. Whether there was any.
  bool deliver() {
    bool any = false;
    for (int from = 0; from < segment_.world_size(); ++from) {
      const auto note = mail_.take(from);
      if (!note) {
        group_.fail(note.error());
        return true;
      }
      if (*note) exchange_.deliver(**note);
      any = any || *note;
    }
    return any;
  }

  SystemClock clock_;
  SharedSegment segment_;
  SharedMail& mail_;
  Exchange& exchange_;
  ExchangeGroup& group_;
  std::atomic<bool> ends_{false};
  std::thread thread_;  // last: it uses the others
};

class SharedGroup final : public ExchangeGroup {
 public:
  SharedGroup(SharedSegment segment, int first_rank, int rank_count)
      : segment_(std::move(segment)), first_rank_(first_rank) {
    for (int i = 0; i < rank_count; ++i) {
      const Exchange::Place place{
          .rank = first_rank + i, .world_size = segment_.world_size(), .epoch = segment_.epoch()};
      ranks_.push_back(std::make_unique<Rank>(segment_, place));
      ranks_.back()->exchange.on_failure([this](const Error& error) { fail(error); });
    }
    for (auto& rank : ranks_)
      rank->thread = std::make_unique<CommThread>(segment_, rank->mail, rank->exchange, *this);
  }
  ~SharedGroup() override {
    for (auto& rank : ranks_) rank->thread.reset();  // each of them may fail all ranks
  }

  Exchange& exchange(int rank) override {
    const auto index = static_cast<std::size_t>(rank - first_rank_);
    TROUPE_ASSERT(rank >= first_rank_ && index < ranks_.size(), rank, first_rank_);
    return ranks_[index]->exchange;
  }

  void fail(const Error& error) override {
    const Error first = segment_.fail(error);
    for (auto& rank : ranks_) rank->exchange.fail(first);
  }

 private:
  struct Rank {
    Rank(const SharedSegment& segment, Exchange::Place place)
        : mail(segment, place.rank), exchange(place, mail) {}
    SharedMail mail;
    Exchange exchange;
    std::unique_ptr<CommThread> thread = {};
  };

  SharedSegment segment_;
  const int first_rank_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace

Result<std::unique_ptr<ExchangeGroup>> join_shared_group(const SharedPlace& place) {
  auto segment = SharedSegment::open(place.path);
  if (!segment) return segment.error();
  const auto wrong = [&place](const std::string& why) {
    return make_error(Errc::bad_request, "rank " + std::to_string(place.first_rank) + " and " +
                                             std::to_string(place.rank_count - 1) +
                                             " more can't join a group in shared memory: " + why);
  };
  if (segment->epoch() != place.epoch)
    return wrong("it is of epoch " + std::to_string(segment->epoch()) + ", not " +
                 std::to_string(place.epoch));
  if (place.first_rank < 0 || place.rank_count < 1 ||
      place.rank_count > segment->world_size() - place.first_rank)
    return wrong("it has " + std::to_string(segment->world_size()) + " ranks");
  for (int i = 0; i < place.rank_count; ++i)
    if (!segment->claim(place.first_rank + i))
      return wrong("rank " + std::to_string(place.first_rank + i) + " has joined before");
  return std::unique_ptr<ExchangeGroup>(
      std::make_unique<SharedGroup>(*segment, place.first_rank, place.rank_count));
}

}  // namespace troupe::sgd::internal
