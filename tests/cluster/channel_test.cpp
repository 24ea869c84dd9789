#include "libactor/internal/channel.hpp"

#include "libactor/float_fix.hpp"
#include "libactor/internal/acceptor.hpp"
#include "libactor/internal/socket.hpp"
#include "libactor/log.hpp"
#include "tests/libactor/internal/test_messages.hpp"
#include "tests/support/child.hpp"
#include "tests/support/temp_folder.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <caf/all.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;
using internal::Acceptor;
using internal::CertificateOptions;
using internal::Certified;
using internal::Identity;
using internal::Role;
using internal::System;
using std::chrono::steady_clock;
using test::Child;

namespace {

Clock::WallTime wall() { return SystemClock().wall(); }

/// An authority, and identities by it.
struct Cluster {
  explicit Cluster(std::string_view name = "test")
      : authority(*internal::make_authority(name, wall())) {}

  Identity identity(Role role, const std::string& name = "n1") const {
    return with(*internal::issue(authority, {.name = name, .role = role}, wall()));
  }
  Identity with(const Certified& own) const {
    auto made = Identity::from_pem(authority.certificate, own);
    REQUIRE_MESSAGE(made, (made ? "" : describe(made.error())));
    return *made;
  }

  Certified authority;
};

/// A process that listens and echoes; asked with get_atom it tells how many actors it has.
class Server {
 public:
  explicit Server(const Cluster& cluster, internal::ListenOptions options = {},
                  rlim_t descriptors = 0)
      : Server(cluster.identity(Role::head, "head"), std::move(options), descriptors) {}

  Server(const Identity& identity, internal::ListenOptions options, rlim_t descriptors = 0) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    child_.emplace([&]() -> int {
      ::close(ends[0]);
      if (!std::freopen((folder_ / "log").c_str(), "w", stderr)) return 1;
      if (descriptors) {
        const rlimit limit{descriptors, descriptors};
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      start_log("server", LogLevel::warn);
      System system({.types = {test::add_types}});
      const caf::actor hub = system.actors().spawn([&system]() -> caf::behavior {
        return test::echo_handlers().or_else(caf::message_handler{[&system](caf::get_atom) {
          return static_cast<std::uint64_t>(system.actors().registry().running());
        }});
      });
      auto acceptor = Acceptor::listen(system, identity, hub, options);
      const std::array<std::uint64_t, 2> told{acceptor ? (*acceptor)->port() : 0u, hub.id()};
      if (::write(ends[1], told.data(), sizeof told) != sizeof told) return 1;
      for (;;) ::pause();
    });
    ::close(ends[1]);
    std::array<std::uint64_t, 2> told{};
    REQUIRE(::read(ends[0], told.data(), sizeof told) == sizeof told);
    ::close(ends[0]);
    port_ = static_cast<std::uint16_t>(told[0]);
    hub_id_ = told[1];
    REQUIRE(port_ != 0);
  }

  std::uint16_t port() const { return port_; }
  std::uint64_t hub_id() const { return hub_id_; }
  std::string log() const {
    std::ifstream file(folder_ / "log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::int64_t refusals() const {
    std::istringstream lines(log());
    std::int64_t count = 0;
    for (std::string line; std::getline(lines, line);)
      count += line.find("connection refused") != std::string::npos;
    return count;
  }
  std::int64_t rss_bytes() const {
    std::ifstream file("/proc/" + std::to_string(child_->pid()) + "/status");
    for (std::string word; file >> word;)
      if (word == "VmRSS:" && file >> word) return std::stoll(word) << 10;
    return 0;
  }
  bool alive() const { return rss_bytes() > 0; }
  internal::DialOptions target() const { return {.address = "127.0.0.1", .port = port_}; }

 private:
  test::TempFolder folder_;
  std::optional<Child> child_;
  std::uint16_t port_ = 0;
  std::uint64_t hub_id_ = 0;
};

/// An authorised client, in this process.
struct Client {
  Client(const Cluster& cluster, const Server& server)
      : system({.types = {test::add_types, [](caf::actor_system_config& config) {
                            config.add_message_types<caf::id_block::troupe_unknown>();
                          }}}) {
    auto dialled = internal::dial(system, cluster.identity(Role::driver), server.target());
    REQUIRE_MESSAGE(dialled, (dialled ? "" : describe(dialled.error())));
    hub = *dialled;
  }

