/* An environment for exec(3). dlock never changes its own: other threads, such as a
 * resolver that was abandoned (redis/socket.c), may read it at any time. */
#ifndef DLOCK_UTIL_ENVIRONMENT_H
#define DLOCK_UTIL_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

struct environment {
    char **list; /* ends with NULL */
    size_t count, room;
    bool short_of_memory; /* something could not be set */
};

/* Fills it with a copy of ours. */
void environment_copy(struct environment *environment);

/* A NULL value unsets it. */
void environment_set(struct environment *environment, const char *name, const char *value);

/* NULL: it is not set. */
const char *environment_get(const struct environment *environment, const char *name);

void environment_free(struct environment *environment);

#endif
