#pragma once

#include "libactor/cluster.hpp"
#include "libactor/result.hpp"

#include <optional>
#include <string>

namespace troupe {

struct InitOptions {
  std::string address =
      {};  ///< of a cluster to join; empty: TROUPE_ADDRESS, else a cluster of this machine
  std::string token_file = {};
  std::optional<double> cpus = {};  ///< pretend to have so many, instead of what is found
  std::optional<int> gpus = {};     ///< the same; devices that are not there are only counted
  bool strict = false;              ///< a thread before `init` is an error instead of a warning
};

/// Must come first in `main`. In a worker process it serves its entry and never returns; else it
/// returns the driver's handle. Removes the options that it used from argv: --address,
/// --token-file, --troupe-… . When it can't, prints one line and ends the process with an exit code
/// of nodes/README.md.
Cluster init(int& argc, char** argv);
Cluster init(int& argc, char** argv, InitOptions options);
Cluster init(InitOptions options);

/// The same with the error as a value.
Result<Cluster> try_init(int& argc, char** argv, InitOptions options = {});

}  // namespace troupe
