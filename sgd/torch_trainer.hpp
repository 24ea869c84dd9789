#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/cluster.hpp"
#include "libactor/entry.hpp"
#include "sgd/operator_function.hpp"
#include "sgd/training_operator.hpp"
#include "tune/trainable.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::sgd {

struct TorchTrainerOptions {
  int num_workers = 1;  ///< ranks
  double num_cpus_per_worker = 1;
  bool use_gpu = false;
  double num_gpus_per_worker = 1;  ///< with use_gpu; 0.5: two ranks share one
  bool use_fp16 = false;  ///< half precision: AmpOptions' O1 (float16 on GPUs, bfloat16 on CPUs)
  tune::Config config = {};
  /// Samples of a step of all ranks together; 0: num_workers times config's "batch_size". It stays
  /// when ranks are lost.
  std::int64_t global_batch_size = 0;
  SchedulerStep scheduler_step_freq = SchedulerStep::unset;
  bool add_dist_sampler = true;  ///< false: every rank reads all data
  std::uint64_t seed = 0;        ///< of everything random; the same seed gives the same bits
  /// Ranks in one process; 0: all of a machine. With 1 user code need not be thread-safe, and a
  /// crash costs one rank; the bits are the same.
  int ranks_per_process = 0;
  int min_workers = 0;   ///< the group may go on with so many; 0: num_workers
  bool elastic = false;  ///< and grow again when there is room
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< of one wait for other ranks
  bool snapshots = true;  ///< state in memory every half second or so: little is repeated after a
                          ///< loss. Without: a call that loses a process begins anew
  std::filesystem::path local_dir = {};  ///< for logs; default TROUPE_RESULT_DIR, else
                                         ///< ~/troupe_results
  int verbose = 1;  ///< 0: nothing is printed but what ranks print; 1: losses, slow ranks, progress
};

struct TrainOptions {
  std::int64_t num_steps = 0;  ///< batches of each rank; 0: to the end of the epoch
  bool profile = false;        ///< with times: mean_fwd_s, mean_grad_s, mean_exchange_s, …
  bool reduce_results = true;  ///< false: every rank's metrics, "0/train_loss", "1/train_loss", …
  int max_retries = 3;         ///< losses of processes that this call survives
  tune::Config info = {};      ///< for BatchInfo::info
};
using ValidateOptions = TrainOptions;

/// What a step that takes the default's place is told.
struct TuneInfo {
  std::int64_t iteration = 0;  ///< steps that are done
};

namespace internal {

class Trainer;

/// What the trainer must know of an operator's type.
struct OperatorType {
  std::string name = {};
  std::string entry = {};
  MakeOperator make = nullptr;
};

int serve_ranks(Worker& worker, MakeOperator make);

template <class Op>
std::unique_ptr<TrainingOperator> make_operator() {
  return std::make_unique<Op>();
}

template <class Op>
int serve_ranks_of(Worker& worker) {
  return serve_ranks(worker, &make_operator<Op>);
}

template <class Op>
struct RanksOf {};

template <class Op>
OperatorType operator_type() {
  (void)Registration<&serve_ranks_of<Op>, RanksOf<Op>>::done;
  return {.name = readable_type_name(typeid(Op)),
          .entry = entry_name<RanksOf<Op>>(),
          .make = &make_operator<Op>};
}

std::string encode_options(const TorchTrainerOptions& options);
TorchTrainerOptions decode_options(const std::string& text);
Resources resources_of(const TorchTrainerOptions& options);
/// Train and validation metrics of one step under Tune: all names but `epoch` get "train_" or
/// "val_" before them, unless they have it.
tune::Metrics join(const tune::Metrics& train, const tune::Metrics& validation);

}  // namespace internal

/// What `TorchTrainer` does without knowing its operator's type.
///
/// Ranks start with the first call. All calls block, one at a time. Errors of all: user_code, with
/// the rank and what it threw; peer_lost when processes were lost more often than `max_retries`;
/// out_of_resources; bad_request for options that can't be. After an error the trainer can be used
/// again: it goes on from its newest snapshot.
class TorchTrainerBase {
 public:
  ~TorchTrainerBase();
  TorchTrainerBase(const TorchTrainerBase&) = delete;
  TorchTrainerBase& operator=(const TorchTrainerBase&) = delete;

  /// One epoch, or `num_steps`. Metrics of all ranks merged: train_loss, last_train_loss,
  /// num_samples, batch_count, epoch, and those of the operator's own.
  Result<tune::Metrics> train(const TrainOptions& options = {});
  /// val_loss, val_accuracy and so on. bad_request without validation data.
  Result<tune::Metrics> validate(const ValidateOptions& options = {});
  /// One step of every registered LR scheduler, with a metric for those that look at one.
  Result<void> update_scheduler(double metric = 0);

  /// A checkpoint's folder, written whole or not at all; replaces one that is there.
  Result<void> save(const std::filesystem::path& folder);
  Result<void> load(const std::filesystem::path& folder);
  /// The same into a checkpoint of yours, which must have nothing else under these names: module/,
  /// gradients/, optimizer/, scheduler/, scaler/, data/, progress/, trainer/ and rank/; and out of
  /// its file.
  Result<void> state_dict(CheckpointWriter& out);
  Result<void> load_state_dict(const CheckpointReader& in);

