#include "libactor/output.hpp"

#include "libactor/log.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace troupe {
namespace {

/// At the end of the process, while `stdout` is still there.
void check_output(int code, void*) {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  const std::string why = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "troupe: what this program printed could not all be written%s\n",
               why.c_str());
  ::_exit(code == 0 ? 1 : code);
}

}  // namespace

void print(std::string_view text) {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  if (failed_before || std::ferror(stdout) == 0) return;
  log_warn(std::string("standard output can't be written (") + std::strerror(errno) +
           "); this program goes on without");
}

void guard_output() {
  // The wrong direction: what goes there fails, as it would if it were closed.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  static const int registered = ::on_exit(check_output, nullptr);
  static_cast<void>(registered);
}

}  // namespace troupe
