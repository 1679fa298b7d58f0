/* Host names to addresses, within a bound. */
#ifndef DLOCK_REDIS_RESOLVE_H
#define DLOCK_REDIS_RESOLVE_H

#include "lock/result.h"
#include "util/clock.h"

#include <stdbool.h>
#include <sys/socket.h>

enum { ADDRESSES_MOST = 8 };

struct address {
    struct sockaddr_storage at;
    socklen_t size;
};

struct addresses {
    int count;
    struct address list[ADDRESSES_MOST];
};

/* Looks up host (a name, an IPv4 or an IPv6 address) and port (a number), in
 * the order of RFC 6724 that getaddrinfo(3) gives.
 * LOCK_OK with at least one address; LOCK_UNAVAILABLE with *why set;
 * LOCK_CANCELLED; LOCK_SYSTEM. */
enum lock_result redis_resolve(struct addresses *found, const char *host, const char *port,
                               struct bound bound, struct errmsg *why);

#endif
