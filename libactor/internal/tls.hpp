#pragma once

#include "libactor/internal/certificates.hpp"
#include "libactor/result.hpp"

#include <filesystem>
#include <memory>
#include <string>

struct ssl_st;
struct ssl_ctx_st;

/// TLS as Troupe speaks it: 1.3 only, a certificate of the cluster's authority on both sides, no
/// resumption. Sockets never block.
namespace troupe::internal {

/// Who the other side is, by its certificate.
struct Peer {
  std::string name = {};
  Role role = Role::worker;
};

/// What a process shows to its peers, and by which authority it judges theirs. Made once, shared by
/// all connections. There is none without all three parts, so none is ever anonymous.
class Identity {
 public:
  static Result<Identity> from_pem(const std::string& authority, const Certified& own);
  static Result<Identity> from_files(const std::filesystem::path& authority,
                                     const std::filesystem::path& certificate,
                                     const std::filesystem::path& key);

  ssl_ctx_st* context() const { return context_.get(); }
  /// Why a peer of the same authority refuses our certificate now; empty: it does not.
  std::string own_fault() const;

 private:
  explicit Identity(std::shared_ptr<ssl_ctx_st> context) : context_(std::move(context)) {}
  std::shared_ptr<ssl_ctx_st> context_;
};

using Session = std::shared_ptr<ssl_st>;
enum class Side { accept, dial };

/// What to wait for on the socket before the next try.
enum class Step { done, wants_read, wants_write, failed };

/// A session over a connected socket, which it does not own.
Session begin_session(const Identity& identity, int socket, Side side);
Step step_handshake(ssl_st* session);
/// At most `size` bytes; how many in `moved`. 0 with `done` never happens.
Step read_some(ssl_st* session, void* data, std::size_t size, std::size_t& moved);
Step write_some(ssl_st* session, const void* data, std::size_t size, std::size_t& moved);

/// Bytes that the session has read from its socket and not yet given out.
std::size_t pending_bytes(const ssl_st* session);

/// After the handshake the acceptor sends one line of at most this: empty, or why it says no.
inline constexpr std::size_t kGreetingBytes = 256;

/// Why the step before this call failed. refused: what the other side is or has; peer_lost: it
/// closed the connection.
Error session_error(ssl_st* session);

/// Call after the handshake. refused: a subject that is none of ours.
Result<Peer> peer_of(ssl_st* session);

}  // namespace troupe::internal
