/* Lists that grow in an array, of whatever type. */
#ifndef DLOCK_UTIL_LIST_H
#define DLOCK_UTIL_LIST_H

#include <stddef.h>

/* Makes room for one more element behind the `count` that `list` has, by
 * doubling. `room` is how many fit, 0 with a NULL list at first; `size` is that
 * of one element. Returns the list, which may have moved; NULL where memory is
 * short, and the old one is as it was. The caller frees it with free(3). */
void *list_with_room(void *list, size_t count, size_t *room, size_t size);

#endif
