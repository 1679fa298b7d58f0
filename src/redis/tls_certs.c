#include "redis/tls_certs.h"

#include "util/fileutils.h"
#include "util/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets the reason why the file is unusable; LOCK_INVALID. */
static enum lock_result tls_certs_unusable(const char *path, const char *what, struct errmsg *why)
{
    unsigned long code = openssl()->ERR_peek_error();
    return errmsg_fail(why, LOCK_INVALID, "%s: %s%s%s%s", path, what, code != 0 ? " (" : "",
                       code != 0 ? openssl_reason(code) : "", code != 0 ? ")" : "");
}

/* OpenSSL's own words for what cannot be opened are of no help, and it would wait for a pipe,
 * which has its content only once. LOCK_OK with the file open; LOCK_REFUSED: it may not be read; LOCK_INVALID. */
static enum lock_result tls_certs_open_file(const char *path, int *fd, struct stat *status,
                                            struct errmsg *why)
{
    *fd = file_open(AT_FDCWD, path, O_RDONLY, status);
    if (*fd < 0) {
        bool denied = errno == EACCES || errno == EPERM;
        errmsg_set(why, "%s: cannot read it: %s", path, strerror(errno));
        return denied ? LOCK_REFUSED : LOCK_INVALID;
    }
    if (S_ISREG(status->st_mode))
        return LOCK_OK;
    errmsg_set(why, "%s: it is a %s; it must be a file with certificates or a key in PEM", path,
               S_ISDIR(status->st_mode) ? "directory" : "pipe or a device");
    close(*fd);
    return LOCK_INVALID;
}

static enum lock_result try_file(const char *path, struct errmsg *why)
{
    struct stat status;
    int fd;
    enum lock_result result = tls_certs_open_file(path, &fd, &status, why);
    if (result == LOCK_OK)
        close(fd);
    return result;
}

static enum lock_result load_issuers(SSL_CTX *context, const char *path, struct errmsg *why)
{
    openssl()->ERR_clear_error();
    if (path == NULL) {
        /* A missing store trusts no issuer, and each server is refused. */
        (void)openssl()->SSL_CTX_set_default_verify_paths(context);
        return LOCK_OK;
    }
    enum lock_result result = try_file(path, why);
    if (result != LOCK_OK)
        return result;
    if (openssl()->SSL_CTX_load_verify_file(context, path) != 1)
        return tls_certs_unusable(path, "there is no certificate in PEM in it", why);
    /* Certificates in the file are trusted, even if they are no roots. */
    (void)openssl()->X509_VERIFY_PARAM_set_flags(openssl()->SSL_CTX_get0_param(context),
                                                 X509_V_FLAG_PARTIAL_CHAIN);
    return LOCK_OK;
}

/* There is no prompt for a passphrase. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static int no_passphrase(char *bytes, int size, int writes, void *data)
{
    (void)bytes;
    (void)size;
    (void)writes;
    (void)data;
    return -1;
}

static EVP_PKEY *read_key(int fd)
{
    EVP_PKEY *key = NULL;
    BIO *file = openssl()->BIO_new_fd(fd, BIO_NOCLOSE);
    if (file != NULL)
        key = openssl()->PEM_read_bio_PrivateKey(file, NULL, no_passphrase, NULL);
    (void)openssl()->BIO_free(file);
    return key;
}

static enum lock_result load_key(SSL_CTX *context, const char *path, struct errmsg *why)
{
    struct stat status;
    int fd;
    enum lock_result result = tls_certs_open_file(path, &fd, &status, why);
    if (result != LOCK_OK)
        return result;
    if ((status.st_mode & S_IROTH) != 0) {
        errmsg_set(why, "%s: it holds a private key, and others can read it; use chmod o=", path);
        close(fd);
        return LOCK_INVALID;
    }
    if (!secret_leave_no_core(why)) {
        close(fd);
        return LOCK_SYSTEM;
    }
    openssl()->ERR_clear_error();
    EVP_PKEY *key = read_key(fd);
    close(fd);
    if (key == NULL)
        return tls_certs_unusable(
            path, "there is no private key in PEM in it, or it needs a passphrase", why);
    bool fits = openssl()->SSL_CTX_use_PrivateKey(context, key) == 1 &&
                openssl()->SSL_CTX_check_private_key(context) == 1;
    openssl()->EVP_PKEY_free(key);
    return fits ? LOCK_OK
                : tls_certs_unusable(path, "this key does not match the certificate", why);
}

static enum lock_result load_certificate(SSL_CTX *context, const struct redis_settings *settings,
                                         enum redis_fault *fault, struct errmsg *why)
{
    if (settings->cert == NULL && settings->key == NULL)
        return LOCK_OK;
    if (settings->cert == NULL) {
        *fault = REDIS_FAULT_KEY;
        return errmsg_fail(why, LOCK_INVALID, "a key needs its certificate; add --cert=FILE");
    }
    *fault = REDIS_FAULT_CERT;
    enum lock_result result = try_file(settings->cert, why);
    if (result != LOCK_OK)
        return result;
    openssl()->ERR_clear_error();
    if (openssl()->SSL_CTX_use_certificate_chain_file(context, settings->cert) != 1)
        return tls_certs_unusable(settings->cert, "there is no usable certificate in PEM in it",
                                  why);
    *fault = settings->key != NULL ? REDIS_FAULT_KEY : REDIS_FAULT_CERT;
    return load_key(context, settings->key != NULL ? settings->key : settings->cert, why);
}

enum lock_result redis_tls_load_files(SSL_CTX *context, const struct redis_settings *settings,
                                      enum redis_fault *fault, struct errmsg *why)
{
    *fault = REDIS_FAULT_CACERT;
    enum lock_result result = load_issuers(context, settings->cacert, why);
    return result == LOCK_OK ? load_certificate(context, settings, fault, why) : result;
}
