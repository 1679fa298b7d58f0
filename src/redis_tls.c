/* The bytes of a session go through a BIO of our own: OpenSSL's writes to a
 * socket with write(2), where a server that has gone would end an action by
 * SIGPIPE, whose disposition is the caller's; ours does so with MSG_NOSIGNAL.
 * (A pair of memory BIOs would do too, for one more copy and a second place
 * where bytes wait unseen by poll(2).)
 *
 * A context and its sessions belong to whoever has the connection (watch.c): one
 * thread at a time. A child is made by vfork(2) and only executes; the guard of
 * --attach is a fork that goes on with a session which its parent leaves alone.
 * The socket is closed on exec. */
#include "redis_tls.h"

#include "lazy_openssl.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct redis_tls {
    SSL_CTX *context;
    BIO_METHOD *method;
    bool has_certificate; /* of ours */
};

struct redis_tls_session {
    SSL *ssl;
    bool has_certificate;
    int fd;
    int error;            /* errno of the socket; 0: none, or its end */
    short events;         /* what the last EAGAIN waits for */
    unsigned long fault;  /* OpenSSL's code of what went wrong; 0: nothing */
    bool was_asked;       /* the server wants a certificate of ours */
    bool established;     /* and nothing has failed since */
    char host[256];
};

/* --- files --------------------------------------------------------------- */

static const char *reason_of(unsigned long code)
{
    const char *reason = openssl()->ERR_reason_error_string(code);
    return reason != NULL ? reason : "unknown reason";
}

/* What was wrong with the file; LOCK_INVALID. */
static enum lock_result unusable(const char *path, const char *what, struct why *why)
{
    unsigned long code = openssl()->ERR_peek_error();
    why_set(why, "%s: %s%s%s%s", path, what, code != 0 ? " (" : "", code != 0 ? reason_of(code) : "", code != 0 ? ")" : "");
    return LOCK_INVALID;
}

/* OpenSSL's own words for what cannot be opened are of no help. Returns the file
 * opened, or -1. */
