#include "libactor/internal/zygote.hpp"

#include "libactor/assert.hpp"
#include "libactor/id.hpp"
#include "libactor/internal/zygote_protocol.hpp"
#include "libactor/limits.hpp"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::internal {
namespace {

constexpr int kZygoteSocket = 3;  // the number of the socket in the zygote

/// Kills all that carries this zygote's name, until a look at the process table finds none: a
/// process may be forked during the look.
void kill_everything_of(const std::string& name) {
  const auto deadline = std::chrono::steady_clock::now() + limits::kShutdown;
  while (kill_by_environment(kLeaseVariable, name + ".") > 0 &&
         std::chrono::steady_clock::now() < deadline)
    ::poll(nullptr, 0, 1);  // the killed ones take a moment to go
}

}  // namespace

struct Zygote::Impl {
  ZygoteOptions options;
  std::string name = random_id(16);
  Process process;
  Fd socket;
  Fd wake_up;  // an eventfd: there is something in the outbox, or we stop

  std::mutex mutex;  // of what follows
  Outbox outbox;
  bool stopping = false;

  // Of the reader thread only:
  bool ready = false;
  std::string loading;  // the preload function that runs

  std::thread reader;

  void post(const ZygoteOrder& order, std::vector<Fd> fds);
  bool flush_and_want_more();
  bool is_stopping();
  void read_until_end();
  Result<void> read_frames();
  void handle(ZygoteNote note);
  void report_lost(const std::string& reason);
  std::string reason_of_end(const Exit& exit) const;
};

Result<std::unique_ptr<Zygote>> Zygote::start(ZygoteOptions options) {
  TROUPE_ASSERT(options.on_event);
  auto impl = std::make_unique<Impl>();
  auto sockets = socket_pair(SOCK_SEQPACKET);
  if (!sockets) return with_context(sockets.error(), "start the zygote");
  impl->socket = std::move(sockets->first);
  impl->wake_up = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!impl->wake_up) return system_error("start the zygote: eventfd");

  SpawnOptions spawn_options;
  spawn_options.executable = options.executable;
  spawn_options.arguments = {options.name};
  spawn_options.environment = options.environment;
  spawn_options.environment[kRoleVariable] = "zygote";
  spawn_options.environment[kFdVariable] = std::to_string(kZygoteSocket);
  spawn_options.environment[kLeaseVariable] = lease_text(impl->name, 0);
  // Else each worker binds the same symbols again, 0.3 to 0.8 ms.
  spawn_options.environment["LD_BIND_NOW"] = "1";
  spawn_options.descriptors = {{sockets->second.value(), kZygoteSocket}};
  auto pid = spawn(spawn_options);
  if (!pid) return with_context(pid.error(), "start the zygote");
  impl->process = Process(*pid);
  impl->options = std::move(options);
  impl->post(SettingsOrder{.strict = impl->options.strict, .parameters = parameters()}, {});
  const auto reads = fence(Errc::io, [raw = impl.get()] {
    raw->reader = std::thread([raw] { raw->read_until_end(); });
  });
  if (!reads) {
    impl->process.signal(SIGKILL);
    static_cast<void>(impl->process.wait(limits::kShutdown));
    return with_context(reads.error(), "start the zygote: no thread, see ulimit -u and ulimit -v");
  }
  return std::unique_ptr<Zygote>(new Zygote(std::move(impl)));
}

