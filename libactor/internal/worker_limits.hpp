#pragma once

namespace troupe::internal {

struct WorkerLimits {
  int threads = 1;                 ///< of compute: `thread_count` of the granted CPUs
  bool ranks_are_threads = false;  ///< several threads of this process train at once
};

/// For a worker that was just forked and still has one thread.
///
/// Memory: freed blocks stay with the process instead of going back to the kernel and being faulted
/// in again at each step (a convolution step took 36 ms instead of 50 to 63). Threads: of OpenMP in
/// this thread, and OMP_, MKL_ and OPENBLAS_NUM_THREADS for the programs that user code starts.
/// What the user has set in the environment stays.
void apply_worker_limits(const WorkerLimits& limits);

/// OpenMP and a BLAS with threads of its own, where the program has them. OpenMP counts by thread:
/// call it in each thread that computes.
void set_compute_threads(int threads);

}  // namespace troupe::internal
