/* A table that fits the terminal, for --list and --history. */
#ifndef DLOCK_UI_TABLE_H
#define DLOCK_UI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MOST = 6, TABLE_GAP = 2 };

/* The caller sets the titles and, if the table can be too wide, `shrinks` and `least`; the rest
 * starts as {0}. */
struct table {
    const char *titles[TABLE_COLUMNS_MOST]; /* NULL after the last one */
    int shrinks; /* the column that, like the last one, is cut if the table is too wide */
    int least;   /* the least total width of that column and the last column */
    char **cells;
    size_t count, room;
};

/* Adds a copy of this text as the next cell. Foreign text in it must already be escaped. False if
 * memory is short. */
bool table_add(struct table *table, const char *cell);

/* Finds the width of each column, so that the table fits in `room` columns of the terminal. If
 * `room` is 0, the table is as wide as it needs to be. Unless the table must be cut, the last
 * column is at least `last` columns wide. Counts columns in the locale that setlocale(3) has
 * set. */
void table_fit(const struct table *table, int room, int last, int widths[TABLE_COLUMNS_MOST]);

/* Prints the rows below a header. Marks a truncated value with '~'. Prints nothing if there are no
 * rows. */
void table_print(FILE *to, const struct table *table, const int widths[TABLE_COLUMNS_MOST]);

void table_free(struct table *table);

#endif
