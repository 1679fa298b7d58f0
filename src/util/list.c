#include "util/list.h"

#include <stdlib.h>

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
