/* Looking at the locks on a Redis server: at one of them, or at all whose names match. */
#ifndef DLOCK_STORE_REDIS_LOOK_H
#define DLOCK_STORE_REDIS_LOOK_H

#include "store/redis/scripts.h"
#include "util/array.h"

/* Reads the record of a holder whose `left` and so on are known. If the text is no record as
 * dlock writes it, the holder is not `known`. */
void redis_holder_read(const redisReply *record, struct holder *holder);

/* Reads the answer of store/redis/scripts/look.lua. LOCK_OK with *state, which the caller
 * frees; LOCK_UNAVAILABLE for nonsense; LOCK_SYSTEM. */
enum lock_result redis_state_read(struct redis_backend *redis, const redisReply *reply,
                                  const char *key, struct lock_state *state, struct errmsg *why);

/* Finds the keys that are `prefix` followed by a match of the glob (NULL: anything),
 * except the companions of locks; with `all` those of which only {KEY}:meta is left, too; by SCAN in steps that do not hold up the server, and
 * sorts them; `bound` applies to each step. Frees nothing on failure: call
 * key_list_free() in any case. */
enum lock_result redis_keys_find(struct redis_backend *redis, const char *prefix,
                                 const char *pattern, bool all, struct key_list *keys,
                                 struct bound bound, struct errmsg *why);

#endif
