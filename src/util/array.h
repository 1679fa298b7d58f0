/* Lists of any type that grow in an array. */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Adds one element of `size` bytes, zeroed, to the array at *list, a pointer to any
 * type, which may move. `count` elements are there and `room` fit: all are 0 at first.
 * Returns the element; NULL if memory is short. The caller frees *list. */
void *array_add(void *list, size_t *count, size_t *room, size_t size);

/* --- an environment for exec(3) --------------------------------------------
 *
 * dlock never changes its own: other threads, such as a resolver that was abandoned
 * (redis/socket.c), may read it at any time. */

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
