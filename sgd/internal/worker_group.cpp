#include "sgd/internal/worker_group.hpp"

#include "libactor/assert.hpp"
#include "sgd/internal/limits.hpp"
#include "sgd/internal/words.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::sgd::internal {
namespace {

std::string ranks_text(int first, int count) {
  if (count == 1) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

std::string seconds(std::int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ms) / 1000);
  return text;
}

/// "forward of batch 17"
std::string doing_text(const RankStatus& rank) {
  if (rank.doing == "idle") return "has ended this call";
  return "is in " + rank.doing + " of batch " + std::to_string(rank.batch);
}

}  // namespace

WorkerGroup::WorkerGroup(GroupSpec spec) : spec_(spec) {
  const int each = spec_.ranks_per_process > 0 ? spec_.ranks_per_process : spec_.num_workers;
  for (int first = 0; first < spec_.num_workers; first += each)
    processes_.push_back(
        {.rank_count = std::min(each, spec_.num_workers - first), .first_rank = first});
  if (spec_.min_workers <= 0) spec_.min_workers = spec_.num_workers;
}

std::vector<GroupCommand> WorkerGroup::take_commands() { return std::exchange(commands_, {}); }

std::string WorkerGroup::name_of(int process) const {
  const auto& p = processes_.at(static_cast<std::size_t>(process));
  return ranks_text(p.first_rank, p.rank_count);
}

void WorkerGroup::tell(std::string sentence) { commands_.push_back(Tell{std::move(sentence)}); }

/// All members are at that point; those that have ended are none.
bool WorkerGroup::all(Process::At at) const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [at](const Process& p) { return p.at == at || p.at == Process::At::ended; });
}

// --- the way up -----------------------------------------------------------------------------

void WorkerGroup::call(const CallSpec& call, int retries, Clock::Time now) {
  TROUPE_ASSERT(!call_, call.id);
  call_ = call;
  retries_left_ = retries;
  if (at_ == At::ready && spec_.elastic && world_size_ < spec_.num_workers)
    end_all();  // perhaps all can be had now
  if (at_ == At::down) return start(now);
  if (at_ == At::ready) run(now);
}

void WorkerGroup::start(Clock::Time now) {
  ++epoch_;
  at_ = At::starting;
  since_ = now;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    auto& p = processes_[i];
    p = {.at = Process::At::asked, .rank_count = p.rank_count, .first_rank = p.first_rank};
    commands_.push_back(StartProcess{static_cast<int>(i), p.rank_count});
  }
}

void WorkerGroup::on_hello(int process, Clock::Time now) {
  auto& p = processes_.at(static_cast<std::size_t>(process));
  if (at_ != At::starting || p.at != Process::At::asked) return;
  p.at = Process::At::here;
  p.heard = now;
  if (all(Process::At::here)) form(now);
}

void WorkerGroup::form(Clock::Time now) {
  at_ = At::forming;
  since_ = now;
  int rank = 0, members = 0;
  for (auto& p : processes_) {
    if (p.at != Process::At::here) continue;
    p.first_rank = rank;
    rank += p.rank_count;
    ++members;
  }
  world_size_ = rank;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    auto& p = processes_[i];
    if (p.at != Process::At::here) continue;
    p.heard = now;
    commands_.push_back(FormProcess{static_cast<int>(i),
                                    {.epoch = epoch_,
                                     .process_count = members,
                                     .first_rank = p.first_rank,
                                     .rank_count = p.rank_count,
                                     .world_size = world_size_}});
  }
}

void WorkerGroup::on_formed(const Formed& formed, Clock::Time now) {
  auto& p = processes_.at(static_cast<std::size_t>(formed.process));
  if (at_ != At::forming || formed.epoch != epoch_ || p.at != Process::At::here) return;
  p.at = Process::At::formed;
  p.heard = now;
  if (!all(Process::At::formed)) return;
  at_ = At::ready;
  if (call_) run(now);
}

void WorkerGroup::run(Clock::Time now) {
  since_ = now;
  stuck_since_.reset();
  told_slow_.clear();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    auto& p = processes_[i];
    if (p.at == Process::At::ended) continue;
    p.at = Process::At::running;
    p.heard = now;
    p.metrics.clear();
    commands_.push_back(RunCall{static_cast<int>(i), *call_});
  }
}

void WorkerGroup::on_done(const CallDone& done) {
  auto& p = processes_.at(static_cast<std::size_t>(done.process));
  if (done.epoch != epoch_ || at_ != At::ready || !call_ || done.id != call_->id ||
      p.at != Process::At::running)
    return;
  p.at = Process::At::done;
  p.metrics = done.metrics;
  if (!all(Process::At::done)) return;
  std::vector<std::string> metrics;
  for (auto& member : processes_) {
    if (member.at == Process::At::ended) continue;
    member.at = Process::At::formed;
    metrics.insert(metrics.end(), member.metrics.begin(), member.metrics.end());
  }
  finish({}, std::move(metrics));
}

void WorkerGroup::finish(Error error, std::vector<std::string> metrics) {
  if (!call_) return;
  commands_.push_back(FinishCall{call_->id, std::move(error), std::move(metrics)});
  call_.reset();
}

// --- what goes wrong ------------------------------------------------------------------------

void WorkerGroup::end_all() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].at != Process::At::ended)
      commands_.push_back(EndProcess{static_cast<int>(i)});
    processes_[i].at = Process::At::ended;
  }
  at_ = At::down;
  world_size_ = 0;
}

void WorkerGroup::lost(const std::string& cause, Clock::Time now) {
  end_all();
  if (!call_) return tell(cause + "; the next call makes the group anew");
  if (retries_left_ <= 0) return finish(make_error(Errc::peer_lost, cause));
  --retries_left_;
  tell(cause + "; the group is made anew from its newest snapshot");
  start(now);
}

