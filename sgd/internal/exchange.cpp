#include "sgd/internal/exchange.hpp"

#include "libactor/assert.hpp"
#include "libactor/clock.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/link.hpp"
#include "sgd/internal/reduce.hpp"
#include "sgd/internal/words.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace troupe::sgd::internal {
namespace {

constexpr std::uint64_t kLineBytes = 64;  // slices share no cache line

/// What this rank knows of one collective.
struct Collective {
  Collective(int world_size, int rank_count) : pieces(world_size), done(rank_count) {}

  std::vector<std::optional<Note>> pieces;  // by rank; all there: they change no more
  std::vector<bool> done;                   // by rank in the group
  int piece_count = 0;
  int done_count = 0;
  bool claimed = false;  // somebody takes this rank's slice, or has
  bool joining = false;  // all slices of the group are done: the leader has begun its link
  bool joined = false;   // with what the other groups have brought
  bool over = false;     // waited for
};

struct Channel {
  std::string name = {};
  std::uint64_t started = 0;         // by this rank
  std::uint64_t first = 0;           // the sequence of open[0]
  std::deque<Collective> open = {};  // references into it stay valid while others come and go
};

bool same(const Note& a, const Note& b) {
  using Kind = Contribution::Kind;
  return a.collective == b.collective && a.dtype == b.dtype && a.size_bytes == b.size_bytes &&
         (a.collective != Kind::reduce || a.reduce == b.reduce) &&
         (a.collective != Kind::broadcast || a.root == b.root);
}

// --- sentences ------------------------------------------------------------------------------

/// "a sum of 12 float32".
std::string describe_collective(const Note& note, int world_size) {
  std::uint64_t count = note.size_bytes / bytes_of(note.dtype);
  std::string what;
  switch (note.collective) {
    case Contribution::Kind::barrier: return "a barrier";
    case Contribution::Kind::broadcast: what = "a broadcast"; break;
    case Contribution::Kind::gather:
      what = "a gathering";
      count /= static_cast<std::uint64_t>(world_size);
      break;
    case Contribution::Kind::reduce:
      switch (note.reduce) {
        case Reduce::sum: what = "a sum"; break;
        case Reduce::average: what = "an average"; break;
        case Reduce::min: what = "a minimum"; break;
        case Reduce::max: what = "a maximum"; break;
      }
  }
  what += " of " + std::to_string(count) + " " + std::string(name_of(note.dtype));
  if (note.collective == Contribution::Kind::broadcast)
    what += " from rank " + std::to_string(note.root);
  return what;
}

/// Elements of the slice that `rank` takes.
std::pair<std::uint64_t, std::uint64_t> slice(std::uint64_t count, std::uint64_t element_bytes,
                                              int rank, int world_size) {
  const auto ranks = static_cast<std::uint64_t>(world_size);
  const std::uint64_t line = std::max<std::uint64_t>(1, kLineBytes / element_bytes);
  const std::uint64_t length = ((count + ranks - 1) / ranks + line - 1) / line * line;
  const std::uint64_t begin = std::min(count, length * static_cast<std::uint64_t>(rank));
  return {begin, std::min(count, begin + length)};
}

}  // namespace

struct Exchange::Impl {
  using Lock = std::unique_lock<std::mutex>;

  Impl(Place where, Mail& way, Link* others) : place(filled(where)), mail(way), link(others) {
    TROUPE_ASSERT(place.first_rank >= 0 && in_group(place.rank) &&
                      place.first_rank + place.rank_count <= place.world_size,
                  place.rank, place.world_size, place.first_rank, place.rank_count);
    TROUPE_ASSERT((link != nullptr) == (several_groups() && place.rank == place.first_rank),
                  place.rank, place.first_rank);
    last_seen.resize(static_cast<std::size_t>(place.world_size));
    name_channel("the operator's own calls");
  }

  static Place filled(Place place) {
    if (place.rank_count == 0) place.rank_count = place.world_size;
    return place;
  }
  bool several_groups() const { return place.rank_count < place.world_size; }
  bool in_group(int rank) const {
    return rank >= place.first_rank && rank < place.first_rank + place.rank_count;
  }
  /// Others, of its group.
  void send_to_others(const Note& note) {
    for (int i = 0; i < place.rank_count; ++i)
      if (place.first_rank + i != place.rank) mail.send(place.first_rank + i, note);
  }

