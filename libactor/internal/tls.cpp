#include "libactor/internal/tls.hpp"

#include "libactor/internal/openssl.hpp"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

namespace troupe::internal {
namespace {

using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, FreeBy<X509_STORE_CTX_free>>;

constexpr long kMaxChainBytes = 16 << 10;

/// whose: "its" or "our".
std::string certificate_fault(std::string_view whose, long code) {
  const std::string certificate = std::string(whose) + " certificate ";
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return certificate + "has expired: renew it";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return certificate + "is not valid yet: compare the clocks of both machines";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return certificate + "is self-signed: join the cluster to get one";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return certificate + "is from another authority: it belongs to another cluster";
    default: return certificate + "is refused: " + X509_verify_cert_error_string(code);
  }
}

Step step_of(ssl_st* session, int result) {
  if (result > 0) return Step::done;
  switch (SSL_get_error(session, result)) {
    case SSL_ERROR_WANT_READ: return Step::wants_read;
    case SSL_ERROR_WANT_WRITE: return Step::wants_write;
    default: return Step::failed;
  }
}

/// One text field of a subject; nothing when it is absent, there twice, or no plain text.
std::optional<std::string> field(X509_NAME* subject, int id) {
  const int at = X509_NAME_get_index_by_NID(subject, id, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(subject, id, at) >= 0) return std::nullopt;
  const ASN1_STRING* value = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                   static_cast<std::size_t>(ASN1_STRING_length(value)));
  const bool plain = std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
  if (text.empty() || !plain) return std::nullopt;
  return text;
}

Result<std::string> read_file(const std::filesystem::path& path, std::string_view what) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    return make_error(Errc::not_found, "can't read the " + std::string(what) + " " + path.string() +
                                           ": without it nothing is started");
  return text;
}

}  // namespace

Result<Identity> Identity::from_pem(const std::string& authority, const Certified& own) {
  const CertificatePtr root = read_certificate(authority);
  const CertificatePtr certificate = read_certificate(own.certificate);
  const KeyPtr key = read_key(own.key);
  const auto missing = [](std::string_view what) {
    return make_error(Errc::bad_request, "there is no readable " + std::string(what) +
                                             ": without it nothing is started");
  };
  if (!root) return missing("certificate of the authority");
  if (!certificate) return missing("certificate of our own");
  if (!key) return missing("private key");
  std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  if (!context) return make_error(Errc::io, "start TLS: " + openssl_error());
  SSL_CTX* c = context.get();
  ERR_clear_error();
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(c, kMaxChainBytes);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                          SSL_MODE_NO_AUTO_CHAIN);  // every peer has the authority already
  if (!SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) || !SSL_CTX_set_num_tickets(c, 0) ||
      !X509_STORE_add_cert(SSL_CTX_get_cert_store(c), root.get()) ||
      SSL_CTX_use_certificate(c, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(c, key.get()) != 1 || SSL_CTX_check_private_key(c) != 1)
    return make_error(Errc::bad_request,
                      "our certificate and private key don't fit: " + openssl_error());
  return Identity(std::move(context));
}

Result<Identity> Identity::from_files(const std::filesystem::path& authority,
                                      const std::filesystem::path& certificate,
                                      const std::filesystem::path& key) {
  auto authority_pem = read_file(authority, "certificate of the authority");
  if (!authority_pem) return authority_pem.error();
  auto certificate_pem = read_file(certificate, "certificate");
  if (!certificate_pem) return certificate_pem.error();
  auto key_pem = read_file(key, "private key");
  if (!key_pem) return key_pem.error();
  return from_pem(*authority_pem, {.certificate = *certificate_pem, .key = *key_pem});
}

std::string Identity::own_fault() const {
  StoreContextPtr check(X509_STORE_CTX_new());
  if (!check || !X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context()),
                                     SSL_CTX_get0_certificate(context()), nullptr))
    return {};
  const bool verified = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  return verified ? std::string{} : certificate_fault("our", X509_STORE_CTX_get_error(check.get()));
}

Session begin_session(const Identity& identity, int socket, Side side) {
  ERR_clear_error();
  Session session(SSL_new(identity.context()), SSL_free);
  if (!session || !SSL_set_fd(session.get(), socket)) return nullptr;
  if (side == Side::accept)
    SSL_set_accept_state(session.get());
  else
    SSL_set_connect_state(session.get());
  return session;
}

// Each clears OpenSSL's error queue first, which belongs to the thread: what one connection has
// left there would be taken for a failure of the next.

Step step_handshake(ssl_st* session) {
  ERR_clear_error();
  errno = 0;
  return step_of(session, SSL_do_handshake(session));
}

Step read_some(ssl_st* session, void* data, std::size_t size, std::size_t& moved) {
  ERR_clear_error();
  errno = 0;
  moved = 0;
  return step_of(session, SSL_read_ex(session, data, size, &moved));
}

Step write_some(ssl_st* session, const void* data, std::size_t size, std::size_t& moved) {
  ERR_clear_error();
  errno = 0;
  moved = 0;
  return step_of(session, SSL_write_ex(session, data, size, &moved));
}

std::size_t pending_bytes(const ssl_st* session) {
  return static_cast<std::size_t>(SSL_pending(session));
}

Error session_error(ssl_st* session) {
  const int system_code = errno;
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  if (const long fault = SSL_get_verify_result(session); fault != X509_V_OK) {
    ERR_clear_error();
    return make_error(Errc::refused, certificate_fault("its", fault));
  }
  if (code == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return make_error(Errc::peer_lost, system_code == 0 || code != 0
                                           ? std::string("it closed the connection")
                                           : std::generic_category().message(system_code));
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
    return make_error(Errc::refused, "it has shown no certificate");
  if (reason > SSL_AD_REASON_OFFSET)
    return make_error(Errc::refused, "it has refused us: " + openssl_error());
  return make_error(Errc::refused, "it does not speak TLS 1.3 as we do: " + openssl_error());
}

Result<Peer> peer_of(ssl_st* session) {
  X509* certificate = SSL_get0_peer_certificate(session);
  if (!certificate || SSL_get_verify_result(session) != X509_V_OK)
    return make_error(Errc::refused, "it has shown no valid certificate");
  X509_NAME* subject = X509_get_subject_name(certificate);
  const auto name = field(subject, NID_commonName);
  const auto role_text = field(subject, NID_organizationalUnitName);
  const auto role = role_text ? role_named(*role_text) : std::nullopt;
  if (!name || !role)
    return make_error(Errc::refused, "its certificate has no name or no role of a cluster");
  return Peer{*name, *role};
}

}  // namespace troupe::internal