void WorkerGroup::on_failed(const CallFailed& failed, Clock::Time now) {
  if (failed.epoch != epoch_ || at_ == At::down || at_ == At::starting) return;
  const auto cause =
      (failed.rank >= 0 ? "rank " + std::to_string(failed.rank) : name_of(failed.process)) + ": " +
      failed.text;
  const auto code = static_cast<Errc>(failed.code);
  if (code == Errc::peer_lost || code == Errc::timed_out) return lost(cause, now);
  end_all();
  finish(make_error(code, cause));
}

void WorkerGroup::on_ended(int process, const std::string& cause, Clock::Time now) {
  if (processes_.at(static_cast<std::size_t>(process)).at == Process::At::ended) return;
  lost(name_of(process) + ": " + cause, now);
}

void WorkerGroup::on_waiting(int process, const std::string& why) {
  processes_.at(static_cast<std::size_t>(process)).waiting = why;
}

void WorkerGroup::on_refused(int process, const std::string& why) {
  if (processes_.at(static_cast<std::size_t>(process)).at == Process::At::ended) return;
  const auto cause = name_of(process) + " can't start: " + why;
  end_all();
  finish(make_error(Errc::out_of_resources, cause));
}

void WorkerGroup::on_status(const HostStatus& status, Clock::Time now) {
  auto& p = processes_.at(static_cast<std::size_t>(status.process));
  if (p.at == Process::At::ended) return;
  p.heard = now;
  p.ranks = status.ranks;
}

void WorkerGroup::on_tick(Clock::Time now) {
  if (at_ == At::starting) {
    int here = 0;
    std::string waiting;
    for (const auto& p : processes_) {
      if (p.at == Process::At::here) here += p.rank_count;
      if (p.at == Process::At::asked && waiting.empty())
        waiting = ranks_text(p.first_rank, p.rank_count) +
                  (p.waiting.empty() ? " did not start" : " waits: " + p.waiting);
    }
    if (now - since_ >= limits::kGather && here > 0 && here >= spec_.min_workers) {
      for (std::size_t i = 0; i < processes_.size(); ++i)
        if (processes_[i].at == Process::At::asked) {
          processes_[i].at = Process::At::ended;
          commands_.push_back(EndProcess{static_cast<int>(i)});
        }
      tell(waiting + "; " + std::to_string(here) + " of " + std::to_string(spec_.num_workers) +
           " ranks begin without");
      return form(now);
    }
    if (now - since_ < limits::kStart) return;
    end_all();
    return finish(make_error(Errc::out_of_resources,
                             waiting + " (waited " + seconds(limits::kStart.count()) + ")"));
  }
  if (at_ == At::down) return;
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i].at != Process::At::ended && now - processes_[i].heard >= limits::kSilent)
      return lost(name_of(static_cast<int>(i)) + ": their process does not answer for " +
                      seconds(limits::kSilent.count()),
                  now);
  if (at_ == At::forming && now - since_ >= limits::kSetUp) {
    end_all();
    return finish(make_error(Errc::timed_out, "setup has not ended on all ranks within " +
                                                  seconds(limits::kSetUp.count())));
  }
  if (!call_) return;
  look_for_slow();
  look_for_deadlock(now);
}

/// No rank computes, and each that waits waits for others: it will stay so.
void WorkerGroup::look_for_deadlock(Clock::Time now) {
  std::string where;
  bool someone_waits = false;
  for (const auto& p : processes_) {
    if (p.at == Process::At::ended) continue;
    if (p.ranks.empty()) return stuck_since_.reset();
    for (const auto& rank : p.ranks) {
      const bool waits = !rank.collective.empty() && !rank.missing.empty();
      if (!waits && rank.doing != "idle") return stuck_since_.reset();
      someone_waits = someone_waits || waits;
      where += (where.empty() ? "rank " : "; rank ") + std::to_string(rank.rank) +
               (waits ? " waits in " + rank.collective + " for " + name_ranks(rank.missing)
                      : " has ended this call");
    }
  }
  if (!someone_waits) return stuck_since_.reset();
  if (!stuck_since_ || stuck_in_ != where) {
    stuck_since_ = now;
    stuck_in_ = where;
    return;
  }
  if (now - *stuck_since_ < limits::kStuck) return;
  end_all();
  finish(make_error(Errc::user_code, "the ranks wait for each other: " + where +
                                         "; every rank must go the same way"));
}

void WorkerGroup::look_for_slow() {
  const auto find = [&](int number) -> const RankStatus* {
    for (const auto& p : processes_)
      for (const auto& rank : p.ranks)
        if (rank.rank == number) return &rank;
    return nullptr;
  };
  for (const auto& p : processes_)
    for (const auto& rank : p.ranks) {
      if (p.at == Process::At::ended || rank.missing.empty() ||
          rank.waiting_ms < limits::kSlow.count())
        continue;
      const auto* slow = find(rank.missing.front());
      if (!slow || !slow->collective.empty()) continue;
      const auto key = std::to_string(slow->rank) + slow->doing + std::to_string(slow->batch);
      if (key == told_slow_) return;
      told_slow_ = key;
      return tell("rank " + std::to_string(rank.rank) + " has waited " + seconds(rank.waiting_ms) +
                  " in " + rank.collective + " for rank " + std::to_string(slow->rank) +
                  ", which " + doing_text(*slow));
    }
}

void WorkerGroup::begin_anew() {
  if (!call_) end_all();
}

void WorkerGroup::shut_down() {
  end_all();
  finish(make_error(Errc::cancelled, "the trainer was shut down"));
}

}  // namespace troupe::sgd::internal
