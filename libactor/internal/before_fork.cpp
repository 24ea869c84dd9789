#include "libactor/internal/before_fork.hpp"

#include "libactor/internal/process.hpp"

#include <dlfcn.h>
#include <poll.h>

namespace troupe::internal {
namespace {

template <class Function>
Function* find_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void set_openmp_threads(int count) {
  if (auto* set = find_function<void(int)>("omp_set_num_threads")) set(count);
}

std::vector<std::string> threads_before_fork() {
  auto names = other_threads();
  if (names.empty()) return names;
  if (auto* stop = find_function<int()>("blas_thread_shutdown_")) stop();
  // A thread that has just been joined is listed for a moment longer.
  for (int i = 0; i < 50 && !(names = other_threads()).empty(); ++i) ::poll(nullptr, 0, 1);
  return names;
}

std::string threads_text(const std::vector<std::string>& threads) {
  std::string text =
      std::to_string(threads.size()) + " other thread" + (threads.size() == 1 ? "" : "s") + " (";
  for (std::size_t i = 0; i < threads.size() && i < 8; ++i) text += (i ? ", " : "") + threads[i];
  return text + (threads.size() > 8 ? ", …" : "") +
         ") run before workers are forked: start threads after troupe::init, and none in preloaded "
         "functions; link OpenBLAS's OpenMP build instead of its pthread build";
}

}  // namespace troupe::internal
