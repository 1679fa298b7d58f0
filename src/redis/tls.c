/* A session sends and receives through our own BIO, which sends with MSG_NOSIGNAL. OpenSSL's BIO
 * for sockets uses write(2), which causes SIGPIPE if the server has gone. That signal would end
 * dlock, unless dlock was started with SIGPIPE ignored. (A pair of memory BIOs would also work, but
 * would copy all data once more, and would be a second buffer whose bytes poll(2) does not report.)
 *
 * Only one thread at a time uses a context and its sessions: the thread that has the connection
 * (run/watch.c). The command's process uses no session, because it only executes a program. The
 * guard of --attach is a forked process that continues a session, and its parent no longer uses
 * that session. The socket is closed on exec. */
#include "redis/tls.h"

#include "util/dl_openssl.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The versions of three files: the issuers, our certificate, and its key. Each version is the time
 * of the last change, in seconds and nanoseconds, and the inode. */
struct versions {
    int64_t of[3][3];
};

struct redis_tls {
    SSL_CTX *context;
    BIO_METHOD *method;
    struct redis_settings settings;
    struct versions read; /* versions of the files that the context was made from */
    bool was_refused;     /* a certificate was refused after the files were read */
};

struct redis_tls_session {
    SSL *ssl;
    struct redis_tls *tls;
    int fd;
    size_t vain;         /* bytes received since the caller last received data */
    int error;           /* errno of the last socket call; 0: no error, or end of file */
    short events;        /* the events to wait for after the last EAGAIN */
    unsigned long fault; /* OpenSSL's error code; 0: none */
    bool was_asked;      /* the server has asked for our certificate */
    bool established;    /* the handshake is done, and nothing has failed since */
    bool is_anonymous;   /* the server has shown no certificate */
    char host[256];
};

/* --- the socket ---------------------------------------------------------- */

static int socket_result(BIO *bio, struct redis_tls_session *session, ssize_t length, int retry)
{
    openssl()->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    session->error = length < 0 ? errno : 0;
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        openssl()->BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)length;
}

/* OpenSSL handles some messages (HelloRequest, KeyUpdate, tickets) in a loop that no deadline ends.
 * A peer may send such messages forever, HelloRequests even before it has shown a certificate. So
 * the number of bytes is limited. There must be room for a chain of certificates, which may take
 * 100 KB (SSL_CTX_set_max_cert_list(3)), and for a record of 16 KB. */
enum { VAIN_MOST_BYTES = 1 << 18 };

static int socket_read(BIO *bio, char *bytes, int size)
{
    struct redis_tls_session *session = openssl()->BIO_get_data(bio);
    ssize_t length = -1;
    errno = EPROTO;
    if (session->vain < VAIN_MOST_BYTES)
        length = recv(session->fd, bytes, (size_t)size, 0);
    session->vain += length > 0 ? (size_t)length : 0;
    return socket_result(bio, session, length, BIO_FLAGS_READ);
}

static int socket_write(BIO *bio, const char *bytes, int size)
{
    struct redis_tls_session *session = openssl()->BIO_get_data(bio);
    return socket_result(bio, session, send(session->fd, bytes, (size_t)size, MSG_NOSIGNAL),
                         BIO_FLAGS_WRITE);
}

static long socket_control(BIO *bio, int command, long number, void *data)
{
    (void)bio;
    (void)number;
    (void)data;
    return command == BIO_CTRL_FLUSH; /* there is no buffer to flush */
}

/* --- the files: trusted issuers, and our certificate --------------------- */

/* Sets *why to the reason why the file is unusable. Returns LOCK_INVALID. */
static enum lock_result unusable(const char *path, const char *what, struct errmsg *why)
{
    unsigned long code = openssl()->ERR_peek_error();
    return errmsg_fail(why, LOCK_INVALID, "%s: %s%s%s%s", path, what, code != 0 ? " (" : "",
                       code != 0 ? openssl_reason(code) : "", code != 0 ? ")" : "");
}

/* Opens the file before OpenSSL does, because OpenSSL's errors do not help the user. Also refuses a
 * pipe: OpenSSL would wait for the pipe, which can be read only once. LOCK_OK with the file open;
 * LOCK_REFUSED: dlock has no permission to read the file; LOCK_INVALID. */
