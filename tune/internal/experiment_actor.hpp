#pragma once

#include "libactor/actor.hpp"
#include "libactor/clock.hpp"
#include "tune/callback.hpp"
#include "tune/internal/experiment.hpp"
#include "tune/internal/experiment_state.hpp"
#include "tune/internal/journal.hpp"
#include "tune/internal/result_files.hpp"
#include "tune/internal/scheduler_actor.hpp"
#include "tune/internal/syncer.hpp"
#include "tune/reporter.hpp"
#include "tune/trainable.hpp"

#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tune::internal {

/// Everything that an experiment's actor is made of. `run.cpp` has checked it all.
struct ExperimentPlan {
  ExperimentInfo info = {};
  TrainableSpec trainable = {};
  std::string experiment_id = {};
  std::uint64_t seed = 0;
  Clock::WallTime started = {};  ///< of the first of its drivers
  Resources resources = {};
  RestartPolicy restart = {};
  std::int64_t checkpoint_freq = -1;
  bool checkpoint_at_end = false;
  bool log_to_driver = true;
  std::function<std::unique_ptr<TrialScheduler>()> make_scheduler =
      {};  ///< another: begun, knows nothing yet
  ExperimentSpec spec = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  std::shared_ptr<ProgressReporter> reporter = {};
  std::unique_ptr<Experiment> core = {};  ///< restored, where there was something to restore
  std::unique_ptr<Journal> journal = {};
  std::filesystem::path journal_path = {};
  std::shared_ptr<SchedulerState> scheduler = {};  ///< the first; knows all that the core knows
  std::function<void(Error)> finished = {};        ///< called once, on the experiment's thread
  Cluster* cluster = nullptr;
};

/// The shell around `Experiment`: an actor on a thread of its own that turns messages into events
/// and carries out commands, strictly in order. A command that needs a disk which can't takes the
/// whole queue to a stop; it is tried again every `limits::kRetryWrite`, and nothing is answered
/// meanwhile.
class ExperimentActor {
 public:
  static inline const char* name = "experiment";
  using Self = caf::stateful_actor<ExperimentActor>;

  void begin(Self* self, std::shared_ptr<ExperimentPlan> plan);
  caf::behavior behavior();

 private:
  // messages
  void on_child(const ChildEvent& event);
  void on_tick();
  void on_interrupt(const std::string& why);
  void on_scheduler_down();
  Result<std::shared_ptr<SchedulerState>> new_scheduler();

  // commands
  void run_commands();
  Result<void> carry_out(Command& command);
  Result<void> open_trial(std::uint64_t trial);
  void start_trial(const StartTrial& start);
  void ask_scheduler();
  void notify(const Notify& notification);
  void say(bool warning, const std::string& line);
  void finish(Error error);

  void spawn_scheduler(std::shared_ptr<SchedulerState> scheduler);
  SchedulerEvent event_of(const AskScheduler& ask) const;
  std::filesystem::path folder_of(std::uint64_t trial) const;
  StatusView status();
  void tell_status(bool final);
  void save_state(bool final);
  template <class F>
  void for_callbacks(F&& call);

  Self* self_ = nullptr;
  std::shared_ptr<ExperimentPlan> plan_;
  SystemClock clock_;
  caf::actor supervisor_;
  caf::actor scheduler_;
  std::string scheduler_text_;  ///< its debug string, as it last told
  std::deque<Command> queue_;
  std::string stalled_;  ///< why the queue stands still; empty: it does not
  Clock::Time next_try_ = {};
  std::deque<SchedulerEvent> unanswered_;  ///< of the scheduler, in order
  std::size_t asking_ = 0;                 ///< of these, those that are with it now
  int scheduler_deaths_ = 0;               ///< in a row
  std::map<std::uint64_t, std::unique_ptr<TrialFiles>> files_;  ///< of trials that are not finished
  struct Waiting {
    std::int64_t iteration = 0;
    caf::response_promise answer = {};
  };
  std::map<std::uint64_t, Waiting> reports_;
  std::map<std::uint64_t, caf::response_promise> saves_;
  std::unique_ptr<Syncer> syncer_;
  std::vector<TrialSnapshot> snapshots_;  ///< of the last report, borrowed by it
  Clock::Time begun_ = {};
  Clock::Time next_report_ = {};
  SavePace state_pace_;
  bool done_ = false;
};

caf::behavior experiment_actor(ExperimentActor::Self* self,
                               const std::shared_ptr<ExperimentPlan>& plan);

}  // namespace troupe::tune::internal