  // Call these with the lock.
  std::uint32_t name_channel(std::string name);
  Channel& channel(std::uint32_t id);
  Collective& collective(Channel& channel, std::uint64_t sequence);
  Result<void> take(const Note& note);
  Collective* accept(Lock& lock, const Note& note);
  std::string number(const Note& note) const;
  std::string where(const Note& note) const;
  std::optional<Error> disagreement(const Collective& collective) const;
  Error timeout(const Collective& collective, std::chrono::milliseconds limit) const;
  std::vector<int> missing_in(const Collective& collective) const;
  bool is_over(const Collective& collective) const;
  bool work(Lock& lock, std::uint32_t channel, Collective& collective);
  bool work_anywhere(Lock& lock);
  void changed();

  // And these without.
  void relay(const Note& note);
  void join_groups(const Note& note);
  Result<std::vector<std::byte*>> buffers_of(const Collective& collective) const;
  Result<void> take_slice(const Collective& collective);
  void notice(const Error& error);
  bool spin(std::uint64_t seen);

  const Place place;
  Mail& mail;
  Link* const link;
  SystemClock clock;
  std::function<void(const Error&)> told;

  mutable std::mutex mutex;
  std::condition_variable condition;
  std::atomic<std::uint64_t> changes{0};  // counts what `wait` looks at
  int sleeping = 0;
  std::optional<Error> failed;
  bool noticed = false;
  std::deque<Channel> channels;  // references stay valid
  std::uint32_t opened = 0;
  std::vector<std::optional<Note>> last_seen;  // the newest piece of each rank
  std::vector<Note> early;
  std::optional<Ticket> waits_in;
  Clock::Time waits_since = {};
};

// --- with the lock --------------------------------------------------------------------------

std::uint32_t Exchange::Impl::name_channel(std::string name) {
  TROUPE_ASSERT(opened < limits::kChannels, opened);
  channel(opened).name = std::move(name);
  return opened++;
}

/// Others may have opened it already, and this rank not.
Channel& Exchange::Impl::channel(std::uint32_t id) {
  while (channels.size() <= id) channels.emplace_back();
  return channels[id];
}

Collective& Exchange::Impl::collective(Channel& channel, std::uint64_t sequence) {
  while (channel.first + channel.open.size() <= sequence)
    channel.open.emplace_back(place.world_size, place.rank_count);
  return channel.open[sequence - channel.first];
}

/// Notes what `note` says. Error: nobody sends that.
Result<void> Exchange::Impl::take(const Note& note) {
  const auto broken = [&note](const std::string& why) {
    return make_error(Errc::corrupt, "a note from rank " + std::to_string(note.from) +
                                         " to the exchange can't be: " + why);
  };
  if (note.from < 0 || note.from >= place.world_size) return broken("there is no such rank");
  if (note.channel >= limits::kChannels) return broken("its channel is out of range");
  const bool piece = note.kind == Note::Kind::piece;
  if (!piece && note.kind != Note::Kind::done && note.kind != Note::Kind::joined)
    return broken("it is none of piece, done and joined");
  if (!piece && !in_group(note.from)) return broken("only pieces come from other groups");
  if (note.kind == Note::Kind::joined && (note.from != place.first_rank || !several_groups()))
    return broken("only a leader says that groups are joined");
  Channel& line = channel(note.channel);
  const bool own = note.from == place.rank;
  if (note.sequence < line.first) {
    if (own) return {};
    return broken("its collective is over");
  }
  if (note.sequence - line.first >= limits::kOpenCollectives)
    return broken("it is " + std::to_string(note.sequence - line.first) +
                  " collectives ahead of this rank");
  Collective& one = collective(line, note.sequence);
  const auto from = static_cast<std::size_t>(note.from);
  if (piece) {
    if (one.pieces[from].has_value()) {
      if (own) return {};  // comes again, to the thread that may take the slice
      return broken("it came before");
    }
    one.pieces[from] = note;
    last_seen[from] = note;
    ++one.piece_count;
  } else if (note.kind == Note::Kind::joined) {
    if (one.joined) return broken("it came before");
    one.joined = true;
    changed();
  } else {
    auto done = one.done.begin() + (note.from - place.first_rank);
    if (*done) return broken("it came before");
    *done = true;
    if (++one.done_count == place.rank_count) changed();
  }
  return {};
}

