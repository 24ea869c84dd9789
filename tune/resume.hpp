#pragma once

namespace troupe::tune {

/// What becomes of an experiment of this name that is already there.
enum class Resume {
  no,            ///< an error when there is one: two runs never share a folder
  yes,           ///< go on; an error when there is none
  automatic,     ///< go on if there is something to go on with, else start: what batch systems need
  errored_only,  ///< only trials in ERROR run, from their checkpoints; all others stay as they are
  restart_errored,  ///< only trials in ERROR run, from the beginning; all others stay as they are
};

}  // namespace troupe::tune
