#include "util/array.h"

#include <stdlib.h>
#include <string.h>

void *array_add(void *list, size_t *count, size_t *room, size_t size)
{
    enum { FIRST_ROOM = 16 };
    char *elements;
    memcpy(&elements, list, sizeof elements);
    if (*count == *room) {
        size_t more = *room > 0 ? 2 * *room : FIRST_ROOM;
        char *grown = reallocarray(elements, more, size);
        if (grown == NULL)
            return NULL;
        elements = grown;
        memcpy(list, &elements, sizeof elements);
        *room = more;
    }
    return memset(elements + (*count)++ * size, 0, size);
}

bool key_list_add(struct key_list *list, const char *key)
{
    char **added = array_add(&list->keys, &list->count, &list->room, sizeof *added);
    if (added != NULL)
        *added = strdup(key);
    if (added != NULL && *added == NULL)
        list->count--;
    return added != NULL && *added != NULL;
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