static enum lock_result open_file(const char *path, int *fd, struct stat *status,
                                  struct errmsg *why)
{
    *fd = file_open(AT_FDCWD, path, O_RDONLY, status);
    if (*fd < 0)
        return errmsg_fail(why, secret_error_result(errno), "cannot read %s: %s", path,
                           strerror(errno));
    if (S_ISREG(status->st_mode))
        return LOCK_OK;
    errmsg_set(why, "%s: this is a %s, not a file with certificates or a key in PEM format", path,
               S_ISDIR(status->st_mode) ? "directory" : "pipe or a device");
    close(*fd);
    return LOCK_INVALID;
}

static enum lock_result try_file(const char *path, struct errmsg *why)
{
    struct stat status;
    int fd;
    enum lock_result result = open_file(path, &fd, &status, why);
    if (result == LOCK_OK)
        close(fd);
    return result;
}

/* Trusts the issuers that are installed on this host. A distribution's OpenSSL knows where their
 * files are. A static build runs on any distribution, so it tries the usual files, unless
 * SSL_CERT_FILE or SSL_CERT_DIR says where they are. If no issuers are found, dlock refuses every
 * server. */
static void load_issuers_of_host(SSL_CTX *context)
{
#ifdef STATIC_BINARY
    static const char *const bundles[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/ssl/ca-bundle.pem",             /* openSUSE */
        "/etc/ssl/cert.pem",
    };
    bool told = getenv("SSL_CERT_FILE") != NULL || getenv("SSL_CERT_DIR") != NULL;
    bool found = false;
    for (size_t i = 0; i < sizeof bundles / sizeof *bundles && !told && !found; i++)
        found = openssl()->SSL_CTX_load_verify_file(context, bundles[i]) == 1;
    openssl()->ERR_clear_error(); /* errors from the files that do not exist */
    if (found)
        return;
#endif
    (void)openssl()->SSL_CTX_set_default_verify_paths(context);
}

static enum lock_result load_issuers(SSL_CTX *context, const char *path, struct errmsg *why)
{
    openssl()->ERR_clear_error();
    if (path == NULL) {
        load_issuers_of_host(context);
        return LOCK_OK;
    }
    enum lock_result result = try_file(path, why);
    if (result != LOCK_OK)
        return result;
    if (openssl()->SSL_CTX_load_verify_file(context, path) != 1)
        return unusable(path, "the file has no certificate in PEM", why);
    /* Certificates in the file are trusted, even if they are not root certificates. */
    (void)openssl()->X509_VERIFY_PARAM_set_flags(openssl()->SSL_CTX_get0_param(context),
                                                 X509_V_FLAG_PARTIAL_CHAIN);
    return LOCK_OK;
}

/* dlock never asks for a passphrase. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static int no_passphrase(char *bytes, int size, int writes, void *data)
{
    (void)bytes;
    (void)size;
    (void)writes;
    (void)data;
    return -1;
}

static enum lock_result read_key(const char *path, EVP_PKEY **key, struct errmsg *why)
{
    struct stat status;
    int fd;
    enum lock_result result = open_file(path, &fd, &status, why);
    if (result != LOCK_OK)
        return result;

    if ((status.st_mode & S_IROTH) != 0) {
        result = errmsg_fail(why, LOCK_INVALID,
                             "%s: other users can read this private key; use chmod o=", path);
    } else if (!secret_leave_no_core(why)) {
        result = LOCK_SYSTEM;
    } else {
        openssl()->ERR_clear_error();
        BIO *file = openssl()->BIO_new_fd(fd, BIO_NOCLOSE);
        if (file != NULL)
            *key = openssl()->PEM_read_bio_PrivateKey(file, NULL, no_passphrase, NULL);
        (void)openssl()->BIO_free(file);
        if (*key == NULL)
            result = unusable(
                path, "the file has no private key in PEM, or the key needs a passphrase", why);
    }
    close(fd);
    return result;
}

static enum lock_result load_key(SSL_CTX *context, const char *path, struct errmsg *why)
{
    EVP_PKEY *key = NULL;
    enum lock_result result = read_key(path, &key, why);
    if (result != LOCK_OK)
        return result;
    bool fits = openssl()->SSL_CTX_use_PrivateKey(context, key) == 1 &&
                openssl()->SSL_CTX_check_private_key(context) == 1;
    openssl()->EVP_PKEY_free(key);
    return fits ? LOCK_OK : unusable(path, "this key does not match the certificate", why);
}

static enum lock_result load_certificate(SSL_CTX *context, const struct redis_settings *settings,
                                         enum redis_fault *fault, struct errmsg *why)
{
    if (settings->cert == NULL && settings->key == NULL)
        return LOCK_OK;
    if (settings->cert == NULL) {
        *fault = REDIS_FAULT_KEY;
        return errmsg_fail(why, LOCK_INVALID,
                           "the key needs its certificate; add --client-cert=FILE");
    }
    *fault = REDIS_FAULT_CERT;
    enum lock_result result = try_file(settings->cert, why);
    if (result != LOCK_OK)
        return result;
    openssl()->ERR_clear_error();
    if (openssl()->SSL_CTX_use_certificate_chain_file(context, settings->cert) != 1)
        return unusable(settings->cert, "the file has no usable certificate in PEM", why);
    *fault = settings->key != NULL ? REDIS_FAULT_KEY : REDIS_FAULT_CERT;
    return load_key(context, settings->key != NULL ? settings->key : settings->cert, why);
}

/* --- shared by all connections ------------------------------------------- */

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

