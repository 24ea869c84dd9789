#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <stdexcept>
#include <utility>

namespace troupe::test {

/// Runs `body` in a forked child and returns its exit status: 0 when the body returned true.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

/// A forked child in a process group of its own that runs `body` and then waits to be killed, which
/// the destructor does. When the constructor returns, the body has.
class WaitingChild {
 public:
  template <class Body>
  explicit WaitingChild(Body body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      body();
      if (write(ends[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ends[1]);
    char ready = 0;
    is_ready_ = read(ends[0], &ready, 1) == 1;
    close(ends[0]);
  }
  ~WaitingChild() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;

  pid_t pid() const { return pid_; }
  bool is_ready() const { return is_ready_; }

 private:
  pid_t pid_ = -1;
  bool is_ready_ = false;
};

/// A forked process that runs `body` and ends with the number it returns (99 when it throws). It is
/// killed and reaped with the object. Make it while the test has one thread.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    std::cout.flush();  // or the child would print it again
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      ::_exit(body());
    } catch (...) {
      ::_exit(99);
    }
  }
  ~Child() {
    kill();
    wait();
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

  pid_t pid() const { return pid_; }
  void kill(int signal = SIGKILL) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  /// The exit code, or minus the signal that ended it.
  int wait() {
    if (pid_ > 0) ::waitpid(std::exchange(pid_, 0), &status_, 0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

}  // namespace troupe::test
