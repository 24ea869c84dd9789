#pragma once

#include "libactor/cluster.hpp"
#include "libactor/worker.hpp"
#include "sgd/internal/rank.hpp"
#include "sgd/internal/worker_group.hpp"
#include "tune/metrics.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::sgd::internal {

struct TrainerPlan {
  GroupSpec group = {};
  RankPlan ranks = {};     ///< what all processes are told alike
  std::string name = {};   ///< of the operator
  std::string entry = {};  ///< of a process of ranks
  MakeOperator make = nullptr;
  double cpus_per_rank = 1;
  double gpus_per_rank = 0;
  bool snapshots = true;
  std::filesystem::path directory = {};  ///< for the processes' logs; made when first needed
  std::function<void(const std::string&)> output = {};  ///< what ranks print; any thread
  std::function<void(const std::string&)> say = {};     ///< sentences for people; any thread
  std::function<void(const std::vector<RankStatus>&)> on_status = {};  ///< four times a second
};

/// A trainer behind `TorchTrainer`: starts the group when it is first called, and keeps its state.
/// Calls block; one at a time, from any thread.
class Trainer {
 public:
  /// Ranks in processes of their own, anywhere in the cluster.
  Trainer(Cluster& cluster, TrainerPlan plan);
  /// Ranks in this process: a trial's.
  Trainer(Worker& worker, TrainerPlan plan);
  ~Trainer();

  /// The metrics of each rank. Errors: user_code, with the rank; peer_lost after `retries`;
  /// out_of_resources; cancelled after `shut_down`.
  Result<std::vector<tune::Metrics>> call(CallSpec call, int retries);

  /// The state after the last call: what ranks share and each rank's own part. Takes a snapshot
  /// when there is none. Valid until the next call.
  Result<std::vector<CheckpointReader>> state();
  /// The ranks go on from there: a checkpoint's folder, which is not needed afterwards. After an
  /// error they go on from where they were.
  Result<void> set_state(std::string path);

  int world_size() const;  ///< as it is now; 0: not formed
  void shut_down();        ///< also while a call runs, which then ends with cancelled

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sgd::internal
