#include "tests/support/experiment_sim.hpp"

#include "tests/support/sim_deciders.hpp"
#include "tune/internal/wire.hpp"
#include "tune/schedulers/asha.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::tune::sim {

using namespace internal;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMostEvents = 200'000;
constexpr auto kStepTimeout = 20s;

std::string checkpoint_name(std::int64_t iteration) {
  return "checkpoint_" + std::to_string(iteration);
}

std::string row_of(std::uint64_t trial, std::uint64_t incarnation, std::int64_t iteration) {
  return encode(Metrics{{"score", curve(trial, iteration)},
                        {std::string(kTrainingIteration), iteration},
                        {"process", static_cast<std::int64_t>(incarnation)}});
}

}  // namespace

Plan random_plan(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random() % bound);
  };
  Plan plan;
  plan.seed = seed;
  plan.trial_count = 1 + draw(24);
  plan.iterations = 1 + draw(8);
  plan.slots = static_cast<std::size_t>(1 + draw(5));
  if (draw(3) == 0) plan.max_concurrent = 1 + draw(3);
  plan.function = draw(3) == 0;
  plan.checkpoint_freq = draw(4);
  plan.restart.max_failures = draw(3);
  plan.scheduler = static_cast<Kind>(draw(3));
  plan.fail_fast = draw(8) == 0;
  if (draw(8) == 0) plan.time_budget = std::chrono::milliseconds(200 + draw(2'000));
  const auto some = [&](double most) { return draw(2) == 0 ? 0.0 : most * (1 + draw(8)) / 8; };
  plan.faults = {.worker_killed = some(0.02),
                 .driver_killed = some(0.01),
                 .scheduler_killed = some(0.02),
                 .disk_stalls = some(0.02),
                 .interrupt = some(0.002),
                 .said_twice = some(0.05),
                 .trials_fail = draw(2) == 0};
  if (plan.fail_fast) plan.restart.max_failures = 0;
  return plan;
}

Plan undisturbed(Plan plan) {
  const bool fail = plan.faults.trials_fail;
  plan.faults = {.trials_fail = fail};
  return plan;
}

World::World(const Plan& plan) : plan_(plan), random_(plan.seed ^ 0x5eed) {
  spec_ = {.metric = "score",
           .mode = Mode::max,
           .time_budget = plan.time_budget,
           .step_timeout = kStepTimeout,
           .max_concurrent = plan.max_concurrent,
           .seed = plan.seed,
           .fail_fast = plan.fail_fast,
           .trainable_name = "Sim",
           .date = "2026-12-01_09-30-00"};
  if (!plan.function)
    spec_.stop = {{std::string(kTrainingIteration), static_cast<double>(plan.iterations)}};
}

void World::run() {
  while (!finish_ || *finish_) {
    live(Resume::automatic);
    if (!finish_ || !*finish_) continue;
    const auto code = code_of(*finish_);
    must(code == Errc::cancelled || (code == Errc::user_code && plan_.fail_fast),
         "the run ended with " + describe(*finish_));
  }
}

void World::run_again(Resume mode) {
  mended_ = true;
  plan_.faults = {};
  plan_.fail_fast = spec_.fail_fast = false;
  plan_.time_budget = spec_.time_budget = {};
  live(mode);
  must(finish_ && !*finish_, "the resumed run did not end well");
}

/// One driver, until it ends or is killed.
void World::live(Resume mode) {
  try {
    new_driver(mode);
    while (!finish_ && happen()) check();
    while (!to_scheduler_.empty()) decide_one();  // additions, which nobody waits for
    must(finish_.has_value(), "nothing more can happen, and the run has not ended");
    check_end();
  } catch (const DriverKilled&) {
    finish_.reset();
  }
}

std::vector<TrialOutcome> World::outcome() const {
  std::vector<TrialOutcome> all;
  for (std::uint64_t i = 0; i < core_->trial_count(); ++i)
    all.push_back({.id = core_->trial_id(i),
                   .config = core_->config(i).to_json(),
                   .state = core_->state(i),
                   .iteration = core_->iteration(i)});
  return all;
}

// --- what happens next ----------------------------------------------------------------------

/// One event. Time only passes in leaps when nothing else can happen.
bool World::happen() {
  must(++event_count_ < kMostEvents, "it goes on for ever");
  now_ += std::chrono::milliseconds(draw(4));
  go_wrong();

  std::vector<int> possible;
  if (!events_.empty()) possible.push_back(0);
  if (!to_scheduler_.empty()) possible.push_back(1);
  if (!verdicts_.empty()) possible.push_back(2);
  if (std::any_of(workers_.begin(), workers_.end(), [](auto& w) { return !w.said.empty(); }))
    possible.push_back(3);
  if (!dead_.empty()) possible.push_back(4);
  const auto busy = [](const Worker& w) {
    return w.at != Worker::At::reported && w.at != Worker::At::saved && w.at != Worker::At::stuck;
  };
  if (std::any_of(workers_.begin(), workers_.end(), busy)) possible.push_back(5);
  if (possible.empty() && stalled_) {
    stalled_ = false;
    carry_out_all();
    return true;
  }
  if (possible.empty()) {
    // A process that is to end and does not is killed by the supervisor.
    for (auto& worker : workers_)
      if (worker.cancelled) {
        const auto trial = worker.trial;
        children_.at(trial).policy = SupervisorPolicy({.max_infrastructure_failures = 0});
        end(trial, {Failure::Kind::infrastructure, "killed by signal 9 (SIGKILL) from outside"});
        return true;
      }
    if (workers_.empty()) return false;
    now_ += 7s;
    tick();
    return true;
  }
  const auto any = [&](std::deque<Worker>& workers, auto&& fits) -> Worker& {
    for (;;)
      if (auto& worker = workers[draw(workers.size())]; fits(worker)) return worker;
  };
  if (chance(0.05)) {  // it may end workers: what was possible is to be looked at again
    tick();
    return true;
  }
  switch (possible[draw(possible.size())]) {
    case 0: hear_supervisor(); break;
    case 1: decide_one(); break;
    case 2: hear_verdict(); break;
    case 3: hear_worker(any(workers_, [](auto& w) { return !w.said.empty(); })); break;
    case 4: {
      Worker& late = dead_.front();
      if (plan_.canary == Canary::no_fence) late.incarnation = core_->incarnation(late.trial);
      hear_worker(late);
      if (late.said.empty()) dead_.pop_front();
      break;
    }
    case 5: work(any(workers_, busy)); break;
  }
  return true;
}

void World::go_wrong() {
  const auto& faults = plan_.faults;
  if (!workers_.empty() && chance(faults.worker_killed))
    end(workers_[draw(workers_.size())].trial,
        {Failure::Kind::infrastructure, "killed by signal 9 (SIGKILL) from outside"});
  if (chance(faults.scheduler_killed)) scheduler_dies();
  if (!stalled_ && chance(faults.disk_stalls)) stalled_ = true;
  if (stalled_ && chance(0.05)) {
    stalled_ = false;
    carry_out_all();
  }
  if (chance(faults.interrupt) && !core_->finished()) {
    core_->interrupt("interrupted by SIGINT", now_);
    carry_out_all();
  }
  if (!workers_.empty() && chance(faults.said_twice)) {
    Worker& worker = workers_[draw(workers_.size())];
    if (worker.at == Worker::At::reported && worker.said.empty()) {
      TrialReport report{.trial = worker.trial,
                         .incarnation = worker.incarnation,
                         .iteration = worker.iteration,
                         .row = row_of(worker.trial, worker.incarnation, worker.iteration)};
      worker.said.push_back(std::move(report));
    }
  }
}

void World::tick() {
  core_->on_tick(now_);
  carry_out_all();
}

void World::hear_supervisor() {
  const auto event = events_.front();
  events_.pop_front();
  core_->on_child(event, now_);
  carry_out_all();
}

void World::hear_worker(Worker& worker) {
  const Message message = worker.said.front();
  worker.said.pop_front();
  // From here on `worker` may be gone.
  if (const auto* ready = std::get_if<TrialReady>(&message)) {
    TrialReady now = *ready;
    now.incarnation = worker.incarnation;
    core_->on_ready(now, now_);
  } else if (const auto* report = std::get_if<TrialReport>(&message)) {
    TrialReport now = *report;
    now.incarnation = worker.incarnation;
    if (core_->is_current(now.trial, now.incarnation))
      waiting_reports_[now.trial] = {now.incarnation, now.iteration};
    auto values = decode_metrics(now.row);
    must(bool(values), "a row that can't be read");
    auto row = std::make_shared<Row>(Row{now.row, std::move(*values)});
    core_->on_report(now, std::move(row), now_);
  } else {
    TrialSaved now = std::get<TrialSaved>(message);
    now.incarnation = worker.incarnation;
    core_->on_saved(now, now_);
  }
  carry_out_all();
}

void World::decide_one() {
  const auto event = to_scheduler_.front();
  to_scheduler_.pop_front();
  auto verdict = decide(*scheduler_, event);
  must(bool(verdict), "the scheduler failed");
  if (event.kind != SchedulerEvent::Kind::add) verdicts_.push_back(std::move(*verdict));
}

void World::hear_verdict() {
  const auto verdict = verdicts_.front();
  verdicts_.pop_front();
  unanswered_.pop_front();
  core_->on_verdict(verdict, now_);
  carry_out_all();
}

// --- a trial's process ----------------------------------------------------------------------

void World::work(Worker& worker) {
  using At = Worker::At;
  const auto trial = worker.trial;
  switch (worker.at) {
    case At::setup: {
      std::int64_t from = 0;
      for (const auto saved : checkpoints_[trial])
        if (saved <= worker.iteration) from = saved;
      worker.iteration = from;
      worker.said.push_back(TrialReady{.trial = trial,
                                       .incarnation = worker.incarnation,
                                       .iteration = from,
                                       .checkpoint = from > 0 ? checkpoint_name(from) : "",
                                       .set_up = !plan_.function});
      worker.at = At::step;
      return;
    }
    case At::step: {
      const auto next = worker.iteration + 1;
      const bool fails = plan_.faults.trials_fail && !mended_;
      if (plan_.function && (worker.cancelled || worker.iteration == plan_.iterations)) {
        worker.at = At::leaving;
        return;
      }
      if (fails && trial % 5 == 3 && next == 3)
        return end(trial, {Failure::Kind::user, "step: it always fails here"});
      if (fails && trial % 7 == 4 && next == 2 && once(trial, "fails"))
        return end(trial, {Failure::Kind::user, "step: it fails here once"});
      if (fails && trial % 11 == 6 && next == 3 && once(trial, "hangs")) {
        worker.at = At::stuck;
        return;
      }
      worker.iteration = next;
      worker.said.push_back(TrialReport{.trial = trial,
                                        .incarnation = worker.incarnation,
                                        .iteration = next,
                                        .row = row_of(trial, worker.incarnation, next)});
      worker.at = At::reported;
      return;
    }
    case At::save:
      checkpoints_[trial].insert(worker.iteration);
      worker.at = At::published;
      return;
    case At::published:
      worker.said.push_back(TrialSaved{.trial = trial,
                                       .incarnation = worker.incarnation,
                                       .iteration = worker.iteration,
                                       .name = checkpoint_name(worker.iteration)});
      worker.at = At::saved;
      return;
    case At::leaving: return end(trial, {});
    case At::reported:
    case At::saved:
    case At::stuck: return;
  }
}

World::Worker* World::worker_of(std::uint64_t trial) {
  for (auto& worker : workers_)
    if (worker.trial == trial) return &worker;
  return nullptr;
}

// --- the machine ----------------------------------------------------------------------------

void World::grant() {
  while (workers_.size() < plan_.slots && !placing_.empty()) {
    const auto trial = placing_.front();
    placing_.pop_front();
    const Child& child = children_.at(trial);
    workers_.push_back(
        {.trial = trial, .incarnation = child.incarnation, .iteration = child.up_to});
    events_.push_back({.child = trial,
                       .kind = ChildEvent::Kind::started,
                       .incarnation = child.incarnation,
                       .pid = static_cast<std::int64_t>(1000 + trial)});
  }
}

/// Its process is gone; what it said and nobody heard is still on its way.
void World::end(std::uint64_t trial, const Failure& failure) {
  const auto at = std::find_if(workers_.begin(), workers_.end(),
                               [&](const Worker& worker) { return worker.trial == trial; });
  Child& child = children_.at(trial);
  const bool cancelled = at->cancelled;
  if (!at->said.empty()) dead_.push_back(std::move(*at));
  workers_.erase(at);
  ChildEvent event{.child = trial, .incarnation = child.incarnation};
  if (failure.kind == Failure::Kind::none) {
    event.kind = ChildEvent::Kind::ended;
    children_.erase(trial);
  } else {
    const auto decision = child.policy.failed(failure);
    event.kind = ChildEvent::Kind::failed;
    event.text = decision.text;
    event.user = failure.kind == Failure::Kind::user;
    event.restart = decision.restart && !cancelled;
    event.user_failures = child.policy.user_failures();
    child.waits_for_restart = event.restart;
    if (!event.restart) children_.erase(trial);
  }
  events_.push_back(std::move(event));
  grant();
}

// --- the shell ------------------------------------------------------------------------------

std::shared_ptr<SchedulerState> World::fresh_scheduler() const {
  auto state = std::make_shared<SchedulerState>();
  switch (plan_.scheduler) {
    case Kind::fifo: state->scheduler = std::make_unique<FIFOScheduler>(); break;
    case Kind::asha:
      state->scheduler = std::make_unique<ASHAScheduler>(
          ASHAOptions{.max_t = 100, .grace_period = 1, .reduction_factor = 2, .brackets = 2});
      break;
    case Kind::halving: state->scheduler = std::make_unique<HalvingScheduler>(); break;
  }
  const auto begun = state->scheduler->begin("score", Mode::max, plan_.seed);
  must(bool(begun), "the scheduler does not begin");
  return state;
}

std::unique_ptr<Searcher> World::fresh_searcher() const {
  auto searcher = std::make_unique<NotingSearcher>();
  (void)searcher->begin({}, {.num_samples = plan_.trial_count});
  return searcher;
}

/// Nothing is left of the one before but what is on the disk.
void World::new_driver(Resume mode) {
  const bool first = driver_count_ == 0;
  must(++driver_count_ < 1000, "no driver gets on");
  if (driver_count_ > 20) plan_.faults.driver_killed = plan_.faults.interrupt = 0;
  queue_.clear();
  to_scheduler_.clear();
  unanswered_.clear();
  verdicts_.clear();
  waiting_reports_.clear();
  open_files_.clear();
  children_.clear();
  placing_.clear();
  workers_.clear();
  dead_.clear();
  events_.clear();
  stalled_ = false;
  finish_.reset();

  core_ = std::make_unique<Experiment>(spec_, fresh_searcher());
  scheduler_ = fresh_scheduler();
  const auto feed = [&](const SchedulerEvent& event) { return decide(*scheduler_, event); };
  for (const auto& record : journal_)
    must(bool(core_->restore(record, feed)), "the journal can't be read");
  if (!first) {
    // What the journal has and a file has not, comes from there.
    for (auto& [trial, written] : written_)
      for (auto& file = files_[trial]; std::ssize(file) < written.rows;)
        file.push_back(std::ssize(file) + 1);
    journal_.push_back(RunResumed{.mode = "automatic"});
    must(bool(core_->resume(mode, feed)), "it can't be resumed");
  }
  core_->begin(now_);
  carry_out_all();
}

void World::carry_out_all() {
  for (auto& command : core_->take_commands()) queue_.push_back(std::move(command));
  while (!queue_.empty() && !finish_) {
    const auto& next = queue_.front();
    if (stalled_ &&
        (std::holds_alternative<AppendRecord>(next) || std::holds_alternative<OpenTrial>(next) ||
         std::holds_alternative<WriteRow>(next)))
      return;
    if (chance(plan_.faults.driver_killed)) throw DriverKilled{};
    const Command command = next;
    carry_out(command);
    queue_.pop_front();
    for (auto& more : core_->take_commands()) queue_.push_back(std::move(more));
  }
}

void World::carry_out(const Command& command) {
  if (const auto* record = std::get_if<AppendRecord>(&command)) {
    if (plan_.canary == Canary::answers_early)
      for (const auto& later : queue_)
        if (const auto* early = std::get_if<AnswerReport>(&later)) answer(*early);
    append(record->record);
  } else if (const auto* opened = std::get_if<OpenTrial>(&command)) {
    open(opened->trial);
  } else if (const auto* row = std::get_if<WriteRow>(&command)) {
    must(open_files_.contains(row->trial), "a row is written to a closed file");
    auto& file = files_[row->trial];
    must(row->iteration == (file.empty() ? 0 : file.back()) + 1, "a file has a gap or a double");
    must(written_[row->trial].rows >= row->iteration, "a row is written before its record");
    file.push_back(row->iteration);
  } else if (const auto* error = std::get_if<WriteError>(&command)) {
    must(open_files_.contains(error->trial), "an error is written to a closed folder");
  } else if (const auto* closed = std::get_if<CloseTrial>(&command)) {
    open_files_.erase(closed->trial);
    waiting_reports_.erase(closed->trial);
  } else if (const auto* gone = std::get_if<DeleteCheckpoint>(&command)) {
    if (plan_.canary != Canary::deletes_nothing)
      checkpoints_[gone->trial].erase(std::stoll(gone->name.substr(checkpoint_name(0).size() - 1)));
  } else if (const auto* started = std::get_if<StartTrial>(&command)) {
    spawn(*started);
  } else if (const auto* stopped = std::get_if<StopTrial>(&command)) {
    stop(*stopped);
  } else if (const auto* asked = std::get_if<AskScheduler>(&command)) {
    SchedulerEvent event{.kind = asked->kind, .trial_id = core_->trial_id(asked->trial)};
    if (asked->kind == SchedulerEvent::Kind::add)
      event.config = encode(core_->config(asked->trial));
    if (asked->row) event.row = asked->row->bytes;
    if (asked->kind != SchedulerEvent::Kind::add) unanswered_.push_back(event);
    to_scheduler_.push_back(std::move(event));
  } else if (const auto* answered = std::get_if<AnswerReport>(&command)) {
    answer(*answered);
  } else if (const auto* kept = std::get_if<AnswerSaved>(&command)) {
    Worker* worker = worker_of(kept->trial);
    if (worker && worker->at == Worker::At::saved)
      worker->at = worker->order == Decision::proceed ? Worker::At::step : Worker::At::leaving;
    core_->on_answered(kept->trial, now_);
  } else if (const auto* end = std::get_if<Finish>(&command)) {
    finish_ = end->error;
  }
}

void World::append(const Record& record) {
  bool lost = false;
  const auto add = [&](auto&& told) {
    using T = std::decay_t<decltype(told)>;
    if constexpr (std::is_same_v<T, ResultRow>) {
      lost = plan_.canary == Canary::loses_row && --rows_to_loss_ == 0;
      auto& trial = written_[told.trial];
      must(!trial.ended, "a trial reports after its end");
      must(told.iteration == trial.rows + 1, "the journal has a gap or a double");
      if (lost) return;
      trial.rows = told.iteration;
      must(told.row == row_of(told.trial, trial.incarnation, told.iteration),
           "a row is not the one that its process reported");
    } else if constexpr (std::is_same_v<T, TrialStarted>) {
      auto& trial = written_[told.trial];
      must(!trial.ended, "a finished trial runs again");
      must(told.incarnation > trial.incarnation, "two processes have one number");
      trial.incarnation = told.incarnation;
    } else if constexpr (std::is_same_v<T, TrialEnded>) {
      must(!written_[told.trial].ended, "a trial ends twice");
      lost = plan_.canary == Canary::loses_end && told.trial == 0;
      written_[told.trial].ended = true;
    } else if constexpr (std::is_same_v<T, TrialReopened>) {
      auto& trial = written_[told.trial];
      trial.ended = false;
      if (told.from_beginning) trial.rows = 0;
    } else if constexpr (std::is_same_v<T, CheckpointSaved>) {
      must(told.iteration <= written_[told.trial].rows, "a checkpoint is ahead of its row");
    }
  };
  std::visit(add, record);
  if (!lost) journal_.push_back(record);
}

/// What lies in a trial's folder beyond the journal goes.
void World::open(std::uint64_t trial) {
  if (!open_files_.insert(trial).second) return;
  auto& file = files_[trial];
  const auto rows = written_[trial].rows;
  while (!file.empty() && file.back() > rows) file.pop_back();
  if (core_->iteration(trial) == 0) checkpoints_[trial].clear();
}

void World::answer(const AnswerReport& answer) {
  const auto asked = waiting_reports_.find(answer.trial);
  if (asked == waiting_reports_.end() || asked->second.iteration != answer.iteration) return;
  const auto incarnation = asked->second.incarnation;
  waiting_reports_.erase(asked);
  core_->on_answered(answer.trial, now_);
  Worker* worker = worker_of(answer.trial);
  if (!worker || worker->incarnation != incarnation || worker->at != Worker::At::reported ||
      worker->iteration != answer.iteration)
    return;
  if (answer.order.decision == Decision::proceed) {
    must(written_[answer.trial].rows >= worker->iteration, "a row is answered and in no journal");
    must(std::ssize(files_[answer.trial]) >= worker->iteration, "a row is answered and in no file");
  }
  worker->order = answer.order.decision;
  const bool due = answer.order.decision == Decision::pause ||
                   (answer.order.decision == Decision::proceed && plan_.checkpoint_freq > 0 &&
                    worker->iteration % plan_.checkpoint_freq == 0);
  const bool deaf = plan_.faults.trials_fail && !mended_ && answer.trial % 9 == 7;
  if (due || answer.order.save)
    worker->at = Worker::At::save;
  else if (answer.order.decision == Decision::proceed)
    worker->at = Worker::At::step;
  else
    worker->at = deaf ? Worker::At::stuck : Worker::At::leaving;
}

void World::spawn(const StartTrial& start) {
  must(open_files_.contains(start.trial), "a trial starts in a closed folder");
  must(!worker_of(start.trial), "a trial is in two places");
  if (start.again) {
    must(children_.contains(start.trial) && children_.at(start.trial).waits_for_restart,
         "a trial is started again that does not wait for it");
  } else {
    must(!children_.contains(start.trial), "a trial is started twice");
    RestartPolicy policy = plan_.restart;
    children_[start.trial] = {
        .incarnation = core_->incarnation(start.trial),
        .policy = SupervisorPolicy(policy, core_->failure_count(start.trial))};
  }
  Child& child = children_.at(start.trial);
  child.waits_for_restart = false;
  child.up_to = core_->iteration(start.trial);
  ++child.incarnation;
  placing_.push_back(start.trial);
  grant();
}

void World::stop(const StopTrial& stop) {
  if (!children_.contains(stop.trial)) return;
  Worker* worker = worker_of(stop.trial);
  switch (stop.mode) {
    case StopMode::kill:
      std::erase(placing_, stop.trial);
      if (worker) {
        end(stop.trial, {});
        // Nothing is told of it, but slots that it leaves are taken.
        std::erase_if(events_, [&](const ChildEvent& event) {
          return event.child == stop.trial && event.kind == ChildEvent::Kind::ended;
        });
      }
      children_.erase(stop.trial);
      return;
    case StopMode::fail:
      if (worker) end(stop.trial, {Failure::Kind::user, stop.text});
      return;
    case StopMode::cancel:
      if (worker) worker->cancelled = true;
      return;
  }
}

void World::scheduler_dies() {
  while (!verdicts_.empty() && !finish_) hear_verdict();
  if (finish_) return;
  scheduler_ = fresh_scheduler();
  Experiment past(spec_, nullptr);
  const auto feed = [&](const SchedulerEvent& event) { return decide(*scheduler_, event); };
  const auto later = [](const SchedulerEvent&) { return SchedulerVerdict{}; };
  for (const auto& record : journal_)
    must(bool(past.restore(record, feed)), "the journal can't be read");
  for (const auto& command : queue_)
    if (const auto* record = std::get_if<AppendRecord>(&command)) {
      const bool added = std::holds_alternative<TrialAdded>(record->record);
      const auto told =
          added ? past.restore(record->record, later) : past.restore(record->record, feed);
      must(bool(told), "the queue can't be read");
    }
  to_scheduler_ = unanswered_;
}

// --- what must hold -------------------------------------------------------------------------

void World::must(bool holds, const std::string& what) const {
  if (!holds) throw Broken{what};
}

void World::check() const {
  std::size_t running = 0;
  for (std::uint64_t i = 0; i < core_->trial_count(); ++i) {
    const bool live = core_->live().contains(i);
    const auto state = core_->state(i);
    must(!live || (state != TrialState::terminated && state != TrialState::error),
         "a finished trial is live");
    if (core_->is_current(i, core_->incarnation(i))) {
      ++running;
      must(live && state == TrialState::running, "a trial with a process is not RUNNING");
    }
  }
  must(running == core_->running_count(), "the number of running trials is wrong");
  must(plan_.max_concurrent == 0 ||
           children_.size() <= static_cast<std::size_t>(plan_.max_concurrent),
       "more trials at once than max_concurrent");
}

void World::check_end() const {
  must(children_.empty(), "the run has ended, and a process is left");
  must(core_->live().empty() && core_->running_count() == 0,
       "the run has ended, and a trial lives");
  must(open_files_.empty(), "the run has ended, and files are open");
  const bool complete = !*finish_;
  for (std::uint64_t i = 0; i < core_->trial_count(); ++i) {
    const auto state = core_->state(i);
    must(state != TrialState::running, "a trial runs in a run that has ended");
    must(!complete || state == TrialState::terminated || state == TrialState::error || mended_,
         "a trial is in no final state");
    const bool whole = !files_.contains(i) || std::ssize(files_.at(i)) == core_->iteration(i);
    must(whole || (mended_ && core_->iteration(i) == 0), "a file lacks rows");
    if (const auto* policy = core_->checkpoints(i))
      for (const auto& kept : policy->kept())
        must(checkpoints_.at(i).contains(kept.iteration), "a kept checkpoint is not there");
    if (checkpoints_.contains(i)) must(checkpoints_.at(i).size() <= 2, "checkpoints are left over");
  }
  const bool all = plan_.time_budget.count() == 0 && complete && !mended_;
  must(!all || std::int64_t(core_->trial_count()) == plan_.trial_count, "trials are missing");
  check_replay();
}

/// Who is fed the journal must know what those knew who saw it happen.
void World::check_replay() const {
  auto scheduler = fresh_scheduler();
  Experiment past(spec_, fresh_searcher());
  const auto feed = [&](const SchedulerEvent& event) { return decide(*scheduler, event); };
  for (const auto& record : journal_)
    must(bool(past.restore(record, feed)), "the journal can't be read");
  must(scheduler->scheduler->state() == scheduler_->scheduler->state(),
       "a scheduler that is fed the journal differs: " + scheduler->scheduler->state() +
           "\nfrom the one that saw it: " + scheduler_->scheduler->state());
  must(past.searcher().state() == core_->searcher().state(),
       "a searcher that is fed the journal differs: " + past.searcher().state() +
           "\nfrom the one that saw it: " + core_->searcher().state());
  for (std::uint64_t i = 0; i < core_->trial_count(); ++i)
    must(past.iteration(i) == core_->iteration(i), "the journal has other rows");
}

}  // namespace troupe::tune::sim
