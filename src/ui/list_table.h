/* Locks as a table that fits the terminal, for --list. */
#ifndef DLOCK_UI_LIST_TABLE_H
#define DLOCK_UI_LIST_TABLE_H

#include "lock/lock_state.h"

#include <stdbool.h>
#include <stddef.h>

struct listing_row {
    char *name, *holder; /* escaped */
    char left[48], mode[32];
};

struct listing {
    struct listing_row *rows;
    size_t count, room;
};

/* Adds a row. False where memory is short. */
bool listing_add(struct listing *listing, const char *name, const struct lock_state *state);

/* Prints the rows under a headline, cut to `width` columns (0: not cut). Counts
 * by the locale that setlocale(3) has set. */
void listing_print(const struct listing *listing, int width);

void listing_free(struct listing *listing);

/* The columns of the terminal that stdout is; 0 where it is none. */
int listing_width(void);

#endif
