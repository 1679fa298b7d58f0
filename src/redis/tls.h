/* TLS 1.2 or 1.3 on a connection's socket, with OpenSSL. dlock always verifies the server's
 * certificate chain, and the name or IP address in the certificate. */
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

/* Opens OpenSSL and reads the files of the settings. LOCK_OK with *tls set; the caller closes *tls
 * after all its sessions have ended. LOCK_INVALID: *fault says which setting cannot be used.
 * LOCK_REFUSED: dlock has no permission to read a file. LOCK_SYSTEM. */
enum lock_result redis_tls_open(struct redis_tls **tls, const struct redis_settings *settings,
                                enum redis_fault *fault, struct errmsg *why);
void redis_tls_close(struct redis_tls *tls);

/* Reads the certificate files again if they have changed and a certificate was refused (the
 * server's by us, or ours by the server). True: the next connection uses the new files. If a new
 * file cannot be used, keeps what was read before. */
bool redis_tls_renew(struct redis_tls *tls);

/* Starts a session on a connected non-blocking socket, but sends nothing yet. `host` is the name or
 * IP address of the server. LOCK_OK with *session set; LOCK_REFUSED: no certificate can be for this
 * name; LOCK_SYSTEM. */
enum lock_result redis_tls_begin(struct redis_tls_session **session, struct redis_tls *tls, int fd,
                                 const char *host, struct errmsg *why);

/* Continues the handshake as far as possible without waiting. Returns 1 if the handshake is done;
 * otherwise what redis_tls_receive() would return. */
int redis_tls_handshake(struct redis_tls_session *session);

/* Sends close_notify if the socket accepts it at once, and frees the session. The socket stays
 * open. session may be NULL. */
void redis_tls_end(struct redis_tls_session *session);

/* Like recv(2) and send(2) with MSG_NOSIGNAL. After EAGAIN, redis_tls_events() returns the events
 * for poll(2). After EPROTO, redis_tls_error() explains the failure. */
ssize_t redis_tls_receive(struct redis_tls_session *session, void *bytes, size_t size);
ssize_t redis_tls_send(struct redis_tls_session *session, const void *bytes, size_t size);
short redis_tls_events(const struct redis_tls_session *session);

/* LOCK_REFUSED if we do not accept the server's certificate, or if the server does not accept ours
 * or requires one. The server's refusal may arrive as late as the first read. Otherwise
 * LOCK_UNAVAILABLE. */
enum lock_result redis_tls_error(const struct redis_tls_session *session, struct errmsg *why);

/* True if OpenSSL has read bytes from the socket that redis_tls_receive() has not returned yet.
 * poll(2) does not report such bytes. */
bool redis_tls_has_unread(const struct redis_tls_session *session);

/* The negotiated parameters, for people. The texts live as long as the session. */
struct redis_tls_facts {
    const char *protocol, *cipher;
    int certificates;  /* length of the chain, with a trusted issuer's certificate at its end */
    char subject[256]; /* of the server certificate, as "/CN=..." */
    char issuer[256];  /* of the last certificate of the chain */
    int days;          /* days until the earliest expiry in the chain */
};

/* Fills in the facts. May be called only after the handshake. */
void redis_tls_facts(const struct redis_tls_session *session, struct redis_tls_facts *facts);

#endif
