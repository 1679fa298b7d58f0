/* Lists that grow in an array, of whatever type. */
#ifndef DLOCK_UTIL_ARRAY_H
#define DLOCK_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for one more element behind the `count` that `list` has, by
 * doubling. `room` is how many fit, 0 with a NULL list at first; `size` is that
 * of one element. Returns the list, which may have moved; NULL where memory is
 * short, and the old one is as it was. The caller frees it with free(3). */
void *list_with_room(void *list, size_t count, size_t *room, size_t size);

/* The keys of locks that a search has found, before each is looked at. */

struct key_list {
    char **keys;
    size_t count, room;
};

/* Adds a copy of `key`. False where memory is short. */
bool key_list_add(struct key_list *list, const char *key);

/* In the order of their bytes, and each once. */
void key_list_sort(struct key_list *list);

/* Frees what is in it, and leaves it empty. */
void key_list_free(struct key_list *list);

#endif
