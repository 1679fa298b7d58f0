/* Locks as a table that fits the terminal, for --list. */
#ifndef DLOCK_UI_LIST_TABLE_H
#define DLOCK_UI_LIST_TABLE_H

#include "lock/lock_state.h"

#include <stdbool.h>
#include <stddef.h>

struct list_table_row {
    char *name, *holder; /* escaped */
    char left[48], mode[32];
};

struct list_table {
    struct list_table_row *rows;
    size_t count, room;
};

/* Adds a row. False if memory is short. */
bool list_table_add(struct list_table *listing, const char *name, const struct lock_state *state);

/* Prints the rows below a header, cut to the columns of the terminal on stdout; not cut if
 * stdout is none. Counts columns by the locale that setlocale(3) has set. */
void list_table_print(const struct list_table *listing);

void list_table_free(struct list_table *listing);

#endif
