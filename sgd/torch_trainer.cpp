#include "sgd/torch_trainer.hpp"

#include "libactor/clock.hpp"
#include "libactor/file.hpp"
#include "libactor/log.hpp"
#include "sgd/internal/progress_line.hpp"
#include "sgd/internal/snapshots.hpp"
#include "sgd/internal/trainer.hpp"
#include "tune/naming.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <system_error>

namespace troupe::sgd {

namespace fs = std::filesystem;
using internal::CallSpec;

namespace {

Error wrong(const std::string& sentence) {
  return make_error(Errc::bad_request, "TorchTrainer: " + sentence);
}

Result<void> check(const TorchTrainerOptions& o) {
  if (o.num_workers < 1)
    return wrong("num_workers is " + std::to_string(o.num_workers) + "; 1 trains without others");
  if (!(o.num_cpus_per_worker > 0))
    return wrong("num_cpus_per_worker is " + std::to_string(o.num_cpus_per_worker) +
                 "; a rank needs some");
  if (o.use_gpu && !(o.num_gpus_per_worker > 0))
    return wrong("num_gpus_per_worker is " + std::to_string(o.num_gpus_per_worker) +
                 "; leave use_gpu away to train on CPUs");
  if (o.min_workers < 0 || o.min_workers > o.num_workers)
    return wrong("min_workers is " + std::to_string(o.min_workers) +
                 "; it must lie between 0 and " + "num_workers, " + std::to_string(o.num_workers));
  if (o.ranks_per_process < 0)
    return wrong("ranks_per_process is negative; 0 puts all ranks of a machine into one process");
  if (o.global_batch_size < 0)
    return wrong("global_batch_size is negative; 0 follows from the operator's batch_size");
  if (o.global_batch_size > 0 && o.global_batch_size < o.num_workers)
    return wrong("global_batch_size is " + std::to_string(o.global_batch_size) +
                 ", less than one " + "sample for each of " + std::to_string(o.num_workers) +
                 " workers");
  if (o.timeout.count() <= 0) return wrong("timeout must be positive");
  return {};
}

internal::TrainerPlan plan_of(const TorchTrainerOptions& o, const internal::OperatorType& type) {
  const int threads = std::max(1, static_cast<int>(o.num_cpus_per_worker));
  internal::TrainerPlan plan{
      .group = {.num_workers = o.num_workers,
                .ranks_per_process = o.ranks_per_process,
                .min_workers = o.min_workers,
                .elastic = o.elastic},
      .ranks = {.threads = threads,
                .seed = o.seed,
                .use_gpu = o.use_gpu,
                .use_fp16 = o.use_fp16,
                .shard_data = o.add_dist_sampler,
                .scheduler_step = static_cast<std::uint8_t>(o.scheduler_step_freq),
                .global_batch = o.global_batch_size,
                .timeout_ms = o.timeout.count(),
                .config = o.config.to_json()},
      .name = type.name,
      .entry = type.entry,
      .make = type.make,
      .cpus_per_rank = o.num_cpus_per_worker,
      .gpus_per_rank = o.use_gpu ? o.num_gpus_per_worker : 0,
      .snapshots = o.snapshots,
  };
  return plan;
}

/// Every rank's metrics as one, or side by side.
tune::Metrics reduced(const std::vector<tune::Metrics>& ranks, bool reduce) {
  if (reduce) return internal::merge(ranks);
  tune::Metrics all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const auto& [key, value] : ranks[rank]) all.set(std::to_string(rank) + "/" + key, value);
  return all;
}

/// This process's own operator: the only rank of a group.
struct LocalOperator {
  LocalOperator(const TorchTrainerOptions& options, const internal::OperatorType& type)
      : op(type.make()) {
    internal::RankEnvironment environment{.config = options.config,
                                          .use_fp16 = options.use_fp16,
                                          .seed = options.seed,
                                          .global_batch = options.global_batch_size,
                                          .shard_data = options.add_dist_sampler,
                                          .scheduler_step = options.scheduler_step_freq,
                                          .generator = &generator};
    const auto in_use = generator.use();
    driver.emplace(*op, std::move(environment));
  }

  internal::RankGenerator generator{0, torch::kCPU};
  std::unique_ptr<TrainingOperator> op;
  std::optional<internal::OperatorDriver> driver;
};

}  // namespace