/// Takes a note of this epoch. Returns its collective when that may have work now; the lock is open
/// for a while where the note is an error.
Collective* Exchange::Impl::accept(Lock& lock, const Note& note) {
  if (note.epoch > place.epoch && early.size() < limits::kEarlyNotes) early.push_back(note);
  if (note.epoch != place.epoch || failed) return nullptr;
  if (const auto taken = take(note); !taken) {
    lock.unlock();
    notice(taken.error());
    lock.lock();
    return nullptr;
  }
  Channel& line = channel(note.channel);
  if (link != nullptr && note.from != place.rank) {
    const bool all_done = note.kind == Note::Kind::done &&
                          collective(line, note.sequence).done_count == place.rank_count;
    lock.unlock();
    relay(note);
    if (all_done) join_groups(note);
    lock.lock();
  }
  if (failed || note.kind != Note::Kind::piece || note.sequence < line.first) return nullptr;
  return &collective(line, note.sequence);
}

/// "number 3 of 'gradients of net'".
std::string Exchange::Impl::number(const Note& note) const {
  const std::string& name = channels[note.channel].name;
  return "number " + std::to_string(note.sequence + 1) + " of " +
         (name.empty() ? "channel " + std::to_string(note.channel) : "'" + name + "'");
}

std::string Exchange::Impl::where(const Note& note) const {
  return describe_collective(note, place.world_size) + " (" + number(note) + ")";
}

/// Between the ranks, or with what there is. All ranks see the same pieces and find the same words.
std::optional<Error> Exchange::Impl::disagreement(const Collective& collective) const {
  const Note& first = *collective.pieces.front();
  const auto& pieces = collective.pieces;
  if (!std::all_of(pieces.begin(), pieces.end(), [&](const auto& x) { return same(first, *x); })) {
    std::vector<std::pair<Note, std::vector<int>>> groups;
    for (const auto& piece : pieces) {
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const auto& other) { return same(other.first, *piece); });
      if (group == groups.end()) group = groups.insert(groups.end(), {*piece, {}});
      group->second.push_back(piece->from);
    }
    std::vector<std::string> words;
    for (const auto& [note, ranks] : groups)
      words.push_back(describe_collective(note, place.world_size) + " for " + name_ranks(ranks));
    return make_error(Errc::bad_request, "ranks do not do the same: " + number(first) + " is " +
                                             enumerate(words) +
                                             "; every rank must call the same collectives in the "
                                             "same order");
  }
  if (first.collective == Contribution::Kind::reduce && !can_reduce(first.dtype, first.reduce))
    return make_error(Errc::bad_request,
                      "there is no such thing as " + where(first) + ": convert the tensor first");
  if (first.collective == Contribution::Kind::broadcast &&
      (first.root < 0 || first.root >= place.world_size))
    return make_error(Errc::bad_request, where(first) + ": there is no such rank, the group has " +
                                             std::to_string(place.world_size));
  return std::nullopt;
}

std::vector<int> Exchange::Impl::missing_in(const Collective& collective) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < place.world_size; ++rank) {
    const auto in_world = static_cast<std::size_t>(rank);
    const auto here = static_cast<std::size_t>(rank - place.first_rank);
    bool came = false;
    if (collective.piece_count < place.world_size)
      came = collective.pieces[in_world].has_value();
    else if (collective.done_count < place.rank_count)
      came = !in_group(rank) || collective.done[here];
    else
      came = in_group(rank);
    if (!came) ranks.push_back(rank);
  }
  return ranks;
}

/// Nothing is left to be joined where there are no bytes.
bool Exchange::Impl::is_over(const Collective& collective) const {
  if (collective.done_count < place.rank_count) return false;
  return collective.joined || !several_groups() || collective.pieces.front()->size_bytes == 0;
}

