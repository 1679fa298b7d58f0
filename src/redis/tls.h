/* TLS 1.2 or 1.3 on a connection's socket, by OpenSSL. The server's certificate chain and its name,
 * or IP address, are always verified. */
#ifndef DLOCK_REDIS_TLS_H
#define DLOCK_REDIS_TLS_H

#include "redis/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The data that all connections of a backend share: the trusted issuers and our
 * certificate. */
struct redis_tls;

/* TLS of one connection. */
struct redis_tls_session;

/* Opens OpenSSL and reads the files of the settings. LOCK_OK with *tls set; the caller closes it
 * after its sessions. LOCK_INVALID: *fault says which setting cannot be used. LOCK_REFUSED: dlock
 * has no permission to read a file. LOCK_SYSTEM. */
enum lock_result redis_tls_open(struct redis_tls **tls, const struct redis_settings *settings,
                                enum redis_fault *fault, struct errmsg *why);
void redis_tls_close(struct redis_tls *tls);

/* If a certificate has been refused, the server's by us or ours by the server, and the
 * files have changed since they were read, reads them again. True: the next connection
 * uses them. Files that are unusable now change nothing. */
bool redis_tls_renew(struct redis_tls *tls);

/* Starts a session on a connected non-blocking socket, with the server of this name or IP address;
 * sends nothing yet. LOCK_OK with *session set; LOCK_REFUSED: no certificate could be for that
 * name; LOCK_SYSTEM. */
enum lock_result redis_tls_begin(struct redis_tls_session **session, struct redis_tls *tls, int fd,
                                 const char *host, struct errmsg *why);

/* Continues the handshake as far as possible without waiting. 1: it is done. Otherwise returns what
 * redis_tls_receive() returns. */
int redis_tls_handshake(struct redis_tls_session *session);

/* Sends close_notify, if the socket accepts it at once, and frees the session; the socket stays
 * open. NULL is fine. */
void redis_tls_end(struct redis_tls_session *session);

/* Like recv(2) and send(2) with MSG_NOSIGNAL. After EAGAIN, redis_tls_events() has the events for
 * poll(2); after EPROTO, redis_tls_error() explains the failure. */
ssize_t redis_tls_receive(struct redis_tls_session *session, void *bytes, size_t size);
ssize_t redis_tls_send(struct redis_tls_session *session, const void *bytes, size_t size);
short redis_tls_events(const struct redis_tls_session *session);

/* LOCK_REFUSED if a certificate is not accepted: we refuse the server's, or the server refuses ours
 * or the lack of one. A refusal by the server may show only at the first read. Otherwise
 * LOCK_UNAVAILABLE. */
enum lock_result redis_tls_error(const struct redis_tls_session *session, struct errmsg *why);

/* True if bytes have been taken from the socket that redis_tls_receive() has not returned
 * yet: poll(2) does not show them. */
bool redis_tls_has_unread(const struct redis_tls_session *session);

/* The negotiated parameters, for people. The texts live as long as the session. */
struct redis_tls_facts {
    const char *protocol, *cipher;
    int certificates;  /* from the server certificate to a trusted issuer's */
    char subject[256]; /* of the server certificate, as "/CN=..." */
    char issuer[256];  /* of the last certificate */
    int days;          /* until the first certificate expires */
};

/* Only after the handshake. */
void redis_tls_facts(const struct redis_tls_session *session, struct redis_tls_facts *facts);

#endif
