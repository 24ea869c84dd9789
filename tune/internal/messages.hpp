#pragma once

#include "libactor/actor.hpp"
#include "tune/scheduler.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Every message between experiment, scheduler and trials.
namespace troupe::tune::internal {

/// What a trial's process is given at its start (`ChildSpec::argument`, encoded by `wire`).
struct TrialArgument {
  std::string config = {};  ///< encoded Config
  std::string trial_id = {};
  std::string experiment_tag = {};
  std::string experiment_id = {};  ///< hex, kept over restarts
  std::int64_t max_iteration =
      0;  ///< go on from the newest valid checkpoint up to this; 0: from the beginning
  std::int64_t checkpoint_freq = -1;  ///< as `CheckpointFreq::steps`
  bool checkpoint_at_end = false;
  std::string trainable = {};  ///< `TrainableSpec::argument`
};

/// Trial to experiment after `setup` and `load_checkpoint`.
struct TrialReady {
  std::uint64_t trial = 0;  ///< index
  std::uint64_t incarnation = 0;
  std::int64_t iteration = 0;   ///< of the checkpoint that it goes on from; 0: from the beginning
  std::string checkpoint = {};  ///< that one's folder in the trial's
  std::string uuid = {};        ///< and its identity
  bool set_up = true;           ///< false: a function, whose first report proves it
};

/// Trial to experiment: one row. The answer is a TrialOrder.
struct TrialReport {
  std::uint64_t trial = 0;
  std::uint64_t incarnation = 0;
  std::int64_t iteration = 0;  ///< reports since the trial's beginning, over all incarnations
  std::string row = {};        ///< encoded Metrics, automatic keys and all
};

/// Experiment to trial: what becomes of it after this row.
struct TrialOrder {
  Decision decision = Decision::proceed;
  bool save =
      false;  ///< the experiment wants a checkpoint now, whatever the trial's own schedule says
};

/// Trial to experiment: a checkpoint is published. Answered by its iteration when it is in the
/// journal.
struct TrialSaved {
  std::uint64_t trial = 0;
  std::uint64_t incarnation = 0;
  std::int64_t iteration = 0;
  std::string name = {};  ///< of the folder in the trial's
  std::string uuid = {};
};

/// Experiment to scheduler: events in order, as many as there are; the answer has a
/// SchedulerVerdict for each. When many trials report at once they go together: waking a thread
/// costs more than deciding.
struct SchedulerEvent {
  enum class Kind : std::uint8_t { add, result, complete, remove };
  Kind kind = Kind::add;
  std::string trial_id = {};
  std::string config = {};  ///< encoded; for `add` only
  std::string row = {};     ///< encoded; for `result` and `complete`
};

struct SchedulerVerdict {
  Decision decision = Decision::proceed;
  std::vector<std::string> stop = {};
  std::vector<std::string> resume = {};
  std::vector<std::string> checkpoint = {};
  std::string why = {};
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrialReady& x) {
  return f(caf::meta::type_name("troupe::TrialReady"), x.trial, x.incarnation, x.iteration,
           x.checkpoint, x.uuid, x.set_up);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrialReport& x) {
  return f(caf::meta::type_name("troupe::TrialReport"), x.trial, x.incarnation, x.iteration, x.row);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrialOrder& x) {
  return f(caf::meta::type_name("troupe::TrialOrder"), x.decision, x.save);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrialSaved& x) {
  return f(caf::meta::type_name("troupe::TrialSaved"), x.trial, x.incarnation, x.iteration, x.name,
           x.uuid);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SchedulerEvent& x) {
  return f(caf::meta::type_name("troupe::SchedulerEvent"), x.kind, x.trial_id, x.config, x.row);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SchedulerVerdict& x) {
  return f(caf::meta::type_name("troupe::SchedulerVerdict"), x.decision, x.stop, x.resume,
           x.checkpoint, x.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TrialArgument& x) {
  return f(caf::meta::type_name("troupe::TrialArgument"), x.config, x.trial_id, x.experiment_tag,
           x.experiment_id, x.max_iteration, x.checkpoint_freq, x.checkpoint_at_end, x.trainable);
}

std::string encode(TrialArgument argument);
Result<TrialArgument> decode_argument(const std::string& bytes);

/// True; calling it keeps the object file that adds these types to every actor system.
bool message_types_added();

}  // namespace troupe::tune::internal

CAF_BEGIN_TYPE_ID_BLOCK(troupe_tune, ::troupe::kTuneTypeIds)
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::Decision))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::TrialReady))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::TrialReport))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::TrialOrder))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::TrialSaved))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::SchedulerEvent))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::SchedulerVerdict))
CAF_ADD_TYPE_ID(troupe_tune, (std::vector<troupe::tune::internal::SchedulerEvent>))
CAF_ADD_TYPE_ID(troupe_tune, (std::vector<troupe::tune::internal::SchedulerVerdict>))
CAF_ADD_TYPE_ID(troupe_tune, (troupe::tune::internal::TrialArgument))
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, begin_atom, "begin")          // run -> experiment
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, status_atom, "status")        // run -> experiment
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, interrupt_atom, "interrupt")  // run -> experiment
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, tick_atom, "tick")  // experiment -> itself
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, config_error_atom,
             "configerr")                                             // trial -> experiment: text
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, note_atom, "note")  // trial -> experiment: text
CAF_ADD_ATOM(troupe_tune, troupe::tune::internal, experiment_atom,
             "experiment")  // the running experiment in the actor system's registry
CAF_END_TYPE_ID_BLOCK(troupe_tune)
