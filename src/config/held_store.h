/* The settings that lead to a lock's store and key, in the first word of its line of
 * DLOCK_HELD: "file?lock-dir=/run/lock/dlock", "redis?redis=redis://a&prefix=p:", with '%'
 * and two digits for other bytes. Passwords are left out, and paths are absolute. A
 * setting that is not named has its default. */
#ifndef DLOCK_CONFIG_HELD_STORE_H
#define DLOCK_CONFIG_HELD_STORE_H

#include "config/options.h"

/* The whole word for a lock that these settings have led to a store of this kind in; lock_dir is
 * the lock directory in use, NULL: none. The caller frees it. NULL: memory is short. */
char *held_store_format(const struct settings *settings, const char *kind, const char *lock_dir);

/* Adds the settings of the `length` bytes after the "?". If the URLs of Redis that are
 * `configured` (NULL: none) are the same, they count, with their passwords. SETTINGS_OK;
 * SETTINGS_BAD_CONFIG: the word is not valid; SETTINGS_NO_MEMORY. */
enum settings_result held_store_read(struct settings *settings, const char *store, size_t length,
                                     const char *configured);

/* True for a setting that such a word covers, named in it or not. */
bool held_store_has(enum option_id id);

#endif
