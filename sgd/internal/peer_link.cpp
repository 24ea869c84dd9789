#include "sgd/internal/peer_link.hpp"

#include "libactor/actor.hpp"
#include "libactor/clock.hpp"
#include "libactor/log.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/link_core.hpp"
#include "sgd/internal/link_messages.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <utility>

namespace troupe::sgd::internal {
namespace {

class LinkState;

/// What the leader's own process has to say. CAF can't bring it from another.
struct Command {
  std::function<void(LinkState&)> run;
};

}  // namespace
}  // namespace troupe::sgd::internal

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sgd::internal::Command)

namespace troupe::sgd::internal {
namespace {

const bool kTypesAdded = add_message_types(&add_block<caf::id_block::troupe_link>);

std::string name_of_group(int group) { return "group-" + std::to_string(group); }

/// What the actor of a link knows. Everything here runs on its thread.
class LinkState : private LinkCore::Post {
 public:
  static inline const char* name = "peer_link";
  using Self = caf::stateful_actor<LinkState>;

  explicit LinkState(Self* self) : self_(self) {}

  void begin(const Groups& groups, std::uint64_t epoch, std::shared_ptr<std::atomic<int>> left) {
    groups_ = groups;
    epoch_ = epoch;
    left_ = std::move(left);
    core_ = std::make_unique<LinkCore>(groups, epoch, static_cast<LinkCore::Post&>(*this));
    peers_.resize(static_cast<std::size_t>(groups.count()));
  }
  LinkCore& core() { return *core_; }

  caf::behavior behavior() {
    return {
        [this](const Command& command) { command.run(*this); },
        [this](const LinkHello& hello) { return on_hello(hello); },
        [this](const Note& note) { from_peer([&](int group) { core_->on_note(group, note); }); },
        [this](const LinkChunk& came) {
          from_peer([&](int group) { core_->on_chunk(group, came.epoch, came.chunk); });
        },
        [this](taken_atom, std::uint64_t epoch) {
          from_peer([&](int group) { core_->on_acknowledged(group, epoch); });
        },
        [this](const LinkError& error) {
          from_peer([&](int group) {
            core_->on_error(group, error.epoch,
                            make_error(static_cast<Errc>(error.code), error.text));
          });
        },
        [this](bye_atom) {
          from_peer([&](int group) {
            gone_.insert(group);
            left_->store(group);
            self_->send(peer(group), bye_taken_atom_v);
          });
        },
        [this](bye_taken_atom) { from_peer([&](int group) { no_answer_from(group); }); },
    };
  }

  // --- joining ----------------------------------------------------------------------------------

  using Peers = std::vector<caf::actor>;
  void join(std::shared_ptr<std::promise<Result<Peers>>> joined) {
    joined_ = std::move(joined);
    look_whether_all();
  }
  /// The older one, dialled. It may begin before its answer is here.
  void say_hello(int group, const caf::actor& other) {
    know(group, other);
    self_->request(other, troupe::limits::kHandshake, own_hello())
        .then(
            [this, group](const LinkHello& hello) {
              if (auto fits = check(hello); !fits || hello.group != group)
                return refuse(fits ? make_error(Errc::refused, "it is another group")
                                   : fits.error());
              linked_.insert(group);
              look_whether_all();
            },
            [this](const Error& error) { refuse(error); });
  }
  /// Ranks of groups that have not come.
  std::string missing() const {
    std::string names;
    for (int group = 0; group < groups_.count(); ++group)
      if (group != groups_.group && !linked_.contains(group))
        names += (names.empty() ? "" : " and ") + ranks_of(groups_, group);
    return names;
  }

  // --- leaving ----------------------------------------------------------------------------------

  void close(std::shared_ptr<std::promise<void>> closed) {
    core_->close();
    closed_ = std::move(closed);
    for (int group = 0; group < groups_.count(); ++group) {
      if (!peer(group) || gone_.contains(group)) continue;
      waits_for_.insert(group);
      self_->send(peer(group), bye_atom_v);
    }
    no_answer_from(groups_.group);
  }

 private:
  caf::actor& peer(int group) { return peers_[static_cast<std::size_t>(group)]; }
  LinkHello own_hello() const {
    return {.epoch = epoch_,
            .group = groups_.group,
            .rank_counts = {groups_.rank_counts.begin(), groups_.rank_counts.end()}};
  }

