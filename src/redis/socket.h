/* Looks up host names, and sends and receives bytes on the socket to a Redis server. The socket is
 * TCP, with or without TLS, or a Unix socket. Every wait has a deadline, and every failure closes
 * the socket. */
#ifndef DLOCK_REDIS_SOCKET_H
#define DLOCK_REDIS_SOCKET_H

#include "lock/result.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct redis_tls;
struct redis_tls_session;

enum { ADDRESSES_MOST = 8 };

struct address {
    struct sockaddr_storage at;
    socklen_t size;
};

struct addresses {
    int count;
    struct address list[ADDRESSES_MOST];
};

/* Looks up host (a name, an IPv4 or an IPv6 address) and port (a number). The addresses are in the
 * order that getaddrinfo(3) gives (RFC 6724). LOCK_OK with at least one address; LOCK_UNAVAILABLE
 * with *why set; LOCK_CANCELLED; LOCK_SYSTEM. */
enum lock_result redis_resolve(struct addresses *found, const char *host, const char *port,
                               struct bound bound, struct errmsg *why);

struct redis_socket {
    int fd;                        /* -1: closed */
    struct redis_tls_session *tls; /* NULL: no TLS */
    bool is_tcp;
    bool heard;      /* the server has sent something, on this connection or an earlier one */
    bool hung_up;    /* the server has ended the last connection */
    int late;        /* how many waits in a row started after the deadline */
    bool is_crowded; /* something else needs the processor, so do not busy-poll for a reply */
    int alarm_fd;    /* if readable, waiting for this server is useless; -1: none */
};

/* Connects a closed socket to the first address that answers; each address gets a share of the
 * time. If `tls` is not NULL, also performs the TLS handshake; the server certificate must be for
 * `host`. LOCK_OK; LOCK_UNAVAILABLE; LOCK_REFUSED, because of file permissions or a certificate;
 * LOCK_CANCELLED; LOCK_SYSTEM. */
enum lock_result redis_socket_connect(struct redis_socket *socket,
                                      const struct addresses *addresses, struct redis_tls *tls,
                                      const char *host, struct bound bound, struct errmsg *why);

void redis_socket_close(struct redis_socket *socket);

/* Sends all bytes. LOCK_OK even if the server has closed the connection, because a reply that says
 * why may still be readable. Otherwise LOCK_UNAVAILABLE, LOCK_REFUSED (because of a certificate) or
 * LOCK_CANCELLED. */
enum lock_result redis_socket_send(struct redis_socket *socket, const char *bytes, size_t size,
                                   struct bound bound, struct errmsg *why);

/* Waits for bytes, and reads those that have arrived. LOCK_OK: *length is at least 1. Otherwise
 * *length is 0, and the result is a failure as in redis_socket_send(); it is LOCK_UNAVAILABLE if
 * the server has closed the connection. */
enum lock_result redis_socket_receive(struct redis_socket *socket, char *bytes, size_t size,
                                      size_t *length, struct bound bound, struct errmsg *why);

/* Like recv(2), but never waits. Does not close the socket. */
ssize_t redis_socket_take(const struct redis_socket *socket, void *bytes, size_t size);

/* True if bytes have arrived that poll(2) on the descriptor does not report. */
bool redis_socket_has_unread(const struct redis_socket *socket);

#endif
