#include "libactor/internal/worker_limits.hpp"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <string>

namespace troupe::internal {
namespace {

template <class Function>
Function* find_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

void keep_freed_memory(bool ranks_are_threads) {
  if (is_set("GLIBC_TUNABLES")) return;
  // Some versions of glibc refuse more than 32 MiB.
  if (!is_set("MALLOC_MMAP_THRESHOLD_") && mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
  if (!is_set("MALLOC_TRIM_THRESHOLD_")) mallopt(M_TRIM_THRESHOLD, -1);
  // The arenas of other threads than the first still give back.
  if (ranks_are_threads && !is_set("MALLOC_ARENA_MAX")) mallopt(M_ARENA_MAX, 1);
}

}  // namespace

void apply_worker_limits(const WorkerLimits& limits) {
  keep_freed_memory(limits.ranks_are_threads);
  for (const char* variable : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    setenv(variable, std::to_string(limits.threads).c_str(), 0);
  set_compute_threads(limits.threads);
}

void set_compute_threads(int threads) {
  if (auto* set = find_function<void(int)>("omp_set_num_threads")) set(threads);
  // OpenBLAS follows OpenMP, except for the build (1) that has its own threads.
  auto* kind = find_function<int()>("openblas_get_parallel");
  auto* set = find_function<void(int)>("openblas_set_num_threads");
  if (kind != nullptr && set != nullptr && kind() == 1) set(threads);
}

}  // namespace troupe::internal
