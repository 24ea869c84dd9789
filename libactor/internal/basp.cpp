#include "libactor/internal/basp.hpp"

#include "libactor/internal/socket.hpp"

#include <caf/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/interfaces.hpp>
#include <caf/io/network/scribe_impl.hpp>
#include <caf/io/network/stream_impl.hpp>

#include <set>
#include <string>
#include <vector>

#include <fcntl.h>

namespace troupe::internal {
namespace {

namespace net = caf::io::network;

/// CAF keeps published actors by port; ours have none, and are looked up while they are published.
constexpr std::uint16_t kNoPort = 0;

/// How CAF's streams read and write over an established session.
class TlsPolicy {
 public:
  explicit TlsPolicy(Session session) : session_(std::move(session)) {}

  net::rw_state read_some(std::size_t& moved, net::native_socket, void* data, std::size_t size) {
    moved = 0;
    if (size == 0) return net::rw_state::indeterminate;
    return state(internal::read_some(session_.get(), data, size, moved));
  }
  net::rw_state write_some(std::size_t& moved, net::native_socket, const void* data,
                           std::size_t size) {
    moved = 0;
    if (size == 0) return net::rw_state::indeterminate;
    return state(internal::write_some(session_.get(), data, size, moved));
  }
  /// The socket does not tell of bytes that the session has read from it already.
  bool must_read_more(net::native_socket, std::size_t threshold) {
    return pending_bytes(session_.get()) >= threshold;
  }

 private:
  /// Nothing moved is a success too: CAF waits for the socket again.
  static net::rw_state state(Step step) {
    return step == Step::failed ? net::rw_state::failure : net::rw_state::success;
  }

  Session session_;
};

class TlsScribe final : public caf::io::scribe {
 public:
  TlsScribe(net::default_multiplexer& multiplexer, Fd fd, Session session)
      : scribe(net::conn_hdl_from_socket(fd.value())),
        stream_(multiplexer, fd.release(), std::move(session)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!launched_) stream_.start(this);
    launched_ = true;
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void flush() override { stream_.flush(this); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  std::string addr() const override {
    const auto address = net::remote_addr_of_fd(stream_.fd());
    return address ? *address : std::string{};
  }
  std::uint16_t port() const override {
    const auto port = net::remote_port_of_fd(stream_.fd());
    return port ? *port : std::uint16_t{0};
  }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  bool launched_ = false;
  net::stream_impl<TlsPolicy> stream_;
};

caf::actor basp(System& system) {
  return system.actors().middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

Result<caf::io::scribe_ptr> make_scribe(System& system, Socket socket) {
  const int flags = ::fcntl(socket.fd.value(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.fd.value(), F_SETFL, flags | O_NONBLOCK) < 0)
    return system_error("make a socket non-blocking");
  auto& multiplexer =
      dynamic_cast<net::default_multiplexer&>(system.actors().middleman().backend());
  if (socket.session)
    return caf::io::scribe_ptr(
        caf::make_counted<TlsScribe>(multiplexer, std::move(socket.fd), std::move(socket.session)));
  return caf::io::scribe_ptr(caf::make_counted<net::scribe_impl>(multiplexer, socket.fd.release()));
}

}  // namespace

Result<void> publish_over(System& system, Socket socket, const caf::actor& published) {
  auto scribe = make_scribe(system, std::move(socket));
  if (!scribe) return scribe.error();
  caf::anon_send(basp(system), caf::publish_atom::value, std::move(*scribe), kNoPort,
                 caf::actor_cast<caf::strong_actor_ptr>(published), std::set<std::string>{});
  return {};
}

Result<caf::actor> published_by(System& system, Socket socket, std::chrono::milliseconds timeout) {
  auto scribe = make_scribe(system, std::move(socket));
  if (!scribe) return scribe.error();
  Result<caf::actor> result{Error{}};
  caf::scoped_actor self{system.actors()};
  self->request(basp(system), timeout, caf::connect_atom::value, std::move(*scribe), kNoPort)
      .receive(
          [&](const caf::node_id&, const caf::strong_actor_ptr& found,
              const std::set<std::string>&) {
            if (found)
              result = caf::actor_cast<caf::actor>(found);
            else
              result = make_error(Errc::refused, "the peer has published no actor");
          },
          [&](const caf::error& failed) { result = failed; });
  return result;
}

}  // namespace troupe::internal
