#include "util/array.h"

#include <stdlib.h>
#include <string.h>

void *list_with_room(void *list, size_t count, size_t *room, size_t size)
{
    enum { FIRST_ROOM = 16 };
    if (count < *room)
        return list;
    size_t more = *room > 0 ? 2 * *room : FIRST_ROOM;
    void *grown = reallocarray(list, more, size);
    if (grown != NULL)
        *room = more;
    return grown;
}

bool key_list_add(struct key_list *list, const char *key)
{
    char **keys = list_with_room(list->keys, list->count, &list->room, sizeof *keys);
    if (keys == NULL)
        return false;
    list->keys = keys;
    keys[list->count] = strdup(key);
    return keys[list->count] != NULL && ++list->count > 0;
}

static int in_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void key_list_sort(struct key_list *list)
{
    size_t kept = 0;
    if (list->count > 1)
        qsort(list->keys, list->count, sizeof *list->keys, in_order);
    for (size_t i = 0; i < list->count; i++)
        if (kept > 0 && strcmp(list->keys[i], list->keys[kept - 1]) == 0)
            free(list->keys[i]);
        else
            list->keys[kept++] = list->keys[i];
    list->count = kept;
}

void key_list_free(struct key_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->keys[i]);
    free(list->keys);
    *list = (struct key_list){0};
}