  bool served() { return test::ask<double>(system.actors(), hub, 2.5) == 2.5; }
  std::uint64_t actors_there() {
    const auto count = test::ask<std::uint64_t>(system.actors(), hub, caf::get_atom::value);
    return count ? *count : 0;
  }
  std::chrono::milliseconds slowest_percentile(int requests) {
    std::vector<steady_clock::duration> times;
    for (int i = 0; i < requests; ++i) {
      const auto start = steady_clock::now();
      CHECK(served());
      times.push_back(steady_clock::now() - start);
    }
    std::ranges::sort(times);
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        times[times.size() - 1 - times.size() / 100]);
  }

  System system;
  caf::actor hub;
};

/// What is refused, and how it is told.
std::string refusal(const Identity& identity, const internal::DialOptions& options) {
  System system;
  auto dialled = internal::dial(system, identity, options);
  return dialled ? "connected" : describe(dialled.error());
}

bool has(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

Fd plain(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.value(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

/// Whether the other side closes within the time; what it sends is read and thrown away.
bool closes(const Fd& fd, std::chrono::milliseconds within) {
  const auto end = steady_clock::now() + within;
  for (;;) {
    pollfd entry{fd.value(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
    if (left <= 0ms || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
    char buffer[4096];
    if (::recv(fd.value(), buffer, sizeof buffer, 0) <= 0) return true;
  }
}

void say(const Fd& fd, std::string_view bytes) {
  std::ignore = ::send(fd.value(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// A BASP header as it is on the wire.
std::string header(std::uint8_t operation, std::uint32_t payload, std::uint64_t data,
                   std::uint64_t source, std::uint64_t destination) {
  std::string out{static_cast<char>(operation), 0, 0, 0};
  const auto put = [&](std::uint64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8)
      out += static_cast<char>(value >> shift);
  };
  put(payload, 4);
  put(data, 8);
  put(source, 8);
  put(destination, 8);
  return out;
}

constexpr std::uint8_t kServerHandshake = 0, kClientHandshake = 1, kDirectMessage = 2;

/// TLS with OpenSSL alone: what others might speak.
struct OtherTls {
  // tidy: plain-tls: a stranger, who makes his own
  OtherTls() : context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {}
  bool handshake(std::uint16_t port) {
    const Fd fd = plain(port);
    const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
    SSL_set_fd(session.get(), fd.value());
    char byte = 0;  // TLS 1.3 tells of a refused certificate after the handshake
    return SSL_connect(session.get()) == 1 && SSL_read(session.get(), &byte, 1) == 1;
  }
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
};

/// A member's session without BASP behind it.
struct RawMember {
  RawMember(const Cluster& cluster, const Server& server)
      : fd(plain(server.port())),
        session(internal::begin_session(cluster.identity(Role::worker), fd.value(),
                                        internal::Side::dial)) {
    char byte = 0;
    std::size_t moved = 0;
    REQUIRE(internal::step_handshake(session.get()) == internal::Step::done);
    REQUIRE(internal::read_some(session.get(), &byte, 1, moved) == internal::Step::done);
    REQUIRE(byte == '\n');
  }
  void say(const std::string& bytes) {
    std::size_t moved = 0;
    for (std::size_t at = 0; at < bytes.size(); at += moved)
      if (internal::write_some(session.get(), bytes.data() + at, bytes.size() - at, moved) !=
          internal::Step::done)
        return;
  }
  Fd fd;
  internal::Session session;
};

/// The payload of a message whose one string has been replaced by `end`.
std::string message_with(const std::string& end) {
  caf::actor_system_config config;
  caf::actor_system system{config};
  std::vector<char> bytes;
  caf::binary_serializer sink{system, bytes};
  std::vector<caf::strong_actor_ptr> nobody;
  caf::message message = caf::make_message(std::string("marker"));
  REQUIRE_FALSE(sink(nobody, message));
  std::string text(bytes.begin(), bytes.end());
  const auto at = text.find("\x06marker");
  REQUIRE(at != std::string::npos);
  return text.substr(0, at) + end;
}

}  // namespace

TEST_CASE("channel: two processes speak over TLS, bit for bit") {
  const Cluster cluster;
  const Server server(cluster);
  Client client(cluster, server);
  const double nan = std::bit_cast<double>(0xFFF80000DEADBEEFul);
  const auto reply = test::ask<double>(client.system.actors(), client.hub, nan);
  REQUIRE(reply);
  CHECK(std::bit_cast<std::uint64_t>(*reply) == 0xFFF80000DEADBEEFul);
  const Blob blob = Blob::copy_of(std::string(5'000'000, 'b'));
  const auto echoed = test::ask<Blob>(client.system.actors(), client.hub, blob);
  REQUIRE(echoed);
  CHECK(*echoed == blob);
}

TEST_CASE("S1: who proves nothing is closed by the deadline, and no actor is made for it") {
  const Cluster cluster;
  const Server server(cluster, {.deadline = 500ms});
  Client client(cluster, server);
  const auto before = client.actors_there();
  OtherTls anonymous;
  std::vector<Fd> strangers;
  std::string noise(64, 0);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 37 + 11);
  for (const std::string& words :
       {std::string(), std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        header(kServerHandshake, 0, 3, 0, 0), header(kClientHandshake, 0, 0, 0, 0), noise,
        std::string("\x16\x03\x01\x02\x00\x01", 6)}) {
    strangers.push_back(plain(server.port()));
    say(strangers.back(), words);
  }
  CHECK_FALSE(anonymous.handshake(server.port()));
  for (const Fd& stranger : strangers) CHECK(closes(stranger, 3s));
  CHECK(client.served());
  CHECK(client.actors_there() == before);
}

TEST_CASE("S2: headers that claim 2 GiB cost nothing, and delay nobody") {
  const Cluster cluster;
  const Server server(cluster);
  Client client(cluster, server);
  CHECK(client.served());
  const auto before = server.rss_bytes();
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(plain(server.port()));
    say(strangers.back(), header(kDirectMessage, 2u << 30, 0, 1, server.hub_id()));
  }
  CHECK(client.slowest_percentile(200) < 100ms);
  CHECK(server.rss_bytes() - before < 64 << 20);
}

TEST_CASE("S3: a thousand silent connections keep nobody out, and are closed by the deadline") {
  const Cluster cluster;
  for (const rlim_t descriptors : {rlim_t{0}, rlim_t{64}}) {
    CAPTURE(descriptors);
    const Server server(cluster, {.deadline = 1s}, descriptors);
    std::vector<Fd> strangers;
    for (int i = 0; i < 1000; ++i) strangers.push_back(plain(server.port()));
    const auto start = steady_clock::now();
    Client client(cluster, server);
    const auto took = steady_clock::now() - start;
    MESSAGE("dialled in ", std::chrono::duration_cast<std::chrono::microseconds>(took).count(),
            " us");
    CHECK(client.slowest_percentile(100) < 100ms);
    for (const Fd& stranger : strangers) CHECK(closes(stranger, 5s));
    CHECK(client.served());
  }
}

TEST_CASE("S3: of one address no more than the limit is kept waiting, and the oldest go") {
  const Cluster cluster;
  const Server server(cluster, {.deadline = 60s});
  std::vector<Fd> strangers;
  for (int i = 0; i < 3 * limits::kConnectionsPerAddress; ++i)
    strangers.push_back(plain(server.port()));
  const std::size_t gone = strangers.size() - limits::kConnectionsPerAddress;
  for (std::size_t i = 0; i < gone; ++i) CHECK(closes(strangers[i], 5s));
  CHECK_FALSE(closes(strangers[gone], 100ms));
}

TEST_CASE("S5: without any one of authority, certificate and key nothing is started") {
  const Cluster cluster;
  const Certified own = *internal::issue(cluster.authority, {.name = "n1"}, wall());
  const test::TempFolder folder;
  folder.write("ca.pem", cluster.authority.certificate);
  folder.write("own.pem", own.certificate);
  folder.write("own.key", own.key);
  CHECK(Identity::from_files(folder / "ca.pem", folder / "own.pem", folder / "own.key"));
  const auto fault = [&](std::string_view ca, std::string_view certificate, std::string_view key) {
    auto made = Identity::from_files(folder / ca, folder / certificate, folder / key);
    return made ? "made" : describe(made.error());
  };
  CHECK(has(fault("none", "own.pem", "own.key"), "the certificate of the authority"));
  CHECK(has(fault("ca.pem", "none", "own.key"), "can't read the certificate"));
  CHECK(has(fault("ca.pem", "own.pem", "none"), "private key"));
  CHECK(has(fault("own.key", "own.pem", "own.key"), "no readable certificate of the authority"));
  const Certified other = *internal::issue(cluster.authority, {.name = "n2"}, wall());
  CHECK_FALSE(Identity::from_pem(cluster.authority.certificate, {own.certificate, other.key}));
}

TEST_CASE("S5: only TLS 1.3 with certificates is spoken") {
  const Cluster cluster;
  const Server server(cluster);
  const Certified own = *internal::issue(cluster.authority, {.name = "n1"}, wall());
  const test::TempFolder folder;
  folder.write("own.pem", own.certificate);
  folder.write("own.key", own.key);
  const auto member = [&](OtherTls& tls) {
    REQUIRE(SSL_CTX_use_certificate_file(tls.context.get(), (folder / "own.pem").c_str(),
                                         SSL_FILETYPE_PEM) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey_file(tls.context.get(), (folder / "own.key").c_str(),
                                        SSL_FILETYPE_PEM) == 1);
  };
  OtherTls good, old, anonymous;
  member(good);
  CHECK(good.handshake(server.port()));  // else the others prove nothing
  member(old);
  SSL_CTX_set_max_proto_version(old.context.get(), TLS1_2_VERSION);
  CHECK_FALSE(old.handshake(server.port()));
  SSL_CTX_set_security_level(anonymous.context.get(), 0);
  REQUIRE(SSL_CTX_set_cipher_list(anonymous.context.get(), "aNULL") == 1);
  SSL_CTX_set_max_proto_version(anonymous.context.get(), TLS1_2_VERSION);
  CHECK_FALSE(anonymous.handshake(server.port()));
}

TEST_CASE("S6: each kind of bad certificate is told at the client, and costs the server one line") {
  const Cluster cluster;
  const Cluster impostor;  // the same subject, another key
  const Server server(cluster);
  const auto issued = [&](const Cluster& by, const CertificateOptions& options) {
    return cluster.with(*internal::issue(by.authority, options, wall()));
  };
  const std::vector<std::pair<Identity, std::string>> cases{
      {issued(impostor, {.name = "n1"}), "our certificate is from another authority"},
      {issued(cluster, {.name = "n1", .lifetime = -60s}), "our certificate has expired"},
      {issued(cluster, {.name = "n1", .backdate = -600s}), "our certificate is not valid yet"},
      {cluster.with(*internal::make_authority("n1", wall())), "our certificate is self-signed"}};
  std::int64_t expected = 0;
  for (const auto& [identity, sentence] : cases) {
    CHECK(has(refusal(identity, server.target()), sentence));
    CHECK(server.refusals() == ++expected);
    CHECK(server.log().find("its certificate" + sentence.substr(15)) != std::string::npos);
  }
  // The client trusts another authority than the server: it is the client that refuses.
  CHECK(has(refusal(impostor.identity(Role::worker), server.target()),
            "its certificate is from another authority"));
}

TEST_CASE("S6: a server whose certificate is bad is refused by the client, each in its own words") {
  const Cluster cluster;
  const auto told = [&](const Certified& own) {
    const Server server(cluster.with(own), {});
    return refusal(cluster.identity(Role::driver), server.target());
  };
  const auto head = [&](CertificateOptions options) {
    options.name = "head";
    options.role = Role::head;
    return *internal::issue(cluster.authority, options, wall());
  };
  CHECK(has(told(head({.lifetime = -60s})), "its certificate has expired"));
  CHECK(has(told(head({.backdate = -600s})), "its certificate is not valid yet"));
  CHECK(has(told(*internal::make_authority("head", wall())), "its certificate is self-signed"));
}

TEST_CASE("channel: name and role are checked on both sides") {
  const Cluster cluster;
  const Server server(cluster, {.allowed = {Role::node}});
  CHECK(has(refusal(cluster.identity(Role::worker), server.target()),
            "a worker may not connect here"));
  CHECK(refusal(cluster.identity(Role::node), server.target()) == "connected");
  auto other = server.target();
  other.name = "other";
  CHECK(has(refusal(cluster.identity(Role::node), other), "its name is \"head\", expected"));
  auto worker = server.target();
  worker.roles = {Role::worker};
  CHECK(has(refusal(cluster.identity(Role::node), worker), "it is a head"));
}

TEST_CASE("channel: what is no cluster is told apart") {
  const Cluster cluster;
  const Identity own = cluster.identity(Role::driver);
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener.value(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  socklen_t size = sizeof at;
  REQUIRE(::getsockname(listener.value(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const internal::DialOptions target{
      .address = "127.0.0.1", .port = ntohs(at.sin_port), .deadline = 300ms};
  CHECK(has(refusal(own, target), "peer lost: dial 127.0.0.1 port"));
  CHECK(has(refusal(own, target), "nobody listens there"));
  REQUIRE(::listen(listener.value(), 8) == 0);
  CHECK(has(refusal(own, target), "timed out: dial"));
  const Child web([&] {
    for (;;) {
      const Fd client(::accept(listener.value(), nullptr, nullptr));
      say(client, "HTTP/1.1 400 Bad Request\r\n\r\n");
      closes(client, 2s);
    }
    return 0;
  });
  std::string told;  // the silent dial above may still be in the queue
  for (int i = 0; i < 3 && told.find("does not speak") == std::string::npos; ++i)
    told = refusal(own, target);
  CHECK(has(told, "it does not speak TLS 1.3"));
}

TEST_CASE("S24: a member that sends hostile messages costs itself its connection and no more") {
  const Cluster cluster;
  const Server server(cluster);
  Client client(cluster, server);
  CHECK(client.served());
  const auto before = server.rss_bytes();
  const auto direct = [&](const std::string& payload) {
    return header(kDirectMessage, static_cast<std::uint32_t>(payload.size()), 0, 1,
                  server.hub_id()) +
           payload;
  };
  const std::string four_gib = "\xFF\xFF\xFF\xFF\x0F";
  const std::string million{"\xC0\x84\x3D"};  // 1e6 as a varint
  for (const std::string& bytes :
       {header(kServerHandshake, 0, 3, 0, 0), header(kClientHandshake, 0, 0, 0, 0),
        header(kServerHandshake, 65536, 3, 0, 0),
        header(kDirectMessage, 0xFFFFFFFF, 0, 1, server.hub_id()), header(99, 1, 1, 1, 1),
        direct(message_with(four_gib + "x")), direct(message_with(million + "x")), direct(four_gib),
        direct(million), direct("x"), std::string(5000, '\xFF')}) {
    RawMember member(cluster, server);
    member.say(bytes);
    CHECK(client.served());
  }
  CHECK(server.alive());
  CHECK(server.rss_bytes() - before < 64 << 20);
}

TEST_CASE("S24: a message that the receiver does not know is an error of that request alone") {
  const Cluster cluster;
  const Server server(cluster);
  Client client(cluster, server);
  CHECK_FALSE(test::ask<double>(client.system.actors(), client.hub, test::Unknown{7}, 500ms));
  CHECK(client.served());
  CHECK_FALSE(test::ask<double>(client.system.actors(), client.hub, std::string("known"), 500ms));
  CHECK(client.served());
}

TEST_CASE("channel: the end of two of six peers is the end of none of the others") {
  const Cluster cluster;
  const Server server(cluster);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::vector<Child> peers;
  for (int i = 0; i < 6; ++i)
    peers.emplace_back([&]() -> int {
      Client client(cluster, server);
      for (;;) {
        const char result = client.served() ? 'y' : 'n';
        if (::write(ends[1], &result, 1) != 1) ::_exit(1);
        ::poll(nullptr, 0, 5);
      }
    });
  const auto all_served = [&](int count) {
    for (int i = 0; i < count; ++i) {
      char result = 'n';
      pollfd entry{ends[0], POLLIN, 0};
      if (::poll(&entry, 1, 10'000) != 1 || ::read(ends[0], &result, 1) != 1) return false;
      if (result != 'y') return false;
    }
    return true;
  };
  CHECK(all_served(60));
  for (const std::size_t i : {2, 3}) {
    peers[i].kill();
    peers[i].wait();
  }
  plain(server.port());                 // plain text, then gone
  OtherTls().handshake(server.port());  // no certificate
  CHECK(all_served(300));
}

TEST_CASE("channel: eight peers that dial at once are all let in") {
  const Cluster cluster;
  const Server server(cluster);
  std::vector<Child> peers;
  for (int i = 0; i < 8; ++i)
    peers.emplace_back([&]() -> int {
      Client client(cluster, server);
      ::_exit(client.served() ? 0 : 1);
    });
  for (Child& peer : peers) CHECK(peer.wait() == 0);
}

TEST_CASE("channel: throughput of 1 MiB blobs, for information") {
  const Cluster cluster;
  const Server server(cluster);
  Client client(cluster, server);
  const Blob blob = Blob::copy_of(std::string(1 << 20, 'b'));
  constexpr int kCount = 100;
  const auto start = steady_clock::now();
  for (int i = 0; i < kCount; ++i) CHECK(test::ask<Blob>(client.system.actors(), client.hub, blob));
  const std::chrono::duration<double> took = steady_clock::now() - start;
  MESSAGE("1 MiB there and back, one at a time: ", 2 * kCount * 1.048576e-3 / took.count(),
          " GB/s");
}
