#include "sgd/internal/local_group.hpp"

#include "libactor/assert.hpp"
#include "sgd/internal/limits.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>

namespace troupe::sgd::internal {
namespace {

constexpr std::size_t kAlignment = 64;

/// What all ranks of the process reach.
class LocalMemory {
 public:
  std::span<std::byte> allocate(std::size_t size_bytes) {
    const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (data == nullptr || size_bytes == 0) return {};
    std::memset(data, 0, rounded);
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, Block{.data = Data(data), .size_bytes = size_bytes});
    return {data, size_bytes};
  }

  bool contains(const std::byte* data, std::uint64_t size_bytes) const {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(data);
    if (block == blocks_.begin()) return false;
    --block;
    const auto offset = static_cast<std::uint64_t>(data - block->first);
    const std::uint64_t length = block->second.size_bytes;
    return offset <= length && size_bytes <= length - offset;
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  using Data = std::unique_ptr<std::byte, Free>;
  struct Block {
    Data data;
    std::size_t size_bytes = 0;
  };

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block, std::less<>> blocks_;
};

}  // namespace

struct LocalGroup::Impl {
  class RankMail;
  struct Rank {
    std::unique_ptr<Mail> mail;
    std::unique_ptr<Exchange> exchange;
  };

  std::shared_ptr<LocalMemory> memory = std::make_shared<LocalMemory>();
  std::mutex mutex;
  std::optional<Error> failure;
  Groups groups;
  int first_rank = 0;
  Link* link = nullptr;  // where there are several groups
  std::vector<Rank> ranks;
  std::unique_ptr<Carrier> carrier;  // last: it ends first

  Exchange& exchange(int rank) {
    return *ranks[static_cast<std::size_t>(rank - first_rank)].exchange;
  }
};

/// One rank's.
class LocalGroup::Impl::RankMail final : public Mail {
 public:
  explicit RankMail(Impl& group) : group_(group) {}

  void send(int to_rank, const Note& note) override {
    Exchange& exchange = group_.exchange(to_rank);
    if (note.kind != Note::Kind::piece || note.size_bytes <= limits::kDirectBytes)
      exchange.deliver(note);
    else if (!exchange.deliver_to_waiting(note))
      group_.carrier->carry(to_rank - group_.first_rank, note);
  }

  std::uint64_t address_of(std::span<const std::byte> data) override {
    return group_.memory->contains(data.data(), data.size())
               ? std::bit_cast<std::uint64_t>(data.data())
               : 0;
  }

  std::byte* resolve(int, std::uint64_t address, std::uint64_t size_bytes) override {
    auto* data = std::bit_cast<std::byte*>(address);
    return group_.memory->contains(data, size_bytes) ? data : nullptr;
  }

  std::span<std::byte> allocate(std::size_t size_bytes) override {
    return group_.memory->allocate(size_bytes);
  }

  std::shared_ptr<void> memory() override { return group_.memory; }

 private:
  Impl& group_;
};

LocalGroup::LocalGroup(int world_size, std::uint64_t epoch, const MakeCarrier& make_carrier)
    : LocalGroup(Groups{.rank_counts = {world_size}}, epoch, make_carrier, nullptr) {}

LocalGroup::LocalGroup(const Groups& groups, std::uint64_t epoch, const MakeCarrier& make_carrier,
                       Link& link)
    : LocalGroup(groups, epoch, make_carrier, &link) {}

LocalGroup::LocalGroup(const Groups& groups, std::uint64_t epoch, const MakeCarrier& make_carrier,
                       Link* link)
    : impl_(std::make_unique<Impl>()) {
  impl_->groups = groups;
  impl_->first_rank = groups.first_rank(groups.group);
  const int rank_count = groups.rank_count(groups.group);
  TROUPE_ASSERT(rank_count >= 1 && (groups.count() > 1) == (link != nullptr), rank_count,
                groups.count());
  impl_->link = link;
  std::vector<Exchange*> exchanges;
  for (int i = 0; i < rank_count; ++i) {
    Impl::Rank made;
    made.mail = std::make_unique<Impl::RankMail>(*impl_);
    made.exchange = std::make_unique<Exchange>(Exchange::Place{.rank = impl_->first_rank + i,
                                                               .world_size = groups.world_size(),
                                                               .epoch = epoch,
                                                               .first_rank = impl_->first_rank,
                                                               .rank_count = rank_count},
                                               *made.mail, i == 0 ? link : nullptr);
    made.exchange->on_failure([this](const Error& error) { fail(error); });
    exchanges.push_back(made.exchange.get());
    impl_->ranks.push_back(std::move(made));
  }
  impl_->carrier = make_carrier(exchanges);
  if (link != nullptr)
    link->open(*exchanges.front(), [this](const Error& error) { fail(error, false); });
}

LocalGroup::~LocalGroup() {
  if (impl_->link != nullptr) impl_->link->close();
}

int LocalGroup::world_size() const { return impl_->groups.world_size(); }

Exchange& LocalGroup::exchange(int rank) {
  const int index = rank - impl_->first_rank;
  TROUPE_ASSERT(index >= 0 && index < static_cast<int>(impl_->ranks.size()), rank);
  return impl_->exchange(rank);
}

void LocalGroup::fail(const Error& error) { fail(error, true); }

void LocalGroup::fail(const Error& error, bool tell_others) {
  {
    const std::lock_guard lock(impl_->mutex);
    tell_others = tell_others && !impl_->failure && impl_->link != nullptr;
    if (!impl_->failure) impl_->failure = error;
    for (auto& rank : impl_->ranks) rank.exchange->fail(*impl_->failure);
  }
  if (tell_others) impl_->link->fail(error);
}

}  // namespace troupe::sgd::internal