namespace internal {

std::string encode_options(const TorchTrainerOptions& o) {
  return tune::Config{{"num_workers", o.num_workers},
                      {"num_cpus_per_worker", o.num_cpus_per_worker},
                      {"use_gpu", o.use_gpu},
                      {"num_gpus_per_worker", o.num_gpus_per_worker},
                      {"use_fp16", o.use_fp16},
                      {"global_batch_size", o.global_batch_size},
                      {"scheduler_step_freq", static_cast<int>(o.scheduler_step_freq)},
                      {"add_dist_sampler", o.add_dist_sampler},
                      {"ranks_per_process", o.ranks_per_process},
                      {"timeout_ms", o.timeout.count()}}
      .to_json();
}

TorchTrainerOptions decode_options(const std::string& text) {
  const auto read = unwrap(tune::Config::from_json(text));
  return {.num_workers = read.get<int>("num_workers"),
          .num_cpus_per_worker = read.get<double>("num_cpus_per_worker"),
          .use_gpu = read.get<bool>("use_gpu"),
          .num_gpus_per_worker = read.get<double>("num_gpus_per_worker"),
          .use_fp16 = read.get<bool>("use_fp16"),
          .global_batch_size = read.get<std::int64_t>("global_batch_size"),
          .scheduler_step_freq = static_cast<SchedulerStep>(read.get<int>("scheduler_step_freq")),
          .add_dist_sampler = read.get<bool>("add_dist_sampler"),
          .ranks_per_process = read.get<int>("ranks_per_process"),
          .timeout = std::chrono::milliseconds(read.get<std::int64_t>("timeout_ms")),
          .snapshots = false};  // the trial's checkpoints take their place
}

Resources resources_of(const TorchTrainerOptions& o) {
  Resources all{.cpus = o.num_workers * o.num_cpus_per_worker};
  if (o.use_gpu) all.gpus = o.num_workers * o.num_gpus_per_worker;
  return all;
}

tune::Metrics join(const tune::Metrics& train, const tune::Metrics& validation) {
  const auto own = [](const std::string& key, const char* prefix) {
    return key.starts_with(prefix) || key.starts_with(std::string("last_") + prefix) ||
                   key == "epoch"
               ? key
               : prefix + key;
  };
  tune::Metrics all;
  for (const auto& [key, value] : train) all.set(own(key, "train_"), value);
  for (const auto& [key, value] : validation) all.set(own(key, "val_"), value);
  return all;
}

}  // namespace internal

struct TorchTrainerBase::Impl {
  TorchTrainerOptions options;
  internal::OperatorType type;
  Error error = {};  ///< of the options
  std::unique_ptr<internal::Trainer> trainer = {};
  std::unique_ptr<LocalOperator> local = {};
  std::shared_ptr<internal::ProgressLine> progress = {};

  Result<std::vector<tune::Metrics>> call(CallSpec spec, int retries) {
    if (error) return error;
    auto answer = trainer->call(std::move(spec), retries);
    if (progress) progress->end();
    return answer;
  }

  /// optional: without data there are no metrics and no error.
  Result<tune::Metrics> pass(CallSpec::Kind kind, const TrainOptions& o, bool optional = false) {
    if (o.num_steps < 0)
      return wrong(kind == CallSpec::Kind::train
                       ? "num_steps is negative; 0 trains to the epoch's end"
                       : "num_steps is negative; 0 validates on all data");
    auto ranks = call({.kind = kind,
                       .num_steps = o.num_steps,
                       .profile = o.profile,
                       .info = o.info.empty() ? "" : o.info.to_json(),
                       .optional = optional},
                      o.max_retries);
    if (!ranks) return ranks.error();
    return reduced(*ranks, o.reduce_results);
  }
};

TorchTrainerBase::TorchTrainerBase(Cluster& cluster, TorchTrainerOptions options,
                                   internal::OperatorType type)
    : impl_(std::make_unique<Impl>(Impl{std::move(options), std::move(type)})) {
  const auto& o = impl_->options;
  auto ok = check(o);
  if (ok) {
    const int each =
        o.ranks_per_process > 0 ? std::min(o.ranks_per_process, o.num_workers) : o.num_workers;
    auto one = o;
    one.num_workers = each;
    ok = cluster.could_grant(internal::resources_of(one));
  }
  auto folder = tune::results_folder(o.local_dir);
  if (ok && !folder) ok = folder.error();
  if (!ok) {
    impl_->error = ok.error();
    return;
  }
  auto plan = plan_of(o, impl_->type);
  plan.directory = *folder / (impl_->type.name + "_" + tune::date_for_name(SystemClock().wall()));
  impl_->progress = std::make_shared<internal::ProgressLine>(o.verbose > 0);
  plan.output = [progress = impl_->progress](const std::string& line) { progress->say(line); };
  if (o.verbose > 0) plan.say = plan.output;
  plan.on_status = [progress = impl_->progress](const auto& ranks) { progress->show(ranks); };
  impl_->trainer = std::make_unique<internal::Trainer>(cluster, std::move(plan));
}

