#pragma once

#include <string>
#include <vector>

/// What must hold in a process that is about to fork: one thread.
namespace troupe::internal {

/// The names of the threads that would be missing in a forked child. OpenBLAS's are stopped first:
/// they come back when they are needed.
std::vector<std::string> threads_before_fork();

/// Which threads there are, and the way out.
std::string threads_text(const std::vector<std::string>& threads);

/// How many threads OpenMP takes, in whatever library the program has it; nothing without one.
void set_openmp_threads(int count);

}  // namespace troupe::internal
