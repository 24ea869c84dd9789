#pragma once

#include "libactor/resources.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// What running user code knows of itself: one object a worker process.
///
/// All members may be called from any thread of the worker.
class Context {
 public:
  struct State;  // written by the worker's own threads

  explicit Context(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::string& id() const;                   ///< of the trial: "a1b2c_00003"
  const std::string& name() const;                 ///< of the trial: "MnistTrainable_a1b2c_00003"
  const std::filesystem::path& directory() const;  ///< of the trial; the worker's current folder
  const Resources& resources() const;              ///< what was granted
  int threads() const;             ///< max(1, floor(granted cpus)); already set for OpenMP
  int device_index() const;        ///< first granted GPU as this process counts them; -1: none
  std::int64_t iteration() const;  ///< steps that are done: 0 in the first step
  std::uint64_t seed() const;      ///< of this trial: from the run's seed and the trial's number

  void log(std::string_view sentence)
      const;  ///< one line in the worker's log and, by log_to_driver, the driver's
  void progress(std::int64_t done, std::int64_t total,
                std::string_view unit) const;  ///< shown by status; cheap
  bool cancelled() const;  ///< somebody asked for the end: return from step() soon

  /// A value that the driver gave by `Cluster::set_parameter`; empty when there is none.
  std::string parameter(std::string_view name) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace troupe
