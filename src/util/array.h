/* Lists of any type that grow in an array. */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Adds one element of `size` bytes, zeroed, to the array at *list, a pointer to any
 * type, which may move. `count` elements are there and `room` fit: all are 0 at first.
 * Returns the element; NULL if memory is short. The caller frees *list. */
void *array_add(void *list, size_t *count, size_t *room, size_t size);

/* The keys of locks that a search has found, before each is looked at. */

struct key_list {
    char **keys;
    size_t count, room;
};

/* Adds a copy of `key`. False if memory is short. */
bool key_list_add(struct key_list *list, const char *key);

/* Sorts them by their bytes, and removes duplicates. */
void key_list_sort(struct key_list *list);

/* Frees its contents, and leaves it empty. */
void key_list_free(struct key_list *list);

#endif