/* A host's policy (openssl.cnf) may require more than TLS 1.2; dlock respects that. */
static bool make_context(struct redis_tls *tls)
{
    const long mode = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                      SSL_MODE_RELEASE_BUFFERS;
    tls->context = openssl()->SSL_CTX_new(openssl()->TLS_client_method());
    if (tls->context == NULL)
        return false;
    openssl()->SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    openssl()->SSL_CTX_set_cert_cb(tls->context, on_certificate_request, NULL);
    (void)openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_MODE, mode, NULL);
    return openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_GET_MIN_PROTO_VERSION, 0, NULL) >=
               TLS1_2_VERSION ||
           openssl()->SSL_CTX_ctrl(tls->context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION,
                                   NULL) == 1;
}

static struct versions look_at_files(const struct redis_settings *settings)
{
    const char *const paths[] = {settings->cacert, settings->cert, settings->key};
    struct versions found = {0};
    for (int i = 0; i < 3; i++) {
        struct stat status;
        if (paths[i] == NULL || stat(paths[i], &status) != 0)
            continue;
        found.of[i][0] = status.st_mtim.tv_sec;
        found.of[i][1] = status.st_mtim.tv_nsec;
        found.of[i][2] = (int64_t)status.st_ino;
    }
    return found;
}

/* Stores the versions of the files before it reads the files, so that a file that changes meanwhile
 * is read again later. */
static enum lock_result fill(struct redis_tls *tls, enum redis_fault *fault, struct errmsg *why)
{
    tls->read = look_at_files(&tls->settings);
    if (!make_context(tls))
        return errmsg_fail(why, LOCK_SYSTEM, "OpenSSL provides no TLS: %s",
                           openssl_reason(openssl()->ERR_peek_error()));
    *fault = REDIS_FAULT_CACERT;
    enum lock_result result = load_issuers(tls->context, tls->settings.cacert, why);
    if (result == LOCK_OK)
        result = load_certificate(tls->context, &tls->settings, fault, why);
    return result;
}

