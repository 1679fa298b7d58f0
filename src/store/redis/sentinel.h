/* Redis Sentinel: finding the master, and being notified when another server takes over.
 * Follows "Guidelines for Redis clients with support for Redis Sentinel" (redis.io). For
 * a backend whose URL names no Sentinels all of this does nothing. */
#ifndef DLOCK_STORE_REDIS_SENTINEL_H
#define DLOCK_STORE_REDIS_SENTINEL_H

#include "store/redis/internal.h"

/* Makes the backend's sentinel from its URL and settings. LOCK_OK; LOCK_INVALID,
 * LOCK_REFUSED: the file with the login, as *why says; LOCK_SYSTEM. The caller frees it
 * with redis_sentinel_free() in any case. */
enum lock_result redis_sentinel_init(struct redis_backend *redis, enum redis_fault *fault,
                                     struct errmsg *why);

void redis_sentinel_free(struct redis_backend *redis);

/* Connects, if necessary, to the master that the Sentinels name, and which must itself
 * say that it is one (masters_only). As redis_conn_open(), and LOCK_INVALID if all
 * Sentinels say that there is no master of this name. */
enum lock_result redis_sentinel_open(struct redis_backend *redis, struct bound bound,
                                     struct errmsg *why);

/* For a holder or waiter, after each question to the master: makes sure that a Sentinel
 * reports the next master, and asks for it from time to time. If the master has changed,
 * the connection is closed, and redis_sentinel_moved() is true. No failure of it matters. */
void redis_sentinel_attend(struct redis_backend *redis, struct bound bound);

/* Reads what a Sentinel has reported, without waiting. If the server is no longer the
 * master, its connection is closed. True if the Sentinel has just left us: another
 * question to the master turns to the next one. */
bool redis_sentinel_hear(struct redis_backend *redis);

/* The master was no master, or could not be asked: the next time another Sentinel is
 * asked first, unless one has just reported a new master. */
void redis_sentinel_failed(struct redis_backend *redis);

/* True if there are Sentinels and none of them would report a new master. */
bool redis_sentinel_is_unsubscribed(const struct redis_backend *redis);

/* When a holder must attend to them at the latest because none accepts our subscription;
 * 0: at any check. */
struct deadline redis_sentinel_asks(const struct redis_backend *redis);

/* True if another server is the master, and has not been asked yet; the connection to the
 * old one is closed then. */
bool redis_sentinel_moved(struct redis_backend *redis);

/* For --doctor: redis_backend_ask_sentinel(). */
enum lock_result redis_sentinel_ask_one(struct redis_backend *redis, int i,
                                        char master[ENDPOINT_TEXT_SIZE], bool *refuses,
                                        struct bound bound, struct errmsg *why);

/* One descriptor for the reports of the master on `fd` (-1: none) and of the Sentinel. It
 * belongs to the backend. */
int redis_sentinel_join(struct redis_backend *redis, int fd);

#endif
