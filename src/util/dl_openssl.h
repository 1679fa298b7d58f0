/* Loads OpenSSL 3, but only if TLS or a hashed name needs it, because loading takes as long as the
 * rest of a short run. Nothing else in the program calls dlopen(3). A static build contains
 * OpenSSL. */
#ifndef DLOCK_UTIL_DL_OPENSSL_H
#define DLOCK_UTIL_DL_OPENSSL_H

#include "util/errmsg.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>

/* The OpenSSL functions that dlock uses. If dlock uses a macro of OpenSSL, this lists the function
 * behind the macro. */
/* clang-format off */
#define OPENSSL_CRYPTO_FUNCTIONS(F) \
    F(ASN1_TIME_diff) F(BIO_clear_flags) F(BIO_free) F(BIO_get_data) F(BIO_meth_free) F(BIO_meth_new) F(BIO_meth_set_ctrl) \
    F(BIO_meth_set_read) F(BIO_meth_set_write) F(BIO_new) F(BIO_new_fd) F(BIO_set_data) F(BIO_set_flags) F(BIO_set_init) \
    F(ERR_clear_error) F(ERR_peek_error) F(ERR_reason_error_string) F(EVP_Digest) F(EVP_PKEY_free) F(EVP_sha256) F(HMAC) \
    F(OPENSSL_init_crypto) F(OPENSSL_sk_num) F(OPENSSL_sk_value) F(OSSL_LIB_CTX_get0_global_default) F(PEM_read_bio_PrivateKey) \
    F(X509_NAME_oneline) F(X509_VERIFY_PARAM_set1_ip_asc) F(X509_VERIFY_PARAM_set_flags) \
    F(X509_get0_notAfter) F(X509_get_issuer_name) F(X509_get_subject_name) F(X509_verify_cert_error_string)
#define OPENSSL_SSL_FUNCTIONS(F) \
    F(SSL_CIPHER_get_name) F(SSL_get0_verified_chain) F(SSL_get_current_cipher) F(SSL_get_version) \
    F(SSL_CTX_check_private_key) F(SSL_CTX_ctrl) F(SSL_CTX_free) F(SSL_CTX_get0_param) F(SSL_CTX_load_verify_file) F(SSL_CTX_new) \
    F(SSL_CTX_set_cert_cb) F(SSL_CTX_set_default_verify_paths) F(SSL_CTX_set_verify) F(SSL_CTX_use_PrivateKey) \
    F(SSL_CTX_use_certificate_chain_file) F(SSL_connect) F(SSL_free) F(SSL_get0_param) F(SSL_get_error) \
    F(SSL_get_ex_data) F(SSL_get_verify_result) F(SSL_new) F(SSL_pending) F(SSL_read) F(SSL_set1_host) F(SSL_set_bio) \
    F(SSL_ctrl) F(SSL_set_ex_data) F(SSL_set_hostflags) F(SSL_shutdown) F(SSL_write) F(TLS_client_method)

/* clang-format on */
#define OPENSSL_MEMBER(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses) */
struct openssl {
    OPENSSL_CRYPTO_FUNCTIONS(OPENSSL_MEMBER)
    OPENSSL_SSL_FUNCTIONS(OPENSSL_MEMBER)
};
#undef OPENSSL_MEMBER

enum openssl_part { OPENSSL_CRYPTO, OPENSSL_TLS }; /* TLS needs both libraries */

/* Opens the libraries of this part that are not open yet. They stay open as long as the process
 * lives. Must be called before other threads use OpenSSL. On failure, returns false, and *why names
 * the package that may be missing. A retry does not help then, because only the administrator of
 * this host can fix the problem. */
bool openssl_open(enum openssl_part part, struct errmsg *why);

/* The OpenSSL functions that have been loaded so far. */
const struct openssl *openssl(void);

/* The text of an OpenSSL error code. */
static inline const char *openssl_reason(unsigned long code)
{
    const char *reason = openssl()->ERR_reason_error_string(code);
    return reason != NULL ? reason : "unknown reason";
}

#endif