Zygote::Zygote(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Zygote::~Zygote() {
  TROUPE_ASSERT(std::this_thread::get_id() != impl_->reader.get_id());
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  // Not close: a process that the user has forked may hold this end too.
  ::shutdown(impl_->socket.value(), SHUT_RDWR);
  ::eventfd_write(impl_->wake_up.value(), 1);
  impl_->reader.join();
  if (const auto exit = impl_->process.wait(limits::kShutdown); exit == Exit{}) return;
  impl_->process.signal(SIGKILL);
  kill_everything_of(impl_->name);
  static_cast<void>(impl_->process.wait(limits::kShutdown));
}

Result<void> Zygote::start_worker(const WorkerStart& start, Fd control, Fd line) {
  TROUPE_ASSERT(start.lease != 0);
  const StartOrder order{start};
  if (const auto size = encode(order).size(); size > limits::kFrameBytes)
    return make_error(Errc::bad_request, "worker " + start.id +
                                             ": its environment and resources take " +
                                             std::to_string(size) + " bytes; at most " +
                                             std::to_string(limits::kFrameBytes) + " can be sent");
  std::vector<Fd> fds;
  fds.push_back(std::move(control));
  fds.push_back(std::move(line));
  impl_->post(order, std::move(fds));
  return {};
}

void Zygote::signal(std::uint64_t lease, int number, bool group) {
  impl_->post(SignalOrder{lease, number, group}, {});
}

Result<void> Zygote::set_parameters(const Parameters& parameters) {
  const SettingsOrder order{.strict = impl_->options.strict, .parameters = parameters};
  if (const auto size = encode(order).size(); size > limits::kFrameBytes)
    return make_error(Errc::bad_request, "the parameters take " + std::to_string(size) +
                                             " bytes; put the data into a file and give its path");
  impl_->post(order, {});
  return {};
}

pid_t Zygote::pid() const { return impl_->process.pid(); }

void Zygote::Impl::post(const ZygoteOrder& order, std::vector<Fd> fds) {
  {
    std::lock_guard lock(mutex);
    outbox.push(encode(order), std::move(fds));
  }
  if (flush_and_want_more()) ::eventfd_write(wake_up.value(), 1);
}

bool Zygote::Impl::flush_and_want_more() {
  std::lock_guard lock(mutex);
  const auto sent = outbox.flush(socket.value());
  // Closed or broken: the reader thread finds out by itself.
  if (!sent || *sent == Transfer::closed) outbox.clear();
  return !outbox.empty();
}

bool Zygote::Impl::is_stopping() {
  std::lock_guard lock(mutex);
  return stopping;
}

void Zygote::Impl::read_until_end() {
  const auto ready_deadline = std::chrono::steady_clock::now() + limits::kZygoteStart;
  for (;;) {
    const bool want_write = flush_and_want_more();
    pollfd entries[] = {
        {socket.value(), static_cast<short>(POLLIN | (want_write ? POLLOUT : 0)), 0},
        {wake_up.value(), POLLIN, 0},
    };
    int timeout_ms = -1;
    if (!ready) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(
          ready_deadline - std::chrono::steady_clock::now());
      if (rest.count() <= 0)
        return report_lost("it has not called troupe::init within " +
                           std::to_string(limits::kZygoteStart.count() / 1000) +
                           " s; init must come first in main");
      timeout_ms = static_cast<int>(rest.count());
    }
    if (::poll(entries, 2, timeout_ms) < 0 && errno != EINTR) return report_lost("poll failed");
    if (is_stopping()) return;
    eventfd_t ignored;
    if (entries[1].revents != 0) ::eventfd_read(wake_up.value(), &ignored);
    if (entries[0].revents == 0) continue;
    if (auto read = read_frames(); !read)
      return is_stopping() ? void() : report_lost(text_of(read.error()));
  }
}

/// Error: the end; without a text when the zygote has closed the socket.
Result<void> Zygote::Impl::read_frames() {
  for (;;) {
    Frame frame;
    const auto received = receive_frame(socket.value(), frame);
    if (!received) return received.error();
    if (*received == Transfer::would_block) return {};
    if (*received == Transfer::closed) return make_error(Errc::peer_lost, "");
    auto note = decode_note(frame.bytes);
    if (!note) return make_error(Errc::corrupt, "it has sent a frame that cannot be read");
    handle(std::move(*note));
  }
}

void Zygote::Impl::handle(ZygoteNote note) {
  std::visit(
      [&]<class Note>(Note& one) {
        if constexpr (std::is_same_v<Note, zygote_event::Ready>) ready = true;
        if constexpr (std::is_same_v<Note, LoadingNote>)
          loading = std::move(one.name);
        else
          options.on_event(std::move(one));
      },
      note);
}

/// reason: why it was given up; empty when it ended by itself.
void Zygote::Impl::report_lost(const std::string& reason) {
  if (!reason.empty()) process.signal(SIGKILL);
  auto exit = process.wait(limits::kShutdown);
  if (!exit) process.signal(SIGKILL);
  kill_everything_of(name);
  if (!exit) exit = process.wait(limits::kShutdown);
  if (is_stopping()) return;
  options.on_event(zygote_event::Lost{
      "the zygote is lost: " + (reason.empty() ? reason_of_end(exit.value_or(Exit{})) : reason)});
}

std::string Zygote::Impl::reason_of_end(const Exit& exit) const {
  std::string text = exit.text();
  if (!ready) text += " before it called troupe::init; init must come first in main";
  if (!loading.empty()) text += " while preloaded<&" + loading + ">() was loading";
  return text;
}

}  // namespace troupe::internal