  Result<void> check(const LinkHello& hello) const {
    if (hello.epoch != epoch_)
      return make_error(Errc::refused, "it is of epoch " + std::to_string(hello.epoch) + ", not " +
                                           std::to_string(epoch_));
    if (!std::ranges::equal(hello.rank_counts, groups_.rank_counts))
      return make_error(Errc::refused, "its groups are others than ours");
    return {};
  }

  caf::result<LinkHello> on_hello(const LinkHello& hello) {
    if (auto fits = check(hello); !fits) return fits.error();
    const auto other = caf::actor_cast<caf::actor>(self_->current_sender());
    if (hello.group <= groups_.group || hello.group >= groups_.count() || peer(hello.group) ||
        !other)
      return make_error(Errc::refused, "group " + std::to_string(hello.group) +
                                           " has come already, or should not come by itself");
    know(hello.group, other);
    linked_.insert(hello.group);
    look_whether_all();
    return own_hello();
  }

  void know(int group, const caf::actor& other) {
    peer(group) = other;
    self_->monitor(other);
  }

  void refuse(const Error& error) {
    if (!refused_) refused_ = error;
    look_whether_all();
  }

  void look_whether_all() {
    if (!joined_) return;
    if (refused_)
      joined_->set_value(*refused_);
    else if (missing().empty())
      joined_->set_value(peers_);
    else
      return;
    joined_.reset();
  }

  /// Others than those who have said hello are not heard.
  template <class F>
  void from_peer(F heard) {
    const int group = group_of(caf::actor_cast<caf::actor_addr>(self_->current_sender()));
    if (group >= 0) heard(group);
  }
  int group_of(const caf::actor_addr& other) const {
    for (std::size_t group = 0; group < peers_.size(); ++group)
      if (peers_[group] && peers_[group].address() == other) return static_cast<int>(group);
    return -1;
  }

 public:
  void on_down(const caf::down_msg& down) {
    const int group = group_of(down.source);
    if (group < 0) return;
    no_answer_from(group);
    refuse(make_error(Errc::peer_lost, ranks_of(groups_, group) + ": their process has ended"));
    if (gone_.insert(group).second)
      core_->on_lost(group, "the connection to their process has ended");
  }

 private:
  void no_answer_from(int group) {
    waits_for_.erase(group);
    if (!closed_ || !waits_for_.empty()) return;
    closed_->set_value();
    closed_.reset();
  }

  void chunk(int to_group, const Chunk& chunk) override {
    self_->send(peer(to_group), LinkChunk{epoch_, chunk});
  }
  void acknowledge(int to_group) override { self_->send(peer(to_group), taken_atom_v, epoch_); }
  void error(int to_group, const Error& error) override {
    if (peer(to_group))
      self_->send(peer(to_group),
                  LinkError{epoch_, static_cast<std::uint8_t>(code_of(error)), text_of(error)});
  }

  Self* self_;
  Groups groups_;
  std::uint64_t epoch_ = 0;
  std::unique_ptr<LinkCore> core_;
  Peers peers_;           // by group; its own is empty
  std::set<int> linked_;  // have said hello
  std::optional<Error> refused_;
  std::shared_ptr<std::promise<Result<Peers>>> joined_;
  std::set<int> gone_;       // nothing of them comes any more
  std::set<int> waits_for_;  // their answers to our bye
  std::shared_ptr<std::promise<void>> closed_;
  std::shared_ptr<std::atomic<int>> left_;
};

caf::behavior link_actor(LinkState::Self* self, const Groups& groups, std::uint64_t epoch,
                         const std::shared_ptr<std::atomic<int>>& left) {
  self->state.begin(groups, epoch, left);
  guard(self, [self](const Error& error) { self->state.core().on_failure(error); });
  self->set_down_handler([self](const caf::down_msg& down) { self->state.on_down(down); });
  return self->state.behavior();
}

}  // namespace

Result<std::vector<PeerCredentials>> make_link_credentials(const std::vector<int>& rank_counts) {
  std::vector<std::string> names;
  for (std::size_t group = 0; group < rank_counts.size(); ++group)
    names.push_back(name_of_group(static_cast<int>(group)));
  return make_group_credentials(names);
}

struct PeerLink::Impl {
  void command(std::function<void(LinkState&)> run) {
    caf::anon_send(actor, Command{std::move(run)});
  }

