#include "sgd/internal/link_core.hpp"

#include "sgd/internal/limits.hpp"

#include <string>
#include <utility>

namespace troupe::sgd::internal {

std::string ranks_of(const Groups& groups, int group) {
  const int first = groups.first_rank(group), count = groups.rank_count(group);
  if (count == 1) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

LinkCore::LinkCore(Groups groups, std::uint64_t epoch, Post& post)
    : groups_(std::move(groups)), epoch_(epoch), post_(post), exchange_(groups_, *this) {}

void LinkCore::open(Exchange& leader, std::function<void(const Error&)> fail) {
  leader_ = &leader;
  fail_ = std::move(fail);
  if (ended_) fail_(*ended_);
  for (const Note& note : std::exchange(early_, {})) leader_->deliver(note);
}

void LinkCore::close() {
  leader_ = nullptr;
  fail_ = nullptr;
}

void LinkCore::joined(Exchange::Ticket ticket) {
  if (leader_ != nullptr) leader_->joined(ticket);
}

/// The first error stays.
void LinkCore::end(const Error& error) {
  if (ended_) return;
  ended_ = error;
  if (fail_) fail_(error);
}

void LinkCore::check(const Result<void>& taken, int from_group) {
  if (taken || ended_) return;
  const Error error = with_context(taken.error(), ranks_of(groups_, from_group));
  end(error);
  on_failure(error);
}

void LinkCore::on_begin(const Job& job) {
  if (!ended_) check(exchange_.begin(job), groups_.group);
}

void LinkCore::on_failure(const Error& error) {
  if (!ended_) ended_ = error;
  for (int group = 0; group < groups_.count(); ++group)
    if (group != groups_.group) post_.error(group, error);
}

void LinkCore::on_note(int from_group, const Note& note) {
  if (ended_ || note.epoch != epoch_) return;
  const int first = groups_.first_rank(from_group);
  const auto broken = [](const std::string& why) { return make_error(Errc::corrupt, why); };
  if (note.kind != Note::Kind::piece || note.from < first ||
      note.from >= first + groups_.rank_count(from_group))
    return check(broken("a note that is no piece of them"), from_group);
  if (leader_ != nullptr) return leader_->deliver(note);
  if (early_.size() >= limits::kEarlyNotes)
    return check(broken("more notes than this group can keep before it has begun"), from_group);
  early_.push_back(note);
}

void LinkCore::on_chunk(int from_group, std::uint64_t epoch, Chunk chunk) {
  if (!ended_ && epoch == epoch_) check(exchange_.take(from_group, std::move(chunk)), from_group);
}

void LinkCore::on_acknowledged(int from_group, std::uint64_t epoch) {
  if (!ended_ && epoch == epoch_) check(exchange_.acknowledged(from_group), from_group);
}

void LinkCore::on_error(int, std::uint64_t epoch, const Error& error) {
  if (epoch == epoch_) end(error);
}

/// All who are left notice it by themselves, and say the same.
void LinkCore::on_lost(int group, const std::string& why) {
  const bool one = groups_.rank_count(group) == 1;
  end(make_error(Errc::peer_lost,
                 ranks_of(groups_, group) + (one ? " is lost: " : " are lost: ") + why));
}

}  // namespace troupe::sgd::internal
