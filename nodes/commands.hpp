#pragma once

#include "libactor/internal/machine.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>

namespace troupe::nodes {

/// How every command ends; nodes/README.md tells the same to users.
enum class ExitCode : int {
  done = 0,
  work_failed = 1,    ///< the user's
  usage = 2,          ///< or an ambiguous cluster
  cannot_reach = 3,   ///< the head
  refused = 4,        ///< token, certificate, version
  taken = 5,          ///< a port or a lock
  not_clean = 6,      ///< stopped, but something is left
  nothing_to_do = 7,  ///< stop, with nothing running
  timed_out = 124,
};

std::string version();

/// What `node doctor` tells beside the machine's resources.
struct Surroundings {
  std::int64_t open_files_limit = -1;    ///< of this process; -1: none
  std::int64_t shared_memory_bytes = 0;  ///< size of /dev/shm; 0: there is none
  std::int64_t shared_memory_free_bytes = 0;
  bool user_namespaces = false;  ///< an ordinary user may make one
};
Surroundings detect_surroundings(const std::filesystem::path& root = "/");

/// Prints what a node of this machine would offer, and where each limit comes from.
ExitCode doctor(const internal::Machine& machine, const Surroundings& surroundings, bool json,
                std::ostream& out);

}  // namespace troupe::nodes
