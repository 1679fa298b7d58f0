/* Lists of any type that grow in an array. */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stddef.h>

/* Adds one element of `size` bytes, zeroed, to the array at *list, a pointer to any
 * type, which may move. `count` elements are there and `room` fit: all are 0 at first.
 * Returns the element; NULL if memory is short. The caller frees *list. */
void *array_add(void *list, size_t *count, size_t *room, size_t size);

#endif
