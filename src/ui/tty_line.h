/* One line of the terminal that stderr is, redrawn in place.
 *
 * The cursor rests at its beginning: where the terminal becomes narrower and
 * wraps the line, all of it is behind the cursor, and where it only cuts it off
 * there is nothing above to be hit. What the user types, ^C too, is written over
 * it. Nothing is drawn by a job in the background. */
#ifndef DLOCK_UI_TTY_LINE_H
#define DLOCK_UI_TTY_LINE_H

#include <stdbool.h>

struct tty_line {
    bool ready; /* the locale is known */
    bool utf8;  /* what it can show: else ASCII alone */
    int drawn;  /* how many columns of it are on the screen; 0: nothing is */
};

/* Whether the terminal ($TERM) can do that. */
bool tty_line_possible(void);

/* Whether the terminal is ours to write to: we are no background job. */
bool tty_line_is_ours(void);

/* Finds out about the locale: once, and only where a line is to be drawn, since
 * that takes longer than all else at a start. */
void tty_line_prepare(struct tty_line *line);

/* How many columns a text may have, at this moment. */
int tty_line_room(void);

/* Shows the text, which has no more columns than there is room for. It is left
 * out where the terminal takes nothing just now (Ctrl-S): this never blocks. */
void tty_line_draw(struct tty_line *line, const char *text);

/* Leaves the screen as if nothing had been drawn. */
void tty_line_clear(struct tty_line *line);

#endif