  /// Ends the ranks; the trainer is of no use afterwards.
  void shutdown();

  int num_workers() const;  ///< ranks as they are now; 0 before the first call

 protected:
  TorchTrainerBase(Cluster& cluster, TorchTrainerOptions options, internal::OperatorType type);
  TorchTrainerBase(Worker& worker, TorchTrainerOptions options, internal::OperatorType type);

  Result<std::vector<tune::Metrics>> call_function(const char* name);
  /// This process's own operator, set up as the only rank, with the ranks' newest state.
  Result<TrainingOperator*> local_operator();

 private:
  template <class Op, auto Step>
  friend class TrainerTrainable;
  Result<void> start();
  Result<tune::Metrics> validate_if_there_is_data(const ValidateOptions& options);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Trains an operator on `num_workers` ranks in step: each has a copy of the model and its part of
/// the data, and gradients are averaged by messages between actors.
///
///     sgd::TorchTrainer<MnistOperator> trainer(cluster, {.num_workers = 4, .config = {{"lr",
///     0.1}}}); for (int epoch = 0; epoch < 10; ++epoch) unwrap(trainer.train());
template <class Op>
requires std::is_base_of_v<TrainingOperator, Op>
class TorchTrainer final : public TorchTrainerBase {
 public:
  explicit TorchTrainer(Cluster& cluster, TorchTrainerOptions options = {})
      : TorchTrainerBase(cluster, std::move(options), internal::operator_type<Op>()) {}
  TorchTrainer(Worker& worker, TorchTrainerOptions options)
      : TorchTrainerBase(worker, std::move(options), internal::operator_type<Op>()) {}

  /// F(Op&), giving Metrics or nothing, on every rank; in rank order. F is a plain function.
  template <auto F>
  Result<std::vector<tune::Metrics>> apply_all_operators() {
    return call_function(internal::function_name<F, Op>());
  }
  /// F() in the same way.
  template <auto F>
  Result<std::vector<tune::Metrics>> apply_all_workers() {
    return call_function(internal::function_name<F, Op>());
  }

  /// An operator of this process, not one of the ranks, with their newest state on each call.
  Result<Op*> get_local_operator() {
    auto op = local_operator();
    if (!op) return op.error();
    return static_cast<Op*>(*op);
  }
  /// Its model, on the CPU. Valid as long as the trainer.
  Result<AnyModel> get_model(std::size_t index = 0) {
    auto op = local_operator();
    if (!op) return op.error();
    return fence(Errc::bad_request, [&] { return (*op)->model(index); });
  }

  /// For `tune::run`: a step is one epoch and one validation. The trial's resources follow from
  /// num_workers, num_cpus_per_worker and use_gpu; its config goes over `options.config`.
  /// Step: a function (TorchTrainer<Op>&, const TuneInfo&) giving Metrics, which takes the place of
  /// that.
  template <auto Step = nullptr>
  static tune::TrainableSpec as_trainable(TorchTrainerOptions options);
};

template <class Op, auto Step>
class TrainerTrainable final : public tune::Trainable {
 public:
  TrainerTrainable(Worker& worker, const std::string& options)
      : worker_(worker), options_(internal::decode_options(options)) {}

  void setup(const tune::Config& config) override {
    options_.config.merge(config);
    options_.seed = context().seed();
    trainer_ = std::make_unique<TorchTrainer<Op>>(worker_, options_);
    unwrap(trainer_->start());
  }

  tune::Metrics step() override {
    if constexpr (std::is_same_v<decltype(Step), std::nullptr_t>) {
      const auto train = unwrap(trainer_->train({.profile = true, .max_retries = 0}));
      return internal::join(
          train, unwrap(trainer_->validate_if_there_is_data({.profile = true, .max_retries = 0})));
    } else {
      return Step(*trainer_, TuneInfo{.iteration = context().iteration()});
    }
  }

  void save_checkpoint(CheckpointWriter& out) override { unwrap(trainer_->state_dict(out)); }
  void load_checkpoint(const CheckpointReader& in) override {
    unwrap(trainer_->load_state_dict(in));
  }
  void cleanup() override { trainer_->shutdown(); }

 private:
  Worker& worker_;
  TorchTrainerOptions options_;
  std::unique_ptr<TorchTrainer<Op>> trainer_;
};

namespace internal {

template <class Op, auto Step>
int serve_trainer(Worker& worker) {
  return tune::internal::serve_class(
      worker,
      [&worker](const std::string& options) {
        return std::make_unique<TrainerTrainable<Op, Step>>(worker, options);
      },
      true);
}

}  // namespace internal

template <class Op>
requires std::is_base_of_v<TrainingOperator, Op>
template <auto Step>
tune::TrainableSpec TorchTrainer<Op>::as_trainable(TorchTrainerOptions options) {
  using Key = TrainerTrainable<Op, Step>;
  (void)Registration<&internal::serve_trainer<Op, Step>, Key>::done;
  return {.entry = entry_name<Key>(),
          .name = readable_type_name(typeid(Op)),
          .config = options.config,
          .resources = internal::resources_of(options),
          .argument = internal::encode_options(options)};
}

}  // namespace troupe::sgd