Error Exchange::Impl::timeout(const Collective& collective, std::chrono::milliseconds limit) const {
  const auto self = static_cast<std::size_t>(place.rank);
  std::vector<std::string> words;
  for (const int rank : missing_in(collective)) {
    const auto& seen = last_seen[static_cast<std::size_t>(rank)];
    words.push_back("rank " + std::to_string(rank) +
                    (seen ? ", last seen in " + where(*seen) : ", of which nothing was seen"));
  }
  return make_error(Errc::timed_out, "rank " + std::to_string(place.rank) + " has waited " +
                                         std::to_string(limit.count()) + " ms in " +
                                         where(*collective.pieces[self]) + " for " +
                                         enumerate(words));
}

/// Takes this rank's slice, if it can be taken and nobody has. The lock is open meanwhile.
bool Exchange::Impl::work(Lock& lock, std::uint32_t channel, Collective& collective) {
  if (failed || collective.claimed || collective.piece_count < place.world_size) return false;
  collective.claimed = true;
  if (const auto error = disagreement(collective)) {
    lock.unlock();
    notice(*error);
    lock.lock();
    return true;
  }
  const Note& own = *collective.pieces[static_cast<std::size_t>(place.rank)];
  Note done = own;
  done.kind = Note::Kind::done;
  done.channel = channel;
  lock.unlock();
  if (const auto taken = take_slice(collective); !taken) {
    notice(taken.error());
  } else {
    send_to_others(done);
  }
  lock.lock();
  if (!failed) {
    TROUPE_ASSERT(take(done).operator bool());
    if (link != nullptr && collective.done_count == place.rank_count) {
      lock.unlock();
      join_groups(done);
      lock.lock();
    }
  }
  return true;
}

bool Exchange::Impl::work_anywhere(Lock& lock) {
  for (std::uint32_t id = 0; id < channels.size(); ++id)
    for (auto& collective : channels[id].open)
      if (work(lock, id, collective)) return true;  // what was open may have changed
  return false;
}

void Exchange::Impl::changed() {
  changes.fetch_add(1, std::memory_order_release);
  if (sleeping > 0) condition.notify_all();
}

// --- without the lock -----------------------------------------------------------------------

/// The leader passes on what came from its group to the others, and what came from them to its
/// group.
void Exchange::Impl::relay(const Note& note) {
  if (link == nullptr || note.kind != Note::Kind::piece) return;
  if (in_group(note.from))
    link->publish(note);
  else
    send_to_others(note);
}

/// All slices of the group are done. More than one thread may see it.
void Exchange::Impl::join_groups(const Note& note) {
  if (note.size_bytes == 0) return;
  Lock lock(mutex);
  Collective& one = collective(channel(note.channel), note.sequence);
  if (std::exchange(one.joining, true)) return;
  const Note& own = *one.pieces[static_cast<std::size_t>(place.rank)];
  lock.unlock();
  link->begin({.ticket = {own.channel, own.sequence},
               .kind = own.collective,
               .reduce = own.reduce,
               .dtype = own.dtype,
               .root = own.root,
               .data = {mail.resolve(place.rank, own.address, own.size_bytes), own.size_bytes}});
}

/// Of the group, by rank.
Result<std::vector<std::byte*>> Exchange::Impl::buffers_of(const Collective& collective) const {
  std::vector<std::byte*> buffers;
  for (int i = 0; i < place.rank_count; ++i) {
    const Note& piece = *collective.pieces[static_cast<std::size_t>(place.first_rank + i)];
    buffers.push_back(mail.resolve(piece.from, piece.address, piece.size_bytes));
    if (buffers.back() == nullptr)
      return make_error(Errc::corrupt, "rank " + std::to_string(piece.from) +
                                           " has told of a buffer outside of its memory");
  }
  return buffers;
}