  Groups groups;
  std::unique_ptr<PeerSystem> system;
  std::shared_ptr<std::atomic<int>> left = std::make_shared<std::atomic<int>>(-1);
  caf::actor actor;
  std::uint16_t port = 0;
  std::vector<caf::actor> peers;  // after `join`
  bool is_open = false;
};

Result<std::unique_ptr<PeerLink>> PeerLink::listen(Options options) {
  auto system = PeerSystem::make(options.credentials);
  if (!system) return system.error();
  auto impl = std::make_unique<Impl>();
  impl->groups = options.groups;
  impl->system = std::move(*system);
  impl->actor = impl->system->actors().spawn<caf::detached>(link_actor, options.groups,
                                                            options.epoch, impl->left);
  std::unique_ptr<PeerLink> link(new PeerLink(std::move(impl)));
  auto port = link->impl_->system->listen(options.address, link->impl_->actor);
  if (!port) return port.error();
  link->impl_->port = *port;
  return link;
}

PeerLink::PeerLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PeerLink::~PeerLink() {
  close();
  {
    caf::scoped_actor self(impl_->system->actors());
    self->monitor(impl_->actor);
    self->send_exit(impl_->actor, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {},
                  caf::after(troupe::limits::kShutdown) >>
                      [] { log_error("a link between groups does not end"); });
  }
  impl_->peers.clear();
  impl_->actor = nullptr;
}

std::uint16_t PeerLink::port() const { return impl_->port; }

Result<void> PeerLink::join(const std::vector<PeerAddress>& addresses,
                            std::chrono::milliseconds limit) {
  const Groups& groups = impl_->groups;
  if (addresses.size() != groups.rank_counts.size())
    return make_error(Errc::bad_request, std::to_string(addresses.size()) + " addresses for " +
                                             std::to_string(groups.count()) + " groups");
  const SystemClock clock;
  const auto end = clock.now() + limit;
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now()),
                    std::chrono::milliseconds(0));
  };
  for (int group = 0; group < groups.group; ++group) {
    const auto& [address, port] = addresses[static_cast<std::size_t>(group)];
    auto other = impl_->system->dial(address, port, name_of_group(group),
                                     std::min(left(), troupe::limits::kHandshake));
    if (!other) return with_context(other.error(), "link to " + ranks_of(groups, group));
    impl_->command([group, other = *other](LinkState& state) { state.say_hello(group, other); });
  }
  using Joined = std::promise<Result<LinkState::Peers>>;
  const auto joined = std::make_shared<Joined>();
  auto all = joined->get_future();
  impl_->command([joined](LinkState& state) { state.join(joined); });
  if (all.wait_for(left()) != std::future_status::ready) {
    const auto missing = std::make_shared<std::promise<std::string>>();
    auto names = missing->get_future();
    impl_->command([missing](LinkState& state) { missing->set_value(state.missing()); });
    return make_error(Errc::timed_out, names.get() + ": nothing was seen of their process for " +
                                           std::to_string(limit.count()) + " ms");
  }
  auto peers = all.get();
  if (!peers) return with_context(peers.error(), "link to the other groups");
  impl_->peers = std::move(*peers);
  return {};
}

void PeerLink::open(Exchange& leader, std::function<void(const Error&)> fail) {
  impl_->is_open = true;
  impl_->command(
      [&leader, fail = std::move(fail)](LinkState& state) { state.core().open(leader, fail); });
}

void PeerLink::close() {
  if (!std::exchange(impl_->is_open, false)) return;
  const auto closed = std::make_shared<std::promise<void>>();
  auto done = closed->get_future();
  impl_->command([closed](LinkState& state) { state.close(closed); });
  done.wait_for(limits::kBye);
}

/// Straight from the rank's thread: the actor would have to be woken first.
void PeerLink::publish(const Note& piece) {
  for (const auto& peer : impl_->peers)
    if (peer) caf::send_as(impl_->actor, peer, piece);
  if (const int group = *impl_->left; group >= 0)
    impl_->command([group](LinkState& state) { state.core().on_lost(group, "they have ended"); });
}

void PeerLink::begin(const Job& job) {
  impl_->command([job](LinkState& state) { state.core().on_begin(job); });
}

void PeerLink::fail(const Error& error) {
  impl_->command([error](LinkState& state) { state.core().on_failure(error); });
}

}  // namespace troupe::sgd::internal
