#include "libactor/internal/worker_limits.hpp"

#include "tests/support/child.hpp"
#include "tests/support/skip.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <malloc.h>

#include <cstdlib>
#include <string>

using namespace troupe::internal;
using troupe::test::in_child;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kForeignMalloc = true;
#else
constexpr bool kForeignMalloc = false;
#endif

bool is(const char* variable, const char* value) {
  const char* found = std::getenv(variable);
  return found != nullptr && std::string(found) == value;
}

/// Whether a large block comes by mmap of its own, and so goes back to the kernel when freed.
/// Larger than the 32 MiB to which glibc raises its threshold by itself, and the 64 MiB that it
/// keeps then.
bool large_block_is_mapped() {
  const auto before = mallinfo2().hblkhd;
  void* volatile block = std::malloc(200 << 20);
  const bool mapped = mallinfo2().hblkhd > before;
  std::free(block);
  return mapped;
}

}  // namespace

TEST_CASE(
    "worker limits: the environment tells grandchildren the threads, and the user's word stands") {
  CHECK(in_child([] {
          unsetenv("OPENBLAS_NUM_THREADS");
          unsetenv("MKL_NUM_THREADS");
          setenv("OMP_NUM_THREADS", "7", 1);
          apply_worker_limits({.threads = 3});
          return is("OMP_NUM_THREADS", "7") && is("OPENBLAS_NUM_THREADS", "3") &&
                 is("MKL_NUM_THREADS", "3");
        }) == 0);
}

TEST_CASE(
    "worker limits: large blocks stay with the process, unless the user has set it otherwise") {
  if (kForeignMalloc) return skip("the sanitizers bring their own malloc");
  unsetenv("GLIBC_TUNABLES");
  unsetenv("MALLOC_MMAP_THRESHOLD_");
  CHECK(in_child([] { return large_block_is_mapped(); }) == 0);
  CHECK(in_child([] {
          apply_worker_limits({});
          return !large_block_is_mapped();
        }) == 0);
  CHECK(in_child([] {
          setenv("MALLOC_MMAP_THRESHOLD_", "100000", 1);
          apply_worker_limits({});
          return large_block_is_mapped();
        }) == 0);
}

TEST_CASE("worker limits: OpenMP gets its threads where the program has it") {
  constexpr const char* kLibrary = "libgomp.so.1";
  if (in_child([] { return dlopen(kLibrary, RTLD_NOW) != nullptr; }) != 0)
    return skip("no OpenMP library");
  CHECK(in_child([] {
          void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
          auto* count = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
          apply_worker_limits({.threads = 5});
          return count() == 5;
        }) == 0);
}