/// All pieces are there, and the same.
Result<void> Exchange::Impl::take_slice(const Collective& collective) {
  const Note& own = *collective.pieces[static_cast<std::size_t>(place.rank)];
  if (own.size_bytes == 0) return {};
  auto found = buffers_of(collective);
  if (!found) return found.error();
  const std::vector<std::byte*>& from = *found;
  std::vector<std::byte*> to = from;
  if (several_groups()) to.resize(1);  // the leader writes into the others what all have brought
  const int here = place.rank - place.first_rank;
  const std::uint64_t element =
      own.collective == Contribution::Kind::reduce ? bytes_of(own.dtype) : 1;
  const auto [begin, end] = slice(own.size_bytes / element, element, here, place.rank_count);
  switch (own.collective) {
    case Contribution::Kind::reduce: {
      std::vector<double> factors(collective.pieces.size(), 1);
      if (own.reduce == Reduce::average) {
        for (std::size_t rank = 0; rank < factors.size(); ++rank)
          factors[rank] = collective.pieces[rank]->weight;
        factors = shares(factors);
      }
      const auto mine = std::span(factors).subspan(static_cast<std::size_t>(place.first_rank),
                                                   static_cast<std::size_t>(place.rank_count));
      for (auto& buffer : *found) buffer += begin * element;
      for (auto& buffer : to) buffer += begin * element;
      reduce_slice(own.dtype, own.reduce, from, mine, to, end - begin);
      return {};
    }
    case Contribution::Kind::broadcast: {
      if (!in_group(own.root)) return {};
      const std::byte* root = from[static_cast<std::size_t>(own.root - place.first_rank)];
      for (std::byte* buffer : to)
        if (buffer != root) std::memcpy(buffer + begin, root + begin, end - begin);
      return {};
    }
    case Contribution::Kind::gather: {
      const std::uint64_t part = own.size_bytes / static_cast<std::uint64_t>(place.world_size);
      for (int i = 0; i < place.rank_count;
           ++i) {  // all parts into its own; or its own to the leader
        const int source = several_groups() ? here : i;
        const int target = several_groups() ? 0 : here;
        const std::uint64_t offset = part * static_cast<std::uint64_t>(place.first_rank + source);
        const std::byte* bytes = from[static_cast<std::size_t>(source)];
        if (std::byte* buffer = from[static_cast<std::size_t>(target)]; buffer != bytes)
          std::memcpy(buffer + offset, bytes + offset, part);
        if (several_groups()) break;
      }
      return {};
    }
    case Contribution::Kind::barrier: return {};
  }
  return {};
}

void Exchange::Impl::notice(const Error& error) {
  {
    const Lock lock(mutex);
    if (failed || noticed) return;
    noticed = true;
  }
  if (told) told(error);  // may fail this rank too, with the error that was first in the group
  const Lock lock(mutex);
  if (!failed) failed = error;
  changed();
}

/// Lets others run for a moment. Returns whether something has changed meanwhile.
bool Exchange::Impl::spin(std::uint64_t seen) {
  const auto end = clock.now() + limits::kSpin;
  do {
    if (changes.load(std::memory_order_acquire) != seen) return true;
    std::this_thread::yield();
  } while (clock.now() < end);
  return false;
}

// --- what others call -----------------------------------------------------------------------

Exchange::Exchange(Place place, Mail& mail, Link* link)
    : impl_(std::make_unique<Impl>(place, mail, link)) {}
Exchange::~Exchange() = default;

const Exchange::Place& Exchange::place() const { return impl_->place; }
Mail& Exchange::mail() const { return impl_->mail; }
void Exchange::on_failure(std::function<void(const Error&)> told) { impl_->told = std::move(told); }

std::uint32_t Exchange::open_channel(std::string name) {
  const Impl::Lock lock(impl_->mutex);
  return impl_->name_channel(std::move(name));
}

Exchange::Ticket Exchange::start(std::uint32_t channel, const Contribution& contribution) {
  Impl& x = *impl_;
  const auto& data = contribution.data;
  TROUPE_ASSERT(data.size() % bytes_of(contribution.dtype) == 0, data.size());
  Note note{
      .kind = Note::Kind::piece,
      .collective = contribution.kind,
      .reduce = contribution.reduce,
      .dtype = contribution.dtype,
      .from = x.place.rank,
      .root = contribution.root,
      .channel = channel,
      .epoch = x.place.epoch,
      .sequence = 0,
      .address = 0,
      .size_bytes = data.size(),
      .weight = contribution.weight,
  };
  bool last = false;
  if (x.place.world_size > 1 && !data.empty()) {
    note.address = x.mail.address_of(data);
    TROUPE_ASSERT(note.address != 0, x.place.rank, data.size());  // `Mail::allocate` made it not
  }
  {
    const Impl::Lock lock(x.mutex);
    TROUPE_ASSERT(channel < x.opened, channel);
    note.sequence = x.channel(channel).started++;
    if (x.failed || x.place.world_size == 1) return {channel, note.sequence};
    TROUPE_ASSERT(x.take(note).operator bool());
    last = x.collective(x.channel(channel), note.sequence).piece_count == x.place.world_size;
  }
  x.relay(note);
  x.send_to_others(note);
  if (last) x.mail.send(x.place.rank, note);  // to the thread that may take the slice
  return {channel, note.sequence};
}

