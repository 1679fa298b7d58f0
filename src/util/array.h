/* Lists of any type that grow in an array. */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for one more element behind the `count` that `list` has, by
 * doubling. `room` is how many fit, 0 with a NULL list at first; `size` is that
 * of one element. Returns the list, which may have moved; NULL if memory is
 * short, and the old one is unchanged. The caller frees it with free(3). */
void *list_with_room(void *list, size_t count, size_t *room, size_t size);

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
