/* The keys of locks that a search has found, before each is looked at. */
#ifndef DLOCK_UTIL_KEY_LIST_H
#define DLOCK_UTIL_KEY_LIST_H

#include <stdbool.h>
#include <stddef.h>

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
