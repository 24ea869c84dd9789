#pragma once

#include "libactor/result.hpp"
#include "libactor/worker.hpp"
#include "tune/internal/messages.hpp"

#include <caf/scoped_actor.hpp>

#include <string>

namespace troupe::tune::internal {

/// A trial's end of the talk with its experiment: an actor that lives on the worker's main thread,
/// beside the user's code, and waits for each answer. When the experiment is gone the process ends
/// (libactor/internal/worker_main.cpp), so no wait here outlives it.
class TrialActor {
 public:
  explicit TrialActor(Worker& worker);

  std::uint64_t trial() const { return worker_.child(); }

  /// Who it is, is filled in.
  void ready(TrialReady ready);
  /// Blocks until the row is journalled and decided on.
  Result<TrialOrder> report(std::int64_t iteration, std::string row);
  /// Blocks until the checkpoint is in the journal.
  Result<void> saved(std::int64_t iteration, std::string name, std::string uuid);
  /// `setup` asked for a key or type that is not there.
  void config_error(const std::string& text);
  /// A sentence for the run's log: "config has keys that setup() never read: momentun".
  void note(const std::string& sentence);

 private:
  /// One request and its answer. A time-out is no error: the experiment may be waiting for a disk;
  /// the same is sent again, and the experiment knows a repetition by its iteration.
  template <class Answer, class Message>
  Result<Answer> ask(const Message& message);

  Worker& worker_;
  caf::actor experiment_;
  caf::scoped_actor self_;
};

}  // namespace troupe::tune::internal