enum lock_result redis_tls_open(struct redis_tls **tls, const struct redis_settings *settings,
                                enum redis_fault *fault, struct errmsg *why)
{
    *fault = REDIS_FAULT_NONE;
    if (!openssl_open(OPENSSL_TLS, why))
        return LOCK_INVALID;
    struct redis_tls *made = calloc(1, sizeof *made);
    if (made == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");

    made->settings = *settings;
    enum lock_result result =
        make_method(made) ? fill(made, fault, why)
                          : errmsg_fail(why, LOCK_SYSTEM, "OpenSSL provides no TLS: out of memory");
    if (result == LOCK_OK)
        *tls = made;
    else
        redis_tls_close(made);
    return result;
}

bool redis_tls_renew(struct redis_tls *tls)
{
    struct versions now = look_at_files(&tls->settings);
    if (!tls->was_refused || memcmp(&now, &tls->read, sizeof now) == 0)
        return false;

    struct redis_tls next = *tls;
    enum redis_fault fault;
    struct errmsg ignored = {""};
    next.was_refused = false;
    if (fill(&next, &fault, &ignored) != LOCK_OK) {
        openssl()->SSL_CTX_free(next.context);
        return false;
    }

    openssl()->SSL_CTX_free(tls->context); /* sessions have their own references */
    *tls = next;
    return true;
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

/* Copies the name that the certificate must have. Omits what no certificate contains: the zone of
 * an IPv6 address (fe80::1%eth0), and the dot at the end of a name. True: the name is an IP
 * address. */
static bool copy_host(struct redis_tls_session *session, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    text_copy(session->host, sizeof session->host, host);
    session->host[strcspn(session->host, "%")] = '\0';
    if (inet_pton(AF_INET, session->host, address) == 1 ||
        inet_pton(AF_INET6, session->host, address) == 1)
        return true;
    text_copy(session->host, sizeof session->host, host);
    size_t length = strlen(session->host);
    if (length > 0 && session->host[length - 1] == '.')
        session->host[length - 1] = '\0';
    return false;
}

/* An IP address is not sent as the server name (SNI). */
static enum lock_result set_host(struct redis_tls_session *session, const char *host,
                                 struct errmsg *why)
{
    bool set;
    if (copy_host(session, host)) {
        set = openssl()->X509_VERIFY_PARAM_set1_ip_asc(openssl()->SSL_get0_param(session->ssl),
                                                       session->host) == 1;
    } else if (strpbrk(session->host, "*%") != NULL || *session->host == '\0' ||
               *session->host == '.') {
        /* For OpenSSL, an empty name matches every name, and a name with a leading dot matches all
         * names below it. */
        return errmsg_fail(why, LOCK_REFUSED,
                           "%.200s is not a host name that a certificate can contain", host);
    } else {
        openssl()->SSL_set_hostflags(session->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        set = openssl()->SSL_set1_host(session->ssl, session->host) == 1 &&
              openssl()->SSL_ctrl(session->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME,
                                  TLSEXT_NAMETYPE_host_name, session->host) == 1;
    }
    return set ? LOCK_OK : LOCK_SYSTEM;
}

static enum lock_result set_up(struct redis_tls_session *session, const struct redis_tls *tls,
                               const char *host, struct errmsg *why)
{
    errmsg_set(why, "cannot create a TLS session: out of memory");
    session->ssl = openssl()->SSL_new(tls->context);
    BIO *bio = session->ssl != NULL ? openssl()->BIO_new(tls->method) : NULL;
    if (bio == NULL)
        return LOCK_SYSTEM;
    openssl()->BIO_set_data(bio, session);
    openssl()->BIO_set_init(bio, 1);
    openssl()->SSL_set_bio(session->ssl, bio, bio); /* the SSL owns the BIO from here on */
    return openssl()->SSL_set_ex_data(session->ssl, 0, session) == 1 ? set_host(session, host, why)
                                                                     : LOCK_SYSTEM;
}

enum lock_result redis_tls_begin(struct redis_tls_session **session, struct redis_tls *tls, int fd,
                                 const char *host, struct errmsg *why)
{
    openssl()->ERR_clear_error();
    struct redis_tls_session *made = calloc(1, sizeof *made);
    if (made == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    *made = (struct redis_tls_session){.fd = fd, .tls = tls};
    enum lock_result result = set_up(made, tls, host, why);
    if (result == LOCK_OK)
        *session = made;
    else
        redis_tls_end(made);
    return result;
}

void redis_tls_end(struct redis_tls_session *session)
{
    if (session == NULL)
        return;
    if (session->established)
        (void)openssl()->SSL_shutdown(session->ssl);
    openssl()->SSL_free(session->ssl);
    openssl()->ERR_clear_error(); /* errors that were never read */
    free(session);
}

/* Called after a failed call to OpenSSL (`result` is not positive). Returns what recv(2) or send(2)
 * would return, and sets errno. */
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
    session->established = false; /* nothing may be sent any more, not even a close_notify */
    unsigned long code = openssl()->ERR_peek_error();
    bool is_end = code == 0 ? session->error == 0
                            : ERR_GET_LIB(code) == ERR_LIB_SSL &&
                                  ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
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
    if (result != 1)
        return failed(session, result);
    session->vain = 0;
    /* The host's openssl.cnf may allow ciphers that need no certificate ("ALL"). With such a
     * cipher, SSL_VERIFY_PEER has nothing to verify. */
    session->is_anonymous = openssl()->SSL_get0_verified_chain(session->ssl) == NULL ||
                            openssl()->SSL_get_verify_result(session->ssl) != X509_V_OK;
    errno = EPROTO;
    return session->is_anonymous ? -1 : 1;
}

static int cut(size_t size)
{
    return size < INT32_MAX ? (int)size : INT32_MAX;
}

ssize_t redis_tls_receive(struct redis_tls_session *session, void *bytes, size_t size)
{
    openssl()->ERR_clear_error();
    int result = openssl()->SSL_read(session->ssl, bytes, cut(size));
    if (result <= 0)
        return failed(session, result);
    session->vain = 0;
    return result;
}

ssize_t redis_tls_send(struct redis_tls_session *session, const void *bytes, size_t size)
{
    openssl()->ERR_clear_error();
    int result = openssl()->SSL_write(session->ssl, bytes, cut(size));
    if (result > 0)
        return result;
    if (failed(session, result) == 0)
        errno = EPIPE;
    if (errno != EPIPE && errno != ECONNRESET)
        return -1;

    /* A server that refuses our certificate sends an alert and closes the connection. Our next send
     * fails, but the alert can still be read. */
    char byte;
    int error = errno;
    if (redis_tls_receive(session, &byte, sizeof byte) >= 0 || errno != EPROTO)
        errno = error;
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

/* --- errors -------------------------------------------------------------- */

static bool has_certificate(const struct redis_tls_session *session)
{
    return session->tls->settings.cert != NULL;
}

static enum lock_result refused_by_us(const struct redis_tls_session *session, struct errmsg *why)
{
    long verdict = openssl()->SSL_get_verify_result(session->ssl);
    const char *reason = openssl()->X509_verify_cert_error_string(verdict);
    session->tls->was_refused = true;
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return errmsg_fail(
            why, LOCK_REFUSED,
            "the server certificate or an issuer certificate has expired (or this host's "
            "clock is wrong)");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return errmsg_fail(
            why, LOCK_REFUSED,
            "the server certificate or an issuer certificate is not valid yet (or this "
            "host's clock is wrong)");
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return errmsg_fail(why, LOCK_REFUSED,
                           "the server certificate is from an unknown issuer (%s); use "
                           "--cacert=FILE to name the issuers to trust",
                           reason);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return errmsg_fail(why, LOCK_REFUSED, "the server certificate is not for the host name %s",
                           session->host);
    default:
        return errmsg_fail(why, LOCK_REFUSED, "the server certificate was rejected: %s", reason);
    }
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
    /* TLS 1.2 servers send this alert for a missing certificate, but also for other reasons. */
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return session->was_asked && !has_certificate(session);
    default: return false;
    }
}

enum lock_result redis_tls_error(const struct redis_tls_session *session, struct errmsg *why)
{
    int reason = ERR_GET_LIB(session->fault) == ERR_LIB_SSL ? ERR_GET_REASON(session->fault) : 0;
    if (session->is_anonymous)
        return errmsg_fail(
            why, LOCK_REFUSED,
            "the server sent no certificate; a cipher in this host's openssl.cnf allows this");
    if (session->vain >= VAIN_MOST_BYTES)
        return errmsg_fail(why, LOCK_UNAVAILABLE,
                           "TLS: the server keeps sending data that contains no reply");
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return refused_by_us(session, why);
    if (is_about_our_certificate(session, reason)) {
        session->tls->was_refused = true;
        return errmsg_fail(why, LOCK_REFUSED, "the server %s: %s",
                           has_certificate(session)
                               ? "rejected the client certificate (--client-cert)"
                               : "requires a client certificate (--client-cert and --client-key)",
                           openssl_reason(session->fault));
    }
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        errmsg_set(why, "the server does not speak TLS; use redis://");
    else if (reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || reason == SSL_R_UNSUPPORTED_PROTOCOL)
        errmsg_set(why, "the server speaks no version of TLS that dlock and this host's "
                        "openssl.cnf allow; dlock needs "
                        "at least 1.2");
    else
        errmsg_set(why, "TLS: %s", openssl_reason(session->fault));
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
            (void)ssl->X509_NAME_oneline(ssl->X509_get_subject_name(one), facts->subject,
                                         sizeof facts->subject);
        (void)ssl->X509_NAME_oneline(ssl->X509_get_issuer_name(one), facts->issuer,
                                     sizeof facts->issuer);
        if (ssl->ASN1_TIME_diff(&days, &seconds, NULL, ssl->X509_get0_notAfter(one)) == 1 &&
            days < facts->days)
            facts->days = days;
    }
}
