/* What a Redis server knows of locks: one of them, or all of a name's kind. */
#ifndef DLOCK_REDIS_STATE_H
#define DLOCK_REDIS_STATE_H

#include "redis_scripts.h"

/* Reads the answer of look.lua. LOCK_OK with *state to be freed;
 * LOCK_UNAVAILABLE for nonsense; LOCK_SYSTEM. */
enum lock_result redis_state_read(struct redis_backend *redis, const redisReply *reply, const char *key,
                                  struct lock_state *state, struct why *why);

struct redis_keys {
    char **list; /* sorted; some may be there twice */
    size_t count, room;
};

/* Finds the keys that begin with `prefix` and go on with what matches the glob
 * (NULL: anything), apart from the companions of locks, by SCAN in steps
 * that do not hold up the server; `bound` holds for each step. Frees nothing on
 * failure: redis_keys_free() in any case. */
enum lock_result redis_keys_find(struct redis_backend *redis, const char *prefix, const char *pattern,
                                 struct redis_keys *keys, struct bound bound, struct why *why);

void redis_keys_free(struct redis_keys *keys);

#endif
