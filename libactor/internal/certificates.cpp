#include "libactor/internal/certificates.hpp"

#include "libactor/internal/openssl.hpp"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::internal {
namespace {

using BignumPtr = std::unique_ptr<BIGNUM, FreeBy<BN_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>>;

constexpr std::array<std::pair<Role, std::string_view>, 4> kRoles{{{Role::head, "head"},
                                                                   {Role::node, "node"},
                                                                   {Role::driver, "driver"},
                                                                   {Role::worker, "worker"}}};

/// A certificate in the making; the first step that fails makes the rest do nothing.
class Draft {
 public:
  Draft() : certificate_(X509_new()), good_(certificate_ != nullptr) {
    BignumPtr serial(BN_new());
    good_ = good_ && X509_set_version(certificate_.get(), X509_VERSION_3) &&
            BN_rand(serial.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
            BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate_.get()));
  }

  void valid(Clock::WallTime from, Clock::WallTime until) {
    good_ = good_ && set(X509_getm_notBefore(certificate_.get()), from) &&
            set(X509_getm_notAfter(certificate_.get()), until);
  }
  void subject(const char* field, std::string_view value) {
    good_ = good_ && X509_NAME_add_entry_by_txt(
                         X509_get_subject_name(certificate_.get()), field, MBSTRING_UTF8,
                         reinterpret_cast<const unsigned char*>(value.data()),
                         static_cast<int>(value.size()), -1, 0);
  }
  void key(EVP_PKEY* key) { good_ = good_ && X509_set_pubkey(certificate_.get(), key); }
  /// Own certificate for a self-signed one.
  void issuer(X509* issuer) {
    issuer_ = issuer;
    good_ = good_ && X509_set_issuer_name(certificate_.get(), X509_get_subject_name(issuer));
  }
  void extension(int id, const char* value) {
    if (!good_) return;
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer_, certificate_.get(), nullptr, nullptr, 0);
    ExtensionPtr made(X509V3_EXT_conf_nid(nullptr, &context, id, value));
    good_ = made && X509_add_ext(certificate_.get(), made.get(), -1);
  }
  bool sign(EVP_PKEY* key) { return good_ && X509_sign(certificate_.get(), key, EVP_sha256()) > 0; }
  X509* get() { return certificate_.get(); }

 private:
  static bool set(ASN1_TIME* field, Clock::WallTime time) {
    return ASN1_TIME_set(field, std::chrono::system_clock::to_time_t(time)) != nullptr;
  }

  CertificatePtr certificate_;
  X509* issuer_ = nullptr;
  bool good_;
};

std::string written(BIO* out) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<Certified> as_pem(X509* certificate, EVP_PKEY* key) {
  BioPtr certificate_out(BIO_new(BIO_s_mem()));
  BioPtr key_out(BIO_new(BIO_s_mem()));
  if (!PEM_write_bio_X509(certificate_out.get(), certificate) ||
      !PEM_write_bio_PrivateKey(key_out.get(), key, nullptr, nullptr, 0, nullptr, nullptr))
    return make_error(Errc::io, "write a certificate: " + openssl_error());
  return Certified{written(certificate_out.get()), written(key_out.get())};
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

std::string_view name_of(Role role) {
  for (const auto& [known, name] : kRoles)
    if (known == role) return name;
  return "unknown";
}

std::optional<Role> role_named(std::string_view name) {
  for (const auto& [role, known] : kRoles)
    if (known == name) return role;
  return std::nullopt;
}

Result<Certified> make_authority(std::string_view name, Clock::WallTime now) {
  KeyPtr key(EVP_EC_gen("P-256"));
  Draft draft;
  draft.valid(now - std::chrono::hours(1), now + std::chrono::years(10));
  draft.subject("CN", name);
  draft.key(key.get());
  draft.issuer(draft.get());
  draft.extension(NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  draft.extension(NID_key_usage, "critical,keyCertSign,cRLSign");
  draft.extension(NID_subject_key_identifier, "hash");
  if (!key || !draft.sign(key.get()))
    return make_error(Errc::io, "make a certificate authority: " + openssl_error());
  return as_pem(draft.get(), key.get());
}

Result<Certified> issue(const Certified& authority, const CertificateOptions& options,
                        Clock::WallTime now) {
  if (!is_name(options.name))
    return make_error(Errc::bad_request, "a certificate for \"" + options.name +
                                             "\": a name has 1 to 64 printable characters");
  const CertificatePtr signer = read_certificate(authority.certificate);
  const KeyPtr signer_key = read_key(authority.key);
  if (!signer || !signer_key)
    return make_error(Errc::corrupt, "the authority's certificate or key can't be read");
  KeyPtr key(EVP_EC_gen("P-256"));
  Draft draft;
  draft.valid(now - options.backdate, now + options.lifetime);
  draft.subject("OU", name_of(options.role));
  draft.subject("CN", options.name);
  draft.key(key.get());
  draft.issuer(signer.get());
  draft.extension(NID_basic_constraints, "critical,CA:FALSE");
  draft.extension(NID_key_usage, "critical,digitalSignature");
  draft.extension(NID_ext_key_usage, "serverAuth,clientAuth");
  draft.extension(NID_authority_key_identifier, "keyid");
  if (!key || !draft.sign(signer_key.get()))
    return make_error(Errc::io, "issue a certificate for " + options.name + ": " + openssl_error());
  return as_pem(draft.get(), key.get());
}

}  // namespace troupe::internal