TorchTrainerBase::TorchTrainerBase(Worker& worker, TorchTrainerOptions options,
                                   internal::OperatorType type)
    : impl_(std::make_unique<Impl>(Impl{std::move(options), std::move(type)})) {
  auto ok = check(impl_->options);
  if (ok && impl_->options.ranks_per_process > 0)
    ok = wrong(
        "under Tune all ranks of a trial are threads of its process; leave "
        "ranks_per_process away");
  if (!ok) {
    impl_->error = ok.error();
    return;
  }
  auto plan = plan_of(impl_->options, impl_->type);
  plan.say = [context = worker.context()](const std::string& line) { context.log(line); };
  plan.on_status = [context = worker.context()](const auto& ranks) {
    if (!ranks.empty()) context.progress(ranks[0].batch, ranks[0].batch_count, "batch");
  };
  impl_->trainer = std::make_unique<internal::Trainer>(worker, std::move(plan));
}

TorchTrainerBase::~TorchTrainerBase() = default;

Result<void> TorchTrainerBase::start() {
  auto formed = impl_->call({.kind = CallSpec::Kind::form}, 0);
  if (!formed) return formed.error();
  return {};
}

Result<tune::Metrics> TorchTrainerBase::train(const TrainOptions& options) {
  return impl_->pass(CallSpec::Kind::train, options);
}

Result<tune::Metrics> TorchTrainerBase::validate(const ValidateOptions& options) {
  return impl_->pass(CallSpec::Kind::validate, options);
}

Result<tune::Metrics> TorchTrainerBase::validate_if_there_is_data(const ValidateOptions& options) {
  return impl_->pass(CallSpec::Kind::validate, options, true);
}

Result<void> TorchTrainerBase::update_scheduler(double metric) {
  auto done = impl_->call({.kind = CallSpec::Kind::update_scheduler, .metric = metric}, 3);
  if (!done) return done.error();
  return {};
}

Result<std::vector<tune::Metrics>> TorchTrainerBase::call_function(const char* name) {
  return impl_->call({.kind = CallSpec::Kind::call_operators, .function = name}, 3);
}

Result<void> TorchTrainerBase::state_dict(CheckpointWriter& out) {
  if (impl_->error) return impl_->error;
  auto parts = impl_->trainer->state();
  if (!parts) return parts.error();
  for (const auto& part : *parts)
    for (const auto& entry : part.entries()) {
      // Which call it was the end of is this trainer's own business.
      if (entry.name == internal::kProcessesBlob || entry.name == internal::kCallBlob ||
          entry.name.ends_with(std::string("/") + std::string(internal::kResultBlob)))
        continue;
      if (auto copied = out.copy(part, entry.name); !copied) return copied;
    }
  out.integer(internal::kProcessesBlob, 1);
  return {};
}

Result<void> TorchTrainerBase::load_state_dict(const CheckpointReader& in) {
  return load(in.folder());
}

Result<void> TorchTrainerBase::save(const fs::path& folder) {
  std::error_code error;
  const bool there = fs::exists(folder, error);
  if (there && !CheckpointReader::open(folder))
    return wrong("save: " + folder.string() + " is there and no checkpoint; name another folder");
  auto fresh = folder;
  if (there) fresh += ".new";
  if (there)
    if (auto gone = remove_tree(fresh); !gone) return gone;
  auto out = CheckpointWriter::begin(fresh, {.config_json = impl_->options.config.to_json()});
  if (!out) return out.error();
  if (auto written = state_dict(**out); !written) return written;
  if (auto done = (*out)->commit(); !done) return done.error();
  if (!there) return {};
  // Exchanged in one step: whoever looks sees the old one or the new one.
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0)
    return errno_error("replace checkpoint", folder);
  return remove_tree(fresh);
}

Result<void> TorchTrainerBase::load(const fs::path& folder) {
  if (impl_->error) return impl_->error;
  std::error_code error;
  const auto path = fs::absolute(folder, error);
  return impl_->trainer->set_state(path.string());
}

Result<TrainingOperator*> TorchTrainerBase::local_operator() {
  if (impl_->error) return impl_->error;
  auto parts = impl_->trainer->state();
  if (!parts) return parts.error();
  auto loaded = fence(Errc::user_code, [&] {
    if (!impl_->local) impl_->local = std::make_unique<LocalOperator>(impl_->options, impl_->type);
    impl_->local->driver->load_shared(parts->front());
    impl_->local->driver->load_own(parts->front().below(internal::rank_part(0)));
  });
  if (!loaded) return loaded.error();
  return impl_->local->op.get();
}

void TorchTrainerBase::shutdown() {
  if (impl_->trainer) impl_->trainer->shut_down();
}

int TorchTrainerBase::num_workers() const {
  return impl_->trainer ? impl_->trainer->world_size() : 0;
}

}  // namespace troupe::sgd
