#include "tune/internal/interrupt.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace troupe::tune::internal {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal handler can reach nothing else than this.
std::atomic<int> g_caught{0};
std::array<int, 2> g_pipe = {-1, -1};
std::array<struct sigaction, kSignals.size()> g_before = {};

void put(char byte) { [[maybe_unused]] const auto written = ::write(g_pipe[1], &byte, 1); }

void on_signal(int number) {
  int none = 0;
  if (!g_caught.compare_exchange_strong(none, number)) {
    // The second: leave as the signal would have left, at once. Zygote and workers end with us.
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  put('s');
}

}  // namespace

Interrupt::Interrupt() {
  g_caught = 0;
  if (::pipe2(g_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &g_before[i]);
    if (g_before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_NODEFER;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &g_before[i], nullptr);
  for (int& end : g_pipe) {
    if (end >= 0) ::close(end);
    end = -1;
  }
}

Interrupt::Woken Interrupt::wait(std::chrono::milliseconds timeout) {
  struct pollfd watched = {.fd = g_pipe[0], .events = POLLIN, .revents = 0};
  if (::poll(&watched, 1, static_cast<int>(timeout.count())) <= 0) return Woken::timeout;
  char byte = 0;
  if (::read(g_pipe[0], &byte, 1) != 1) return Woken::timeout;
  return byte == 's' ? Woken::signal : Woken::done;
}

void Interrupt::wake() { put('d'); }

const char* Interrupt::signal_name() const {
  return g_caught == SIGHUP ? "SIGHUP" : g_caught == SIGTERM ? "SIGTERM" : "SIGINT";
}

}  // namespace troupe::tune::internal
