#include "redis/socket.h"

#include "redis/tls.h"
#include "util/fileutils.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --- looking up names ----------------------------------------------------
 *
 * getaddrinfo(3) cannot be interrupted, and may wait many seconds for a resolver that hangs. So a
 * helper thread looks up names (not numeric addresses), and the thread that asks may abandon the
 * helper. An abandoned helper may read the environment at any time, so dlock never changes its own
 * environment (util/array.h).
 *
 * Both threads own struct lookup; `owners` is the number of threads that still need it. The helper
 * sets `error`, `system_error` and `list` before it writes to `done_fd`. The thread that asks reads
 * these three members only after it has read from `done_fd`. The threads may leave in either order,
 * and the last one frees the struct. So a helper may still be running while the command runs, and
 * when this process ends. */

struct lookup {
    atomic_int owners;
    int done_fd;
    int error;        /* result of getaddrinfo(3) */
    int system_error; /* errno, if `error` is EAI_SYSTEM */
    struct addrinfo *list;
    char host[256], port[8];
};

static void leave(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->owners, 1) > 1)
        return;
    if (lookup->list != NULL)
        freeaddrinfo(lookup->list);
    close(lookup->done_fd);
    free(lookup);
}

static int get_addresses(const char *host, const char *port, int flags, struct addrinfo **list)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, port, &hints, list);
}

static void *look_up(void *data)
{
    struct lookup *lookup = data;
    lookup->error = get_addresses(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->list);
    lookup->system_error = errno;
    /* Adding 1 to a fresh eventfd cannot fail. */
    (void)!write(lookup->done_fd, &(uint64_t){1}, sizeof(uint64_t));
    leave(lookup);
    return NULL;
}

static enum lock_result start_thread(struct lookup *lookup, struct errmsg *why)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    atomic_fetch_add(&lookup->owners, 1);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, NULL, look_up, lookup);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0) {
        pthread_detach(thread);
        return LOCK_OK;
    }
    atomic_fetch_sub(&lookup->owners, 1);
    return errmsg_fail(why, LOCK_SYSTEM, "cannot start a thread to look up the host name: %s",
                       strerror(error));
}

static enum lock_result await_answer(const struct lookup *lookup, struct bound bound,
                                     struct errmsg *why)
{
    struct pollfd fds[2] = {{.fd = lookup->done_fd, .events = POLLIN},
                            {.fd = bound.cancel_fd, .events = POLLIN}};
    int ready = deadline_poll(fds, 2, bound.until);
    uint64_t count;
    if (fds[0].revents != 0 && read(lookup->done_fd, &count, sizeof count) == (ssize_t)sizeof count)
        return LOCK_OK;
    if (ready > 0)
        return LOCK_CANCELLED;
    return errmsg_fail(why, LOCK_UNAVAILABLE, "the host name %s was not resolved in time",
                       lookup->host);
}

static enum lock_result collect(struct addresses *found, const struct lookup *lookup,
                                struct errmsg *why)
{
    found->count = 0;
    if (lookup->error != 0)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "the host name %s cannot be resolved: %s",
                           lookup->host,
                           lookup->error == EAI_SYSTEM ? strerror(lookup->system_error)
                                                       : gai_strerror(lookup->error));
    for (const struct addrinfo *one = lookup->list; one != NULL && found->count < ADDRESSES_MOST;
         one = one->ai_next) {
        struct address *address = &found->list[found->count];
        if (one->ai_addrlen > sizeof address->at)
            continue;
        memcpy(&address->at, one->ai_addr, one->ai_addrlen);
        address->size = one->ai_addrlen;
        found->count++;
    }
    if (found->count == 0)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "the host name %s has no address", lookup->host);
    return LOCK_OK;
}

enum lock_result redis_resolve(struct addresses *found, const char *host, const char *port,
                               struct bound bound, struct errmsg *why)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL || (lookup->done_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
        errmsg_set(why, "cannot look up %s: %s", host, strerror(errno));
        free(lookup);
        return LOCK_SYSTEM;
    }
    lookup->owners = 1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);

    enum lock_result result = LOCK_OK;
    lookup->error = get_addresses(host, port, AI_NUMERICHOST, &lookup->list);
    lookup->system_error = errno;
    if (lookup->error == EAI_NONAME) {
        result = start_thread(lookup, why);
        if (result == LOCK_OK)
            result = await_answer(lookup, bound, why);
    }
    if (result == LOCK_OK)
        result = collect(found, lookup, why);
    leave(lookup);
    return result;
}

/* --- moving bytes -------------------------------------------------------- */

enum { LATE_MOST = 64 };

enum { TLS_ALERT = 21 }; /* first byte of a TLS alert (RFC 8446, 5.1), never of a Redis reply */

/* If a server disappears silently, the kernel reports that after 9 s (KEEP_IDLE_S, then KEEP_COUNT
 * lost probes). This is less than the longest interval between two checks of a lease (10 s), and
 * much less than the interval at which a waiter that receives notifications asks for the lock
 * again. TCP_USER_TIMEOUT limits how long sent bytes may stay unacknowledged, and also overrides
 * TCP_KEEPCNT (tcp(7); "When TCP sockets refuse to die", blog.cloudflare.com). If UNACKNOWLEDGED_MS
 * were shorter than KEEP_IDLE_S, one lost probe would end the connection. */
