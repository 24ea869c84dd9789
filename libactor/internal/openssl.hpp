#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

/// OpenSSL's objects with owners.
namespace troupe::internal {

template <auto Free>
struct FreeBy {
  void operator()(auto* object) const { Free(object); }
};

using BioPtr = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;
using CertificatePtr = std::unique_ptr<X509, FreeBy<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;

/// nullptr when the text is none; OpenSSL's error queue is left clear.
CertificatePtr read_certificate(const std::string& pem);
KeyPtr read_key(const std::string& pem);

/// The sentence of the newest error in OpenSSL's queue, which is cleared.
std::string openssl_error();

}  // namespace troupe::internal
