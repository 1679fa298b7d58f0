/* One line of the terminal on stderr, redrawn in place.
 *
 * The cursor rests at its beginning: if the terminal becomes narrower and wraps
 * the line, all of it is behind the cursor, and if it only cuts it off, nothing
 * above is overwritten. What the user types, even ^C, is written over it. A job
 * in the background draws nothing. */
#ifndef DLOCK_UI_TTY_LINE_H
#define DLOCK_UI_TTY_LINE_H

#include <stdbool.h>

struct tty_line {
    bool ready; /* the locale is known */
    int drawn;  /* how many columns of it are on the screen; 0: none */
};

/* True if the terminal ($TERM) can do that. */
bool tty_line_possible(void);

/* True if we may write to the terminal: we are no background job. */
bool tty_line_is_ours(void);

/* Determines the locale: once, and only if a line will be drawn, since that
 * takes longer than the rest of the start. */
void tty_line_prepare(struct tty_line *line);

/* How wide that terminal is. */
int tty_line_columns(int fd);

/* How many columns a text may have at this moment. */
int tty_line_room(void);

/* Shows the text, which must fit in those columns. It is left out if the
 * terminal takes no output just now (Ctrl-S): this never blocks. */
void tty_line_draw(struct tty_line *line, const char *text);

/* Leaves the screen as if nothing had been drawn. */
void tty_line_clear(struct tty_line *line);

#endif
