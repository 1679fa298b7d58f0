/* Shows a wait to the user: a live line on a terminal; a line a minute with -v, or if the terminal
 * cannot show a live line; a line for each holder in CI logs; STATUS= for the service manager. */
#ifndef DLOCK_UI_PROGRESS_H
#define DLOCK_UI_PROGRESS_H

#include "ui/wait_text.h"
#include "util/errmsg.h"
#include "util/message.h"

#include <stdbool.h>
#include <stdint.h>

/* --- one line of the terminal on stderr, redrawn in place ------------------
 *
 * The cursor rests at the beginning of the line. So if the terminal becomes narrower, and wraps or
 * cuts the line, the line still begins at the cursor, and dlock overwrites nothing above it. What
 * the user types, even ^C, appears over the line. A background job draws nothing. */

struct tty_line {
    bool ready; /* setlocale(3) has been called */
    int drawn;  /* the width of the text on the screen, in columns; 0: no text */
};

/* The width of the terminal. */
int tty_line_columns(int fd);

/* How many columns a text on a line of the terminal may have at the moment. */
int tty_line_room(void);

/* Shows the text, which must fit in tty_line_room() columns. Never blocks: shows nothing if the
 * terminal takes no output now (Ctrl-S). */
void tty_line_draw(struct tty_line *line, const char *text);

/* Erases the line, as if nothing had been drawn. */
void tty_line_clear(struct tty_line *line);

/* --- the wait -------------------------------------------------------------- */

enum progress_kind { WAIT_VIEW_NONE, WAIT_VIEW_LIVE, WAIT_VIEW_LINES, WAIT_VIEW_HOLDERS };

struct progress {
    const struct awaited_lock *lock;
    const struct messages *out;
    enum progress_kind kind;
    struct tty_line line;
    struct deadline start;
    struct deadline next_look;   /* when the next line is due if no fact changes */
    struct deadline next_status; /* when to update the service manager */
    struct deadline last_drawn;
    struct holder said; /* the holder that WAIT_VIEW_HOLDERS printed last */
    bool changed;       /* the facts have changed since they were last drawn */
    bool down;          /* the store cannot be reached; dlock retries until down_until */
    struct deadline down_until;
    struct holder holder; /* the holder when the store last answered */
    int64_t until_ms;     /* when the lease ends, by the wall clock; 0: it does not end by itself */
    bool seems_dead;      /* the holder's process was gone when the store last answered */
    enum process_life life; /* PROCESS_ENDED only if a later answer still names the holder */
};

/* Starts to show a wait. If `waits` is false, dlock requests the lock only once, and shows the user
 * nothing. */
void progress_open(struct progress *view, const struct awaited_lock *lock, bool waits,
                   const struct messages *out);

/* True if the wait is shown to a user. */
bool progress_attended(const struct progress *view);

/* Call this before each pause of the wait, and again during the pause at the time that the last
 * call returned. dlock waits for `holder`. If `holder` is NULL, dlock waits for the store: `why`
 * says what is wrong with the store, and dlock retries until `down_until`. Returns when to call
 * again, if the pause lasts that long. */
struct deadline progress_show(struct progress *view, const struct holder *holder,
                              const struct errmsg *why, struct deadline down_until);

/* Prints, with -v, that the store cannot notify waiters. */
void progress_say_uncalled(struct progress *view, const char *cannot);

/* Removes the live line, because the wait is over or another message follows. */
void progress_hide(struct progress *view);

#endif
