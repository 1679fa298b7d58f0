/* Growing arrays of any type, and environments for exec(3). */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Appends a zeroed element of `size` bytes to the array at *list, a pointer of any type. The array
 * may move. *count is the number of elements, and *room is the number that fit without growing;
 * *list, *count and *room start as 0. Returns the new element, or NULL if memory is short. The
 * caller frees *list. */
void *array_add(void *list, size_t *count, size_t *room, size_t size);

/* --- an environment for exec(3) --------------------------------------------
 *
 * dlock never changes its own environment, because other threads may read it at any time: for
 * example, a thread that still looks up a host name (redis/socket.c). */

struct environment {
    char **list; /* ends with NULL */
    size_t count, room;
    bool short_of_memory; /* a variable could not be copied or set */
};

/* Makes a copy of dlock's own environment. */
void environment_copy(struct environment *environment);

/* Sets a variable; a NULL value unsets it. */
void environment_set(struct environment *environment, const char *name, const char *value);

/* Returns the variable's value, or NULL if it is not set. */
const char *environment_get(const struct environment *environment, const char *name);

void environment_free(struct environment *environment);

#endif
