#pragma once

#include "libactor/clock.hpp"
#include "libactor/context.hpp"
#include "sgd/internal/exchange.hpp"
#include "sgd/internal/generators.hpp"
#include "sgd/internal/messages.hpp"
#include "sgd/internal/operator_state.hpp"
#include "sgd/internal/snapshots.hpp"
#include "sgd/operator_function.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace troupe::sgd::internal {

/// What a rank tells its host, from its compute thread.
struct RankTold {
  int rank = 0;
  std::uint64_t call = 0;  ///< 0: `setup` is done
  std::string metrics = {};
  std::int64_t global_batch = 0;  ///< after `setup`
  Error error = {};
};

/// One rank: a thread that makes the operator, sets it up, and does what it is called for, one
/// thing after the other. All of LibTorch that is a thread's own (threads, generator, grad mode)
/// is set there once.
class Rank {
 public:
  struct Spec {
    RankPlan plan = {};
    int rank = 0;
    const Context* context = nullptr;
    MakeOperator make = nullptr;
    Exchange* exchange = nullptr;
    std::shared_ptr<Snapshots> snapshots = {};
    std::function<void(RankTold)> tell = {};
  };
  /// Starts the thread, which sets up and tells.
  explicit Rank(Spec spec);
  /// Waits for the thread: make its exchange fail first.
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void call(const CallSpec& call);
  RankStatus status() const;
  /// Whether it has left user code for good within the time.
  bool ended_within(std::chrono::milliseconds limit);

 private:
  void run();
  void set_up();
  void restore();
  void carry_out(const CallSpec& call);
  tune::Metrics perform(const CallSpec& call);
  void step_done();
  void take_snapshot(const CallSpec* ended, const std::string& metrics);
  int local_rank() const { return spec_.rank - spec_.plan.member.first_rank; }

  Spec spec_;
  // of the compute thread alone
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<RankGenerator> generator_;
  std::unique_ptr<RankGenerator::Use> generator_in_use_;
  std::unique_ptr<TrainingOperator> operator_;
  std::unique_ptr<OperatorDriver> driver_;
  std::uint64_t call_done_ = 0;   ///< by the state that was restored, and
  std::string result_done_ = {};  ///< what it gave
  std::int64_t steps_ = 0;        ///< since the last snapshot
  std::int64_t interval_ = 0;
  Clock::Time last_snapshot_ = {};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CallSpec> calls_;
  bool end_ = false;
  bool ended_ = false;
  std::string doing_ = "setup";
  std::int64_t batch_ = 0;
  std::int64_t batch_count_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace troupe::sgd::internal
