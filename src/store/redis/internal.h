/* A Redis server, or several behind one URL, and the lock that is taken there:
 * declarations that the parts of the backend share. */
#ifndef DLOCK_STORE_REDIS_INTERNAL_H
#define DLOCK_STORE_REDIS_INTERNAL_H

#include "lock/token.h"
#include "redis/conn.h"
#include "store/backend.h"

#include <stdbool.h>

enum { COMPANION_SIZE = 2 * LOCK_KEY_SIZE + TOKEN_SIZE };

/* Our place in the queue for the lock, and what the server reported about it. */
struct redis_place {
    char wake[COMPANION_SIZE]; /* our channel; "": we have not asked yet */
    int64_t came;              /* when we first asked (server, us); 0: not yet */
    int ahead;                 /* how many waiters are before us; -1: unknown */
    bool attended;             /* a user is watching */
    bool listens;              /* the server knows that we can be called */
    unsigned may_call;         /* the connection whose user may call waiters; 0: unknown */
    bool called;               /* it is our turn */
    bool touched;              /* another client has touched the lock */
    bool unseen;               /* we ask since no other waiter has for long */
    struct deadline changes;   /* when to ask because a lease or a turn ends */
    struct deadline look;      /* when to ask, unless another waiter does */
};

struct redis_call;
struct redis_sentinel;
struct redis_cluster;

/* The progress of one call on its way to the right node of a Cluster. */
struct redis_detour {
    struct deadline start;
    int redirections;
    struct duration pause; /* before it was made again at the same node */
};

/* One server, and the lock that is taken there. */
struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_settings settings;
    const char *key;   /* of the lock that is taken; NULL: none yet */
    const char *token; /* that it is taken with */
    bool shares;       /* it is taken, and shared */
    bool owns_tls;     /* the backend closes settings.tls */
    struct redis_conn conn;
    struct redis_sentinel *sentinel; /* NULL: the URL names none */
    struct redis_cluster *cluster;   /* its nodes; NULL: none is known yet, or it is no Cluster */
    struct redis_place place;
    bool watched;      /* the checks request notifications */
    bool touched;      /* the server reported that a client has touched the lock */
    bool release_sent; /* and its reply never came */
    struct deadline
        fresh; /* until when the last answer is valid, as long as touches are reported */
    struct redis_call *call;  /* the call that is made: 32 kB, too much for a stack */
    char request[TOKEN_SIZE]; /* id of the removal that was requested without a take id; "": none */
    char unanswered[TOKEN_SIZE]; /* id of a take of which a try got no answer; "": none */
    struct errmsg unwritten;     /* what base.warning points to after a release */
};

/* Opens a store for another node of the Cluster of `first`, which must outlive it: its
 * login and its TLS are the same. It starts there, and follows a key that moves. LOCK_OK
 * with *node, which is closed as any backend; LOCK_SYSTEM. */
enum lock_result redis_backend_open_node(struct redis_backend **node,
                                         const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct errmsg *why);

static inline struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

#endif
