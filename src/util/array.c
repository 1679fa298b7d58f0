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
