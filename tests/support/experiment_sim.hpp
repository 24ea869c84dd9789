#pragma once

#include "libactor/supervisor.hpp"
#include "tune/internal/experiment.hpp"
#include "tune/internal/scheduler_actor.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

/// A whole run in one thread and virtual time: the experiment's core is real, and so are scheduler
/// and supervision policy; journal, files, checkpoints, slots and trials are in memory. The seed
/// decides what happens next, and what goes wrong when.
namespace troupe::tune::sim {

enum class Kind { fifo, asha, halving };

/// What may go wrong, each with this chance at every step.
struct Faults {
  double worker_killed = 0;
  double driver_killed = 0;  ///< between any two commands
  double scheduler_killed = 0;
  double disk_stalls = 0;
  double interrupt = 0;
  double said_twice = 0;     ///< a report or a checkpoint is told again
  bool trials_fail = false;  ///< some always, some once, some hang once, some do not stop
};

/// A mistake that the simulator makes on purpose, to see that it is noticed.
enum class Canary { none, loses_row, loses_end, answers_early, no_fence, deletes_nothing };

struct Plan {
  std::uint64_t seed = 0;
  std::int64_t trial_count = 9;
  std::int64_t iterations = 6;  ///< a trial's length
  std::size_t slots = 2;
  std::int64_t max_concurrent = 0;
  bool function = false;  ///< returns by itself, else is stopped by training_iteration
  std::int64_t checkpoint_freq = 2;
  RestartPolicy restart = {.max_failures = 1, .max_infrastructure_failures = -1};
  bool fail_fast = false;
  std::chrono::milliseconds time_budget = {};
  Kind scheduler = Kind::fifo;
  Faults faults = {};
  Canary canary = Canary::none;
};

/// Plan `seed` of all that are tried.
Plan random_plan(std::uint64_t seed);
/// The same trials, and nothing goes wrong.
Plan undisturbed(Plan plan);

struct TrialOutcome {
  std::string id = {};
  std::string config = {};
  TrialState state = {};
  std::int64_t iteration = 0;
  bool operator==(const TrialOutcome&) const = default;
};

/// Throws `Broken` as soon as something does not hold that must.
struct Broken {
  std::string what;
};

class World {
 public:
  explicit World(const Plan& plan);

  /// Until every trial is in a final state, through as many drivers as it takes.
  void run();
  /// Trials in ERROR again, after their cause has been mended.
  void run_again(Resume mode);

  std::vector<TrialOutcome> outcome() const;
  const std::vector<internal::Record>& journal() const { return journal_; }
  std::string scheduler_state() const { return scheduler_->scheduler->state(); }
  std::size_t event_count() const { return event_count_; }
  int driver_count() const { return driver_count_; }

 private:
  using Message = std::variant<internal::TrialReady, internal::TrialReport, internal::TrialSaved>;
  struct Worker {
    enum class At { setup, step, reported, save, published, saved, leaving, stuck };
    std::uint64_t trial = 0;
    std::uint64_t incarnation = 0;
    std::int64_t iteration = 0;  ///< before setup: up to which it may go on
    At at = At::setup;
    Decision order = Decision::proceed;
    bool save_asked = false;
    bool cancelled = false;
    std::deque<Message> said = {};  ///< and not heard yet
  };
  struct Child {
    std::uint64_t incarnation = 0;
    std::int64_t up_to = 0;  ///< the trial's argument
    bool waits_for_restart = false;
    SupervisorPolicy policy{RestartPolicy{}};
  };
  /// What the journal has of a trial.
  struct Written {
    std::int64_t rows = 0;
    bool ended = false;
    std::uint64_t incarnation = 0;
  };
  struct DriverKilled {};

  // what happens next
  bool happen();
  void hear_supervisor();
  void hear_worker(Worker& worker);
  void work(Worker& worker);
  void decide_one();
  void hear_verdict();
  void tick();
  void go_wrong();

  // the shell
  void live(Resume mode);
  void new_driver(Resume mode);
  void carry_out_all();
  void carry_out(const internal::Command& command);
  void append(const internal::Record& record);
  void open(std::uint64_t trial);
  void answer(const internal::AnswerReport& answer);
  void spawn(const internal::StartTrial& start);
  void stop(const internal::StopTrial& stop);
  void scheduler_dies();
  std::shared_ptr<internal::SchedulerState> fresh_scheduler() const;
  std::unique_ptr<Searcher> fresh_searcher() const;

  // the machine
  void grant();
  void end(std::uint64_t trial, const Failure& failure);
  Worker* worker_of(std::uint64_t trial);

  // what must hold
  void must(bool holds, const std::string& what) const;
  void check() const;
  void check_end() const;
  void check_replay() const;

  std::uint64_t draw(std::uint64_t bound) { return random_() % bound; }
  bool chance(double probability) {
    return probability > 0 && static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }
  bool once(std::uint64_t trial, const char* what) {
    return done_once_.insert({trial, what}).second;
  }

  Plan plan_;
  internal::ExperimentSpec spec_;
  std::mt19937_64 random_;
  Clock::Time now_ = {};
  std::size_t event_count_ = 0;
  int driver_count_ = 0;
  bool mended_ = false;
  std::set<std::pair<std::uint64_t, std::string>> done_once_;

  // survives a driver
  std::vector<internal::Record> journal_;
  std::map<std::uint64_t, Written> written_;
  std::map<std::uint64_t, std::vector<std::int64_t>> files_;
  std::map<std::uint64_t, std::set<std::int64_t>> checkpoints_;

  // the driver
  std::unique_ptr<internal::Experiment> core_;
  std::shared_ptr<internal::SchedulerState> scheduler_;
  std::deque<internal::Command> queue_;
  std::deque<internal::SchedulerEvent> to_scheduler_;
  std::deque<internal::SchedulerEvent> unanswered_;
  std::deque<internal::SchedulerVerdict> verdicts_;
  struct Waiting {
    std::uint64_t incarnation = 0;
    std::int64_t iteration = 0;
  };
  std::map<std::uint64_t, Waiting> waiting_reports_;
  std::set<std::uint64_t> open_files_;
  bool stalled_ = false;
  std::optional<Error> finish_;
  int rows_to_loss_ = 12;  ///< for the canaries

  // the machine
  std::map<std::uint64_t, Child> children_;
  std::deque<std::uint64_t> placing_;
  std::deque<Worker> workers_;  ///< alive
  std::deque<Worker> dead_;     ///< with something said that nobody has heard
  std::deque<ChildEvent> events_;
};

}  // namespace troupe::tune::sim
