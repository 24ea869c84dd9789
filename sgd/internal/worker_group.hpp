#pragma once

#include "libactor/clock.hpp"
#include "sgd/internal/messages.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What becomes of a group of ranks: events in, commands out. Knows no actor, no process and no
/// clock.
///
/// The life of a group: all processes start and say hello, are told who they are (`FormProcess`),
/// and answer when their operators are set up; then calls run, one at a time. When anything is lost
/// all processes are ended and the same begins again, from the newest snapshot that all have: a
/// process costs milliseconds, and there is one way only. Every rank repeats the few steps since
/// then, with the same bits.
namespace troupe::sgd::internal {

struct GroupSpec {
  int num_workers = 1;
  int ranks_per_process = 0;  ///< 0: all in one
  int min_workers = 0;        ///< fewer are no group; 0: num_workers
  bool elastic = false;       ///< a smaller one grows again when it is called
};

// --- commands -------------------------------------------------------------------------------

struct StartProcess {
  int process = 0;
  int rank_count = 0;
};
struct FormProcess {
  int process = 0;
  Membership member = {};
};
struct RunCall {
  int process = 0;
  CallSpec call = {};
};
struct EndProcess {
  int process = 0;
};
struct FinishCall {
  std::uint64_t id = 0;
  Error error = {};                       ///< none: done
  std::vector<std::string> metrics = {};  ///< of each rank, JSON
};
/// A sentence for people.
struct Tell {
  std::string sentence = {};
};
using GroupCommand = std::variant<StartProcess, FormProcess, RunCall, EndProcess, FinishCall, Tell>;

class WorkerGroup {
 public:
  explicit WorkerGroup(GroupSpec spec);

  // events; `process` is a number from 0 on, `now` is monotonic
  /// One at a time. retries: losses of processes that it survives.
  void call(const CallSpec& call, int retries, Clock::Time now);
  void on_hello(int process, Clock::Time now);
  void on_formed(const Formed& formed, Clock::Time now);
  void on_done(const CallDone& done);
  void on_failed(const CallFailed& failed, Clock::Time now);
  /// It has ended, whatever the reason.
  void on_ended(int process, const std::string& cause, Clock::Time now);
  /// It can't start now, and waits: `why`.
  void on_waiting(int process, const std::string& why);
  /// It never can.
  void on_refused(int process, const std::string& why);
  void on_status(const HostStatus& status, Clock::Time now);
  void on_tick(Clock::Time now);
  /// Ends the processes of a group that has nothing to do: the next call makes it anew.
  void begin_anew();
  void shut_down();

  std::vector<GroupCommand> take_commands();

  bool running() const { return call_.has_value(); }
  int world_size() const { return world_size_; }  ///< as formed; 0: it is not
  std::uint64_t epoch() const { return epoch_; }
  /// Ranks for people: "rank 2", "ranks 0 to 3".
  std::string name_of(int process) const;

 private:
  enum class At { down, starting, forming, ready };
  struct Process {
    enum class At { ended, asked, here, formed, running, done };
    At at = At::ended;
    int rank_count = 0;
    int first_rank = 0;
    std::string waiting = {};
    Clock::Time heard = {};
    std::vector<RankStatus> ranks = {};
    std::vector<std::string> metrics = {};
  };

  void start(Clock::Time now);
  void form(Clock::Time now);
  void run(Clock::Time now);
  void lost(const std::string& cause, Clock::Time now);
  void finish(Error error, std::vector<std::string> metrics = {});
  void end_all();
  void look_for_deadlock(Clock::Time now);
  void look_for_slow();
  void tell(std::string sentence);
  bool all(Process::At at) const;

  GroupSpec spec_;
  At at_ = At::down;
  std::vector<Process> processes_;
  std::uint64_t epoch_ = 0;
  int world_size_ = 0;
  Clock::Time since_ = {};  ///< of this state
  std::optional<CallSpec> call_;
  int retries_left_ = 0;
  std::optional<Clock::Time> stuck_since_;
  std::string stuck_in_;
  std::string told_slow_;
  std::vector<GroupCommand> commands_;
};

}  // namespace troupe::sgd::internal
