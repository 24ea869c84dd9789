#include "libactor/internal/openssl.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace troupe::internal {
namespace {

BioPtr reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace

CertificatePtr read_certificate(const std::string& pem) {
  CertificatePtr read(PEM_read_bio_X509(reader(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return read;
}

KeyPtr read_key(const std::string& pem) {
  // An empty pass phrase, or OpenSSL would ask at the terminal for that of an encrypted key.
  KeyPtr read(PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  return read;
}

std::string openssl_error() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason ? reason : "no reason given";
}

}  // namespace troupe::internal
