#pragma once

#include "libactor/checkpoint.hpp"
#include "tune/checkpoint_schedule.hpp"
#include "tune/internal/auto_keys.hpp"
#include "tune/internal/trial_actor.hpp"
#include "tune/trainable.hpp"

#include <functional>
#include <future>
#include <optional>

namespace troupe::tune::internal {

/// The blob that holds `training_iteration`, which the user's own metrics may set: it need not be
/// the number of rows.
inline constexpr std::string_view kRowIterationBlob = "troupe/training_iteration";

/// What the body of a trial's process has in hand, for class and function trainables alike: rows
/// with their automatic keys, checkpoints, and the talk with the experiment.
class TrialMain {
 public:
  explicit TrialMain(Worker& worker);

  /// Decodes what the experiment gave. First of all.
  Result<void> begin();
  const Config& config() const { return config_; }
  const Context& context() const { return worker_.context(); }

  /// `TrainableSpec::argument`.
  const std::string& trainable_argument() const { return argument_.trainable; }

  /// The newest sound checkpoint; nullptr: from the beginning.
  const CheckpointReader* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  /// `setup` and `load_checkpoint` are done; or, not `set_up`, a function begins.
  void ready(bool set_up);

  /// Makes the row of the next iteration, reports it and waits for the order.
  Result<TrialOrder> report(Metrics metrics, bool from_function, bool with_checkpoint);
  /// Whether the trial saves after this order. `can_save`: there is something to call.
  bool save_due(const TrialOrder& order, bool can_save) const;
  /// Writes a checkpoint of `iteration`. A full disk is told and no error: the trial goes on with
  /// the checkpoint before. What `write` throws is an error.
  Result<void> write_checkpoint(std::int64_t iteration,
                                const std::function<void(CheckpointWriter&)>& write);
  /// Lets it go to the disk while the next step runs. The row of that iteration is answered by now.
  void publish_checkpoint();
  /// Waits until the last one is published, and in the journal: before the next report, so that the
  /// journal has it behind its own row, and at the end.
  Result<void> settle();
  bool has_unpublished() const { return writer_ != nullptr; }
  std::int64_t iteration() const { return iteration_; }

  /// The exit code for this error, which becomes the failure's cause.
  int fail(const Error& error);
  void config_error(const std::string& text) { actor_.config_error(text); }
  void note_unread_keys();

 private:
  void told_disk(const Error& error);

  Worker& worker_;
  TrialActor actor_;
  TrialArgument argument_;
  Config config_;
  std::optional<AutoKeys> keys_;
  TrialPlace place_;
  std::int64_t iteration_ = 0;
  std::optional<CheckpointReader> checkpoint_;
  std::string parent_uuid_;
  std::optional<CheckpointSchedule> schedule_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::future<Result<std::string>> publishing_;
  std::int64_t writer_iteration_ = 0;
  Clock::Time save_began_;
  Clock::Time step_began_;
  SystemClock clock_;
};

}  // namespace troupe::tune::internal
