/* The slot of a key in a Redis Cluster. */
#ifndef DLOCK_STORE_REDIS_KEYS_H
#define DLOCK_STORE_REDIS_KEYS_H

#include <stdbool.h>

enum { REDIS_SLOTS = 16384 };

/* From 0 to REDIS_SLOTS - 1, by the key's hash tag or, without one, all of it
 * (Redis Cluster specification, "Key distribution model"). */
int redis_slot(const char *key);

/* True if the companions of a lock with this key are in its slot. They are not if the key
 * has no hash tag, but a '}' (lock_key_companion()). */
bool redis_keys_is_shared(const char *key);

#endif
