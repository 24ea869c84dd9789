#pragma once

#include "sgd/internal/data_stream.hpp"
#include "sgd/internal/gradient_buckets.hpp"
#include "sgd/internal/meters.hpp"
#include "sgd/internal/operator_state.hpp"
#include "sgd/internal/registration.hpp"
#include "sgd/training_operator.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace troupe::sgd {

/// What an operator has beside what its user wrote: the parts that `setup` registered, and the pass
/// under way. Used on the rank's compute thread alone.
struct TrainingOperator::Impl {
  using Part = internal::Profile::Part;

  // --- before setup, in it, and after it ---

  void attach(internal::RankEnvironment environment);
  Components register_components(Components given);
  void register_data(DataLoader train, DataLoader validation);
  /// Meets the other ranks for the first time.
  void finish_setup();

  // --- a pass: one call of train or validate ---

  /// Goes on with the pass that `resume_steps` and `meters` are of, if there is one.
  void begin_pass(bool training, internal::PassOptions options);
  /// Ends the batch under way and takes up the next; false: the pass is over.
  bool next_batch();
  void end_batch();
  /// Adds to what the user's code returned what every pass returns.
  tune::Metrics end_pass(const tune::Metrics& returned);

  // --- a batch ---

  torch::Tensor forward(const Batch& batch) const;
  void backward(const torch::Tensor& loss);
  void step(torch::optim::Optimizer& optimizer);
  void begin_no_sync();
  void end_no_sync();

  // --- access ---

  void check_attached(std::string_view called) const;
  /// Throws unless the default `function` can do with what is registered.
  void check_default(std::string_view function, bool needs_optimizer) const;
  internal::DataStream& data(bool training);
  std::int64_t epoch() const;
  void doing(std::string_view what) const;

  internal::RankEnvironment env = {};
  bool attached = false;

  Components parts = {};  ///< normalised
  std::vector<internal::NamedModule> modules = {};
  OptLevel level = OptLevel::O0;
  DataLoader train_loader = {};
  DataLoader validation_loader = {};

  std::optional<internal::GradScaler> scaler = {};
  std::vector<std::unique_ptr<internal::GradientBuckets>> buckets = {};  ///< none for one rank
  std::optional<internal::DataStream> train_data = {};
  std::optional<internal::DataStream> validation_data = {};

  std::int64_t global_step = 0;
  std::int64_t epochs_without_data = 0;
  std::int64_t resume_steps = 0;  ///< of the pass within which a loaded state was saved

  struct Pass {
    bool training = false;
    bool active = false;
    bool default_loop = false;  ///< `TrainingOperator::train_epoch` runs it
    internal::PassOptions options = {};
    std::int64_t steps = 0;  ///< that are done
    std::int64_t samples = 0;
    std::int64_t epoch_before = 0;
  };
  Pass pass = {};
  internal::Meters meters = {};
  internal::Profile profile = {};

  /// The batch under way.
  struct Current {
    Batch batch = {};
    BatchInfo info = {};
    std::int64_t samples = 0;  ///< 0: it stands in for one that this rank has not
    std::vector<torch::Tensor> buffers_before = {};  ///< when it stands in
    bool unsynced = false;                           ///< a `NoSync` was made
  };
  std::optional<Current> current = {};

  /// The batches that end in one step together, beginning with that under way.
  struct Group {
    std::int64_t left = 0;     ///< with the one under way
    std::int64_t samples = 0;  ///< of this rank, in all of them
    std::int64_t batches = 0;  ///< that have samples
  };
  Group group = {};

 private:
  bool more_steps() const;
  void start_epoch();
  void begin_group();
  void end_step();
  void abandon_batch();

  std::vector<torch::Tensor> buffers() const;
  void broadcast_buffers();
  void step_schedulers();
  /// This rank's part in the average, as DdpOptions want it.
  void set_weight(std::int64_t samples);
  void set_sync(bool sync);
  internal::GradientBuckets::Stats exchanged() const;

  int no_sync_depth_ = 0;
  std::int64_t carried_samples_ = 0;  ///< of batches before, whose gradients wait here
  std::optional<bool> finite_ = {};   ///< whether this step's scaled gradients were
  internal::GradientBuckets::Stats exchanged_before_ = {};
};

}  // namespace troupe::sgd