static int open_file(const char *path, struct stat *status, struct why *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, status) != 0) {
        why_set(why, "%s: cannot read it: %s", path, strerror(errno));
    } else if (S_ISDIR(status->st_mode)) {
        why_set(why, "%s: it is a directory; a file with certificates or a key in PEM is wanted", path);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool is_readable(const char *path, struct why *why)
{
    struct stat status;
    int fd = open_file(path, &status, why);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static enum lock_result load_issuers(struct redis_tls *tls, const char *path, struct why *why)
{
    openssl()->ERR_clear_error();
    if (path == NULL) {
        /* A store that is missing trusts nobody, and each server is refused. */
        (void)openssl()->SSL_CTX_set_default_verify_paths(tls->context);
        return LOCK_OK;
    }
    if (!is_readable(path, why))
        return LOCK_INVALID;
    if (openssl()->SSL_CTX_load_verify_file(tls->context, path) != 1)
        return unusable(path, "there is no certificate in PEM in it", why);
    /* What the file has is trusted, be it no root. */
    (void)openssl()->X509_VERIFY_PARAM_set_flags(openssl()->SSL_CTX_get0_param(tls->context), X509_V_FLAG_PARTIAL_CHAIN);
    return LOCK_OK;
}

/* Nobody is asked for a passphrase. */
static int no_passphrase(char *bytes, int size, int writes, void *data) /* NOLINT(readability-non-const-parameter) */
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

static enum lock_result load_key(struct redis_tls *tls, const char *path, struct why *why)
{
    struct stat status;
    int fd = open_file(path, &status, why);
    if (fd < 0)
        return LOCK_INVALID;
    if ((status.st_mode & S_IROTH) != 0) {
        why_set(why, "%s: it holds a private key, and others can read it; chmod o= helps", path);
        close(fd);
        return LOCK_INVALID;
    }
    openssl()->ERR_clear_error();
    EVP_PKEY *key = read_key(fd);
    close(fd);
    if (key == NULL)
        return unusable(path, "there is no private key in PEM in it, or it wants a passphrase", why);
    bool fits = openssl()->SSL_CTX_use_PrivateKey(tls->context, key) == 1 &&
                openssl()->SSL_CTX_check_private_key(tls->context) == 1;
    openssl()->EVP_PKEY_free(key);
    return fits ? LOCK_OK : unusable(path, "this key is not the certificate's", why);
}

static enum lock_result load_certificate(struct redis_tls *tls, const struct redis_settings *settings,
                                         enum redis_fault *fault, struct why *why)
{
    if (settings->cert == NULL && settings->key == NULL)
        return LOCK_OK;
    if (settings->cert == NULL) {
        *fault = REDIS_FAULT_KEY;
        why_set(why, "a key without its certificate; --cert=FILE is missing");
        return LOCK_INVALID;
    }
    *fault = REDIS_FAULT_CERT;
    if (!is_readable(settings->cert, why))
        return LOCK_INVALID;
    openssl()->ERR_clear_error();
    if (openssl()->SSL_CTX_use_certificate_chain_file(tls->context, settings->cert) != 1)
        return unusable(settings->cert, "there is no usable certificate in PEM in it", why);
    *fault = settings->key != NULL ? REDIS_FAULT_KEY : REDIS_FAULT_CERT;
    tls->has_certificate = true;
    return load_key(tls, settings->key != NULL ? settings->key : settings->cert, why);
}

/* --- the socket ---------------------------------------------------------- */

static int socket_result(BIO *bio, struct redis_tls_session *session, ssize_t length, int retry)
{
    openssl()->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    session->error = length < 0 ? errno : 0;
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        openssl()->BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)length;
}

static int socket_read(BIO *bio, char *bytes, int size)
{
    struct redis_tls_session *session = openssl()->BIO_get_data(bio);
    return socket_result(bio, session, recv(session->fd, bytes, (size_t)size, 0), BIO_FLAGS_READ);
}

static int socket_write(BIO *bio, const char *bytes, int size)
{
    struct redis_tls_session *session = openssl()->BIO_get_data(bio);
    return socket_result(bio, session, send(session->fd, bytes, (size_t)size, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static long socket_control(BIO *bio, int command, long number, void *data)
{
    (void)bio;
    (void)number;
    (void)data;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* --- what connections share ---------------------------------------------- */

static int on_certificate_request(SSL *ssl, void *data)
{
    (void)data;
    struct redis_tls_session *session = openssl()->SSL_get_ex_data(ssl, 0);
    session->was_asked = true;
    return 1;
}

static bool make_method(struct redis_tls *tls)
{
    tls->method = openssl()->BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    return tls->method != NULL && openssl()->BIO_meth_set_read(tls->method, socket_read) == 1 &&
           openssl()->BIO_meth_set_write(tls->method, socket_write) == 1 &&
           openssl()->BIO_meth_set_ctrl(tls->method, socket_control) == 1;
}

/* A host's policy may ask for more than TLS 1.2 (openssl.cnf), and is not undone. */
static bool make_context(struct redis_tls *tls)
{
    const long mode = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS;
    tls->context = openssl()->SSL_CTX_new(openssl()->TLS_client_method());
    if (tls->context == NULL)
        return false;
    openssl()->SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    openssl()->SSL_CTX_set_cert_cb(tls->context, on_certificate_request, NULL);
    (void)openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_MODE, mode, NULL);
    return openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_GET_MIN_PROTO_VERSION, 0, NULL) >= TLS1_2_VERSION ||
           openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL) == 1;
}

static enum lock_result fill(struct redis_tls *tls, const struct redis_settings *settings, enum redis_fault *fault,
                             struct why *why)
{
    if (!make_method(tls) || !make_context(tls)) {
        why_set(why, "OpenSSL gives no TLS: %s", reason_of(openssl()->ERR_peek_error()));
        return LOCK_SYSTEM;
    }
    *fault = REDIS_FAULT_CACERT;
    enum lock_result result = load_issuers(tls, settings->cacert, why);
    return result == LOCK_OK ? load_certificate(tls, settings, fault, why) : result;
}

enum lock_result redis_tls_open(struct redis_tls **tls, const struct redis_settings *settings, enum redis_fault *fault,
                                struct why *why)
{
    *fault = REDIS_FAULT_NONE;
    enum lock_result result = openssl_open(OPENSSL_TLS, why);
    if (result != LOCK_OK)
        return result;
    struct redis_tls *made = calloc(1, sizeof *made);
    if (made == NULL) {
        why_set(why, "out of memory");
        return LOCK_SYSTEM;
    }
    result = fill(made, settings, fault, why);
    if (result == LOCK_OK)
        *tls = made;
    else
        redis_tls_close(made);
    return result;
}

void redis_tls_close(struct redis_tls *tls)
{
    if (tls == NULL)
        return;
    openssl()->SSL_CTX_free(tls->context);
    openssl()->BIO_meth_free(tls->method);
    free(tls);
}

/* --- sessions ------------------------------------------------------------ */

/* Whom the certificate must be for. A certificate has no zone of an IPv6 address
 * (fe80::1%eth0), and an IP address is not sent as the name that is wanted. */
static bool set_host(struct redis_tls_session *session, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    text_copy(session->host, sizeof session->host, host);
    session->host[strcspn(session->host, "%")] = '\0';
    host = session->host;
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return openssl()->X509_VERIFY_PARAM_set1_ip_asc(openssl()->SSL_get0_param(session->ssl), host) == 1;
    openssl()->SSL_set_hostflags(session->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return openssl()->SSL_set1_host(session->ssl, host) == 1 &&
           openssl()->SSL_ctrl(session->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, session->host) == 1;
}

static bool set_up(struct redis_tls_session *session, const struct redis_tls *tls, const char *host)
{
    session->ssl = openssl()->SSL_new(tls->context);
    BIO *bio = session->ssl != NULL ? openssl()->BIO_new(tls->method) : NULL;
    if (bio == NULL)
        return false;
    openssl()->BIO_set_data(bio, session);
    openssl()->BIO_set_init(bio, 1);
    openssl()->SSL_set_bio(session->ssl, bio, bio); /* which owns it from here on */
    return openssl()->SSL_set_ex_data(session->ssl, 0, session) == 1 && set_host(session, host);
}

enum lock_result redis_tls_begin(struct redis_tls_session **session, struct redis_tls *tls, int fd, const char *host,
                                 struct why *why)
{
    openssl()->ERR_clear_error();
    struct redis_tls_session *made = calloc(1, sizeof *made);
    if (made != NULL)
        *made = (struct redis_tls_session){.fd = fd, .has_certificate = tls->has_certificate};
    if (made == NULL || !set_up(made, tls, host)) {
        redis_tls_end(made);
        why_set(why, "no TLS session: out of memory, or no name that TLS could check");
        return LOCK_SYSTEM;
    }
    *session = made;
    return LOCK_OK;
}

void redis_tls_end(struct redis_tls_session *session)
{
    if (session == NULL)
        return;
    if (session->established)
        (void)openssl()->SSL_shutdown(session->ssl);
    openssl()->SSL_free(session->ssl);
    openssl()->ERR_clear_error(); /* of what nobody has asked for */
    free(session);
}

/* After a call of OpenSSL that returned `result`, which was not positive: what
 * recv(2) and send(2) would return, with errno. */
static int failed(struct redis_tls_session *session, int result)
{
    int error = openssl()->SSL_get_error(session->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        session->events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    session->established = false; /* nothing may be said any more, not even good-bye */
    unsigned long code = openssl()->ERR_peek_error();
    bool is_end = code == 0 ? session->error == 0
                            : ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (is_end)
        return 0;
    session->fault = code;
    errno = code != 0 ? EPROTO : session->error;
    return -1;
}

int redis_tls_handshake(struct redis_tls_session *session)
{
    openssl()->ERR_clear_error();
    int result = openssl()->SSL_connect(session->ssl);
    session->established = result == 1;
    return result == 1 ? 1 : failed(session, result);
}

static int cut(size_t size)
{
    return size < INT32_MAX ? (int)size : INT32_MAX;
}

ssize_t redis_tls_receive(struct redis_tls_session *session, void *bytes, size_t size)
{
    openssl()->ERR_clear_error();
    int result = openssl()->SSL_read(session->ssl, bytes, cut(size));
    return result > 0 ? result : failed(session, result);
}

/* A server that refuses our certificate says so and closes, and what we send then
 * fails: what it said is still there to be read. */
static void look_for_alert(struct redis_tls_session *session)
{
    char byte;
    int error = errno;
    if (redis_tls_receive(session, &byte, sizeof byte) >= 0 || errno != EPROTO)
        errno = error;
}

ssize_t redis_tls_send(struct redis_tls_session *session, const void *bytes, size_t size)
{
    openssl()->ERR_clear_error();
    int result = openssl()->SSL_write(session->ssl, bytes, cut(size));
    if (result > 0)
        return result;
    result = failed(session, result);
    if (result == 0)
        errno = EPIPE;
    if (result == 0 || errno == EPIPE || errno == ECONNRESET)
        look_for_alert(session);
    return -1;
}

short redis_tls_events(const struct redis_tls_session *session)
{
    return session->events;
}

bool redis_tls_has_unread(const struct redis_tls_session *session)
{
    return openssl()->SSL_pending(session->ssl) > 0;
}

/* --- what went wrong ----------------------------------------------------- */

static enum lock_result refused_by_us(const struct redis_tls_session *session, struct why *why)
{
    long verdict = openssl()->SSL_get_verify_result(session->ssl);
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        why_set(why, "its certificate, or an issuer's, has expired (or the clock of this host is wrong)");
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        why_set(why, "its certificate, or an issuer's, is not valid yet (or the clock of this host is wrong)");
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        why_set(why, "its certificate is from an unknown issuer (%s); --cacert=FILE has the issuers to trust",
                openssl()->X509_verify_cert_error_string(verdict));
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        why_set(why, "its certificate is for another name, not for %s", session->host);
        break;
    default: why_set(why, "its certificate is not accepted: %s", openssl()->X509_verify_cert_error_string(verdict)); break;
    }
    return LOCK_REFUSED;
}

static enum lock_result refused_by_server(const struct redis_tls_session *session, struct why *why)
{
    if (session->has_certificate)
        why_set(why, "it does not accept our certificate (--cert): %s", reason_of(session->fault));
    else
        why_set(why, "it wants a certificate of ours (--cert and --key): %s", reason_of(session->fault));
    return LOCK_REFUSED;
}

static bool is_about_our_certificate(const struct redis_tls_session *session, int reason)
{
    switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED: return session->was_asked;
    /* How TLS 1.2 says that there was none; it may mean other things too. */
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: return session->was_asked && !session->has_certificate;
    default: return false;
    }
}

enum lock_result redis_tls_error(const struct redis_tls_session *session, struct why *why)
{
    int reason = ERR_GET_LIB(session->fault) == ERR_LIB_SSL ? ERR_GET_REASON(session->fault) : 0;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return refused_by_us(session, why);
    if (is_about_our_certificate(session, reason))
        return refused_by_server(session, why);
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        why_set(why, "it does not speak TLS: is it redis:// that is meant?");
    else if (reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || reason == SSL_R_UNSUPPORTED_PROTOCOL)
        why_set(why, "it speaks no version of TLS that may be used; 1.2 is the least");
    else
        why_set(why, "TLS: %s", reason_of(session->fault));
    return LOCK_UNAVAILABLE;
}

/* --- facts --------------------------------------------------------------- */

void redis_tls_facts(const struct redis_tls_session *session, struct redis_tls_facts *facts)
{
    const struct openssl *ssl = openssl();
    const OPENSSL_STACK *chain = (const OPENSSL_STACK *)ssl->SSL_get0_verified_chain(session->ssl);
    *facts = (struct redis_tls_facts){
        .protocol = ssl->SSL_get_version(session->ssl),
        .cipher = ssl->SSL_CIPHER_get_name(ssl->SSL_get_current_cipher(session->ssl)),
        .certificates = chain != NULL ? ssl->OPENSSL_sk_num(chain) : 0,
        .days = INT_MAX,
    };
    for (int i = 0; i < facts->certificates; i++) {
        const X509 *one = ssl->OPENSSL_sk_value(chain, i);
        int days = 0, seconds = 0;
        if (i == 0)
            (void)ssl->X509_NAME_oneline(ssl->X509_get_subject_name(one), facts->subject, sizeof facts->subject);
        (void)ssl->X509_NAME_oneline(ssl->X509_get_issuer_name(one), facts->issuer, sizeof facts->issuer);
        if (ssl->ASN1_TIME_diff(&days, &seconds, NULL, ssl->X509_get0_notAfter(one)) == 1 && days < facts->days)
            facts->days = days;
    }
}
