#include "libactor/log.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

using namespace troupe;

namespace {

/// What `body` writes to standard error in a forked child.
template <class Body>
std::string stderr_of(Body body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  return text;
}

}  // namespace

TEST_CASE(
    "log: a line has level, role and sentence, and braces or percent signs stay as they are") {
  unsetenv("TROUPE_LOG");
  const std::string text = stderr_of([] {
    start_log("worker a%vb");
    log_info("not shown");
    log_warn("a {} %v sentence");
  });
  CHECK(text.find("warning worker a%vb[") != std::string::npos);
  CHECK(text.find("] a {} %v sentence\n") != std::string::npos);
  CHECK(text.find("not shown") == std::string::npos);
}

TEST_CASE("log: TROUPE_LOG decides over the fallback, and a word that is no level is told") {
  CHECK(stderr_of([] {
          setenv("TROUPE_LOG", "debug", 1);
          start_log("driver", LogLevel::error);
          log_debug("seen");
        }).find("seen") != std::string::npos);
  CHECK(stderr_of([] {
          setenv("TROUPE_LOG", "off", 1);
          start_log("driver");
          log_error("seen");
        }).empty());
  CHECK(stderr_of([] {
          setenv("TROUPE_LOG", "loud", 1);
          start_log("driver");
        }).find("\"loud\"") != std::string::npos);
}