enum { KEEP_IDLE_S = 5, KEEP_INTERVAL_S = 1, KEEP_COUNT = 4, UNACKNOWLEDGED_MS = 9000 };

void redis_socket_close(struct redis_socket *sock)
{
    redis_tls_end(sock->tls);
    sock->tls = NULL;
    fd_close(&sock->fd);
}

static enum lock_result hang_up(struct redis_socket *sock, struct errmsg *why, const char *text)
{
    redis_socket_close(sock);
    return errmsg_fail(why, LOCK_UNAVAILABLE, "%s", text);
}

/* Waits until the connection is ready for `events`. LOCK_OK; LOCK_UNAVAILABLE: the deadline has
 * passed, or alarm_fd is readable; LOCK_CANCELLED. */
static enum lock_result await(const struct redis_socket *sock, short events, struct bound bound)
{
    struct pollfd fds[3] = {
        {.fd = sock->fd, .events = events},
        {.fd = bound.cancel_fd, .events = POLLIN},
        {.fd = sock->alarm_fd, .events = POLLIN},
    };
    int ready = deadline_poll(fds, 3, bound.until);
    if (ready > 0 && fds[1].revents != 0)
        return LOCK_CANCELLED;
    return ready > 0 && fds[0].revents != 0 ? LOCK_OK : LOCK_UNAVAILABLE;
}

ssize_t redis_socket_take(const struct redis_socket *sock, void *bytes, size_t size)
{
    return sock->tls != NULL ? redis_tls_receive(sock->tls, bytes, size)
                             : recv(sock->fd, bytes, size, 0);
}

/* True if the server may expect TLS, although we sent plain text. Such a server hangs up, or
 * answers with a TLS record. A server that has already answered in plain text does not expect
 * TLS. */
static bool may_want_tls(const struct redis_socket *sock)
{
    return sock->tls == NULL && sock->is_tcp && !sock->heard;
}

static enum lock_result fail_closed(struct redis_socket *sock, struct errmsg *why, const char *text)
{
    static const char hint[] = "before sending anything; a proxy does this if its server is down; "
                               "if the server uses TLS, use rediss://";
    char hinted[200];
    sock->hung_up = true;
    snprintf(hinted, sizeof hinted, "%s %s", text, hint);
    return hang_up(sock, why, may_want_tls(sock) ? hinted : text);
}

/* If this process was frozen, the answer may have arrived long before the deadline passed. So dlock
 * may still read a few times after the deadline, but not forever, because a peer may send without
 * pause. */
static bool is_too_late(struct redis_socket *sock, struct bound bound)
{
    sock->late = deadline_passed(bound.until) ? sock->late + 1 : 0;
    return sock->late > LATE_MOST;
}

/* Handles the errno of a send or receive that failed. LOCK_OK: try again. Otherwise the connection
 * is closed. */
static enum lock_result await_more(struct redis_socket *sock, short events, const char *too_late,
                                   struct bound bound, struct errmsg *why)
{
    if (errno == EINTR)
        return LOCK_OK;
    enum lock_result result;
    if (errno == EPROTO && sock->tls != NULL) {
        result = redis_tls_error(sock->tls, why);
        redis_socket_close(sock);
        return result;
    }
    if (errno == ECONNRESET || errno == EPIPE)
        return fail_closed(sock, why, strerror(errno));
    if (errno != EAGAIN)
        return hang_up(sock, why, strerror(errno));
    result = await(sock, sock->tls != NULL ? redis_tls_events(sock->tls) : events, bound);
    if (result == LOCK_OK && is_too_late(sock, bound))
        result = LOCK_UNAVAILABLE;
    if (result == LOCK_UNAVAILABLE)
        return hang_up(sock, why, too_late);
    if (result == LOCK_CANCELLED)
        redis_socket_close(sock);
    return result;
}

