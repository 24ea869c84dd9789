#pragma once

#include "tune/metrics.hpp"

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// What becomes of a running trial.
enum class Decision { proceed, pause, stop };

/// "CONTINUE", "PAUSE", "STOP": Ray's words.
std::string_view name_of(Decision decision);

/// A trial as schedulers and searchers see it.
struct TrialView {
  std::string id;
  const Config& config;
};

/// A scheduler's answer to one event: what becomes of the reporter, and of others as a side effect.
struct Verdict {
  Decision decision = Decision::proceed;
  std::vector<std::string> stop = {};    ///< ids of paused trials that end now
  std::vector<std::string> resume = {};  ///< ids of paused trials that may run again
  std::vector<std::string> checkpoint =
      {};                ///< ids of running trials that must write a checkpoint now
  std::string why = {};  ///< for the log: "rung=4 cutoff=0.412 value=0.398"; empty: no reason
};

/// Decides which trials go on. A plain object: events in, verdicts out; no clock, no I/O, no
/// threads.
///
/// It runs in an actor of its own (`tune/internal/scheduler_actor.*`). After a crash or a resume
/// the actor makes a new one and feeds it the same events in the same order, so the same events
/// must give the same verdicts: randomness comes from the seed that `begin` gives. Results that
/// reach it hold the automatic keys; a metric that is absent or null is the scheduler's to skip.
class TrialScheduler {
 public:
  virtual ~TrialScheduler() = default;

  /// Called once before everything else, with the run's metric and mode (empty and nothing when the
  /// run has none). bad_request when the scheduler's own differ or when it needs what nobody gave.
  virtual Result<void> begin(const std::string& metric, std::optional<Mode> mode,
                             std::uint64_t seed) = 0;

  virtual void on_trial_add(const TrialView& trial) = 0;
  virtual Verdict on_trial_result(const TrialView& trial, const TrialResult& result) = 0;
  /// The trial ended by itself, by a stop criterion, or after its own STOP; `result` is its last.
  virtual Verdict on_trial_complete(const TrialView& trial, const TrialResult& result) = 0;
  /// It failed for good, or it was stopped without a result.
  virtual Verdict on_trial_remove(const TrialView& trial) = 0;

  /// Which of `candidates` (pending and paused, in order of creation) runs next; nothing: none of
  /// them may.
  virtual std::optional<std::string> choose_trial_to_run(const std::vector<TrialView>& candidates);

  /// "Using AsyncHyperBand: num_stopped=3 …", as Ray's status table shows it.
  virtual std::string debug_string() const = 0;
  /// Class and parameters, JSON: what the journal keeps, so that a resume with another scheduler is
  /// told.
  virtual std::string spec() const = 0;
  /// Everything that it has learnt, JSON: for tests, the status page and comparison after a resume.
  virtual std::string state() const = 0;
};

/// A scheduler as an option: a copyable recipe. Every run makes its own object from it.
class AnyScheduler {
 public:
  AnyScheduler();  ///< FIFO

  template <class S>
  requires(std::derived_from<S, TrialScheduler>&& std::copy_constructible<S>)
      AnyScheduler(S prototype)
      : make_([prototype = std::move(prototype)] { return std::make_unique<S>(prototype); }) {}

  std::unique_ptr<TrialScheduler> make() const { return make_(); }

 private:
  std::function<std::unique_ptr<TrialScheduler>()> make_;
};

/// Runs every trial to its own end, in order of creation.
class FIFOScheduler final : public TrialScheduler {
 public:
  Result<void> begin(const std::string& metric, std::optional<Mode> mode,
                     std::uint64_t seed) override;
  void on_trial_add(const TrialView& trial) override;
  Verdict on_trial_result(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_complete(const TrialView& trial, const TrialResult& result) override;
  Verdict on_trial_remove(const TrialView& trial) override;
  std::string debug_string() const override;
  std::string spec() const override;
  std::string state() const override;
};

}  // namespace troupe::tune