Result<void> Exchange::wait(Ticket ticket, std::chrono::milliseconds limit) {
  Impl& x = *impl_;
  if (x.place.world_size == 1) return {};
  const auto deadline = x.clock.now() + limit;
  Impl::Lock lock(x.mutex);
  if (x.failed) return *x.failed;
  Channel& line = x.channel(ticket.channel);
  TROUPE_ASSERT(ticket.sequence >= line.first && ticket.sequence < line.started, ticket.sequence);
  Collective& one = x.collective(line, ticket.sequence);
  x.waits_in = ticket;
  x.waits_since = x.clock.now();
  bool may_spin = true;
  while (!x.failed && !x.is_over(one)) {
    const std::uint64_t seen = x.changes.load(std::memory_order_relaxed);
    if (x.work_anywhere(lock)) continue;
    if (may_spin) {  // again after every change
      lock.unlock();
      may_spin = x.spin(seen);
      lock.lock();
      continue;
    }
    ++x.sleeping;
    const auto woken = x.condition.wait_until(lock, deadline);
    --x.sleeping;
    if (woken == std::cv_status::timeout && !x.failed && !x.is_over(one)) {
      const Error error = x.timeout(one, limit);
      lock.unlock();
      x.notice(error);
      lock.lock();
    }
  }
  x.waits_in.reset();
  if (x.failed) return *x.failed;
  one.over = true;
  while (!line.open.empty() && line.open.front().over) {
    line.open.pop_front();
    ++line.first;
  }
  return {};
}

void Exchange::deliver(const Note& note) {
  Impl& x = *impl_;
  Impl::Lock lock(x.mutex);
  Collective* one = x.accept(lock, note);
  if (one != nullptr) x.work(lock, note.channel, *one);
}

bool Exchange::deliver_to_waiting(const Note& note) {
  Impl& x = *impl_;
  Impl::Lock lock(x.mutex);
  if (!x.waits_in) return false;
  const Collective* one = x.accept(lock, note);
  if (one != nullptr && one->piece_count == x.place.world_size) x.changed();
  return true;
}

void Exchange::joined(Ticket ticket) {
  Impl& x = *impl_;
  Impl::Lock lock(x.mutex);
  if (x.failed) return;
  const Collective& one = x.collective(x.channel(ticket.channel), ticket.sequence);
  Note note = *one.pieces[static_cast<std::size_t>(x.place.rank)];
  lock.unlock();
  const auto buffers = x.buffers_of(one);
  TROUPE_ASSERT(buffers.operator bool(), note.sequence);  // they were there for the slices
  for (std::byte* to : *buffers)
    if (to != buffers->front()) std::memcpy(to, buffers->front(), note.size_bytes);
  note.kind = Note::Kind::joined;
  x.send_to_others(note);
  lock.lock();
  if (!x.failed) TROUPE_ASSERT(x.take(note).operator bool());
}

std::vector<Note> Exchange::take_early() {
  const Impl::Lock lock(impl_->mutex);
  return std::exchange(impl_->early, {});
}

void Exchange::fail(const Error& error) {
  const Impl::Lock lock(impl_->mutex);
  if (!impl_->failed) impl_->failed = error;
  impl_->changed();
}

Error Exchange::failure() const {
  const Impl::Lock lock(impl_->mutex);
  return impl_->failed.value_or(Error{});
}

Exchange::Missing Exchange::missing() const {
  Impl& x = *impl_;
  const Impl::Lock lock(x.mutex);
  if (!x.waits_in) return {};
  const Channel& line = x.channels[x.waits_in->channel];
  const Collective& one = line.open[x.waits_in->sequence - line.first];
  return {.collective = x.where(*one.pieces[static_cast<std::size_t>(x.place.rank)]),
          .ranks = x.missing_in(one),
          .since =
              std::chrono::duration_cast<std::chrono::milliseconds>(x.clock.now() - x.waits_since)};
}

}  // namespace troupe::sgd::internal