enum lock_result redis_socket_send(struct redis_socket *sock, const char *bytes, size_t size,
                                   struct bound bound, struct errmsg *why)
{
    size_t done = 0;
    while (done < size) {
        ssize_t sent = sock->tls != NULL ? redis_tls_send(sock->tls, bytes + done, size - done)
                                         : send(sock->fd, bytes + done, size - done, MSG_NOSIGNAL);
        if (sent >= 0) {
            done += (size_t)sent;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            break;
        enum lock_result result =
            await_more(sock, POLLOUT, "the server accepted no more data in time", bound, why);
        if (result != LOCK_OK)
            return result;
    }
    return LOCK_OK;
}

/* Like recv(2), but retries for a moment before it fails with EAGAIN, because a server on this host
 * answers faster than this process can fall asleep and wake up. */
static ssize_t receive_some(const struct redis_socket *sock, char *bytes, size_t size)
{
    struct deadline moment =
        deadline_after((struct duration){sock->is_crowded ? 0 : 80 * NS_PER_US});
    ssize_t length;
    do
        length = redis_socket_take(sock, bytes, size);
    while (length < 0 && errno == EAGAIN && !deadline_passed(moment));
    return length;
}

enum lock_result redis_socket_receive(struct redis_socket *sock, char *bytes, size_t size,
                                      size_t *length, struct bound bound, struct errmsg *why)
{
    static const char late[] = "no answer in time";
    *length = 0;
    for (;;) {
        if (is_too_late(sock, bound))
            return hang_up(sock, why, late);
        ssize_t received = receive_some(sock, bytes, size);
        if (received > 0) {
            if (bytes[0] == TLS_ALERT && may_want_tls(sock))
                return hang_up(sock, why, "the server answers in TLS; use rediss://");
            sock->heard = true;
            *length = (size_t)received;
            return LOCK_OK;
        }
        if (received == 0)
            return fail_closed(sock, why, "the server closed the connection");
        enum lock_result result = await_more(sock, POLLIN, late, bound, why);
        if (result != LOCK_OK)
            return result;
    }
}

bool redis_socket_has_unread(const struct redis_socket *sock)
{
    return sock->tls != NULL && redis_tls_has_unread(sock->tls);
}

/* --- connecting ---------------------------------------------------------- */

static enum lock_result connect_to(struct redis_socket *sock, const struct address *address,
                                   struct bound bound, struct errmsg *why)
{
    sock->fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock->fd < 0) {
        errmsg_set(why, "cannot create a socket: %s", strerror(errno));
        return errno == EAFNOSUPPORT ? LOCK_UNAVAILABLE : LOCK_SYSTEM;
    }
    if (connect(sock->fd, (const struct sockaddr *)&address->at, address->size) == 0)
        return LOCK_OK;

    int error = errno;
    socklen_t size = sizeof error;
    enum lock_result result = LOCK_OK;
    if (error == EINPROGRESS) {
        errmsg_set(why, "the connection timed out");
        result = await(sock, POLLOUT, bound);
        if (result == LOCK_OK && getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    /* A missing file permission on a Unix socket is a refusal. Other errors may be temporary:
     * for example, a firewall may reject one of several addresses. EAGAIN means that the queue of a
     * Unix socket is full, and poll(2) cannot wait for that queue. */
    if (result == LOCK_OK && error != 0) {
        bool refused = !sock->is_tcp && (error == EACCES || error == EPERM);
        result = errmsg_fail(why, refused ? LOCK_REFUSED : LOCK_UNAVAILABLE, "%s", strerror(error));
    }
    if (result != LOCK_OK)
        redis_socket_close(sock);
    return result;
}

/* Without these options dlock is only slower, so a failure does not matter. */
static void set_tcp_options(int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].option, &options[i].value,
                         sizeof options[i].value);
}

/* Performs the TLS handshake. Returns LOCK_OK. After any other result, the connection is closed. */
static enum lock_result start_tls(struct redis_socket *sock, struct redis_tls *tls,
                                  const char *host, struct bound bound, struct errmsg *why)
{
    /* If the server has spoken TLS before, the hint would be wrong. */
    const char *hint = sock->heard ? "" : "; if the server does not use TLS, use redis://";
    char hung[120], closed[120];
    snprintf(hung, sizeof hung, "the TLS handshake was not answered in time%s", hint);
    snprintf(closed, sizeof closed, "the server closed the connection during the TLS handshake%s",
             hint);

    enum lock_result result = redis_tls_begin(&sock->tls, tls, sock->fd, host, why);
    if (result != LOCK_OK)
        redis_socket_close(sock);
    while (result == LOCK_OK) {
        int done = redis_tls_handshake(sock->tls);
        if (done > 0)
            return LOCK_OK;
        if (done == 0)
            return hang_up(sock, why, closed);
        result = await_more(sock, POLLIN, hung, bound, why);
    }
    return result;
}

/* Each address gets a share of the time, so that an address that drops packets leaves time for the
 * next one. */
enum lock_result redis_socket_connect(struct redis_socket *sock, const struct addresses *addresses,
                                      struct redis_tls *tls, const char *host, struct bound bound,
                                      struct errmsg *why)
{
    enum lock_result result = LOCK_UNAVAILABLE;
    sock->hung_up = false;
    if (addresses->count == 0)
        errmsg_set(why, "the address is not known");
    for (int i = 0; i < addresses->count; i++) {
        struct bound share = bound_share(bound, addresses->count - i);
        why->text[0] = '\0';
        sock->is_tcp = addresses->list[i].at.ss_family != AF_UNIX;
        result = connect_to(sock, &addresses->list[i], share, why);
        if (result == LOCK_OK && sock->is_tcp)
            set_tcp_options(sock->fd);
        if (result == LOCK_OK && tls != NULL) {
            result = start_tls(sock, tls, host, share, why);
            if (result == LOCK_REFUSED)
                break; /* a certificate was refused, so do not try the other addresses */
        }
        if (result == LOCK_OK || result == LOCK_CANCELLED)
            break;
    }
    return result;
}
