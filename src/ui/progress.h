/* Shows a wait to the user: a live line on a terminal; a line a minute with -v, or if the terminal
 * cannot show live ones; a line for each holder in CI logs; STATUS= for the service manager. */
#ifndef DLOCK_UI_PROGRESS_H
#define DLOCK_UI_PROGRESS_H

#include "ui/wait_text.h"
#include "util/errmsg.h"
#include "util/message.h"

#include <stdbool.h>
#include <stdint.h>

/* --- one line of the terminal on stderr, redrawn in place ------------------
 *
 * The cursor rests at the beginning of the line. If the terminal becomes narrower and wraps the
 * line, all of it is after the cursor; if the terminal cuts the line, nothing above is overwritten.
 * Input of the user, even ^C, is written over the line. A background job draws nothing. */

struct tty_line {
    bool ready; /* the locale is known */
    int drawn;  /* how many columns of it are on the screen; 0: none */
};

/* How wide the terminal is. */
int tty_line_columns(int fd);

/* How many columns a text may have at this moment. */
int tty_line_room(void);

/* Shows the text, which must fit in those columns. Never blocks: if the terminal takes no output now
 * (Ctrl-S), nothing is shown. */
void tty_line_draw(struct tty_line *line, const char *text);

/* Leaves the screen as if nothing had been drawn. */
void tty_line_clear(struct tty_line *line);

/* --- the wait -------------------------------------------------------------- */

enum progress_kind { WAIT_VIEW_NONE, WAIT_VIEW_LIVE, WAIT_VIEW_LINES, WAIT_VIEW_HOLDERS };

struct progress {
    const struct awaited_lock *lock;
    const struct messages *out;
    enum progress_kind kind;
    struct tty_line line;
    struct deadline start;
    struct deadline next_look;   /* when time alone makes a new live line, or a line, due */
    struct deadline next_status; /* when to update the service manager */
    struct deadline last_drawn;
    struct holder said; /* the last one that a line of WAIT_VIEW_HOLDERS was about */
    bool changed;       /* the facts have changed since they were last drawn */
    bool down;          /* the store cannot be reached, and is retried until then */
    struct deadline down_until;
    struct holder holder;   /* the holder when the store last answered */
    int64_t until_ms;       /* when its lease ends, by the wall clock; 0: not by itself */
    bool seems_dead;        /* its process was gone after the last answer */
    enum process_life life; /* PROCESS_ENDED: and a later answer of the store still names it */
};

/* A wait starts; or, if not `waits`, dlock asks for the lock only once. */
void progress_open(struct progress *view, const struct awaited_lock *lock, bool waits,
                   const struct messages *out);

/* True if a user is watching. */
bool progress_attended(const struct progress *view);

/* To be called before each pause of the wait, and in the pause at the time that the last call returned.
 * The wait is for the holder, or, if `holder` is NULL, for the store: `why` says what is wrong with
 * it, and it is tried until `down_until`. Returns when to call again, if the pause lasts that
 * long. */
struct deadline progress_show(struct progress *view, const struct holder *holder,
                              const struct errmsg *why, struct deadline down_until);

/* The store cannot notify waiters: printed with -v. */
void progress_say_uncalled(struct progress *view, const char *cannot);

/* The wait is over, or another message follows: removes the live line. */
void progress_hide(struct progress *view);

#endif
