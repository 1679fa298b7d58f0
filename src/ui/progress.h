/* Shows a wait to whoever looks on: a live line on a terminal; a line a minute
 * with -v, or where the terminal knows no live ones; a line for each holder in the
 * logs of CI; STATUS= for the service manager. */
#ifndef DLOCK_UI_PROGRESS_H
#define DLOCK_UI_PROGRESS_H

#include "config/options.h"
#include "ui/tty_line.h"
#include "util/errmsg.h"
#include "util/message.h"

#include <stdbool.h>
#include <stdint.h>

enum progress_kind { WAIT_VIEW_NONE, WAIT_VIEW_LIVE, WAIT_VIEW_LINES, WAIT_VIEW_HOLDERS };

struct progress {
    const struct options *options;
    const struct messages *out;
    enum progress_kind kind;
    struct tty_line line;
    struct deadline start;
    struct deadline next_look;   /* when the live line, or a line, is due by time alone */
    struct deadline next_status; /* when the service manager is told again */
    struct deadline last_drawn;
    struct holder told; /* the last one that a line of WAIT_VIEW_HOLDERS was about */
    bool changed;       /* the facts have, since they were last drawn */
    bool down;          /* the store cannot be reached, and is tried until then */
    struct deadline down_until;
    struct holder holder; /* who had it when the store last answered */
    int64_t until_ms;     /* when that ends, by the wall clock; 0: not by itself */
    bool seems_dead;      /* its process was gone after the last answer */
    bool died;            /* and the store names it still in a later one */
};

/* A wait begins. */
void progress_open(struct progress *view, const struct options *options,
                   const struct messages *out);

/* Whether anybody is to be shown anything; whether a person looks on. */
bool progress_wanted(const struct progress *view);
bool progress_attended(const struct progress *view);

/* As patience.pausing, of which it is the work. */
struct deadline progress_show(struct progress *view, const struct holder *holder,
                              const struct errmsg *why, struct deadline down_until);

/* The store cannot call those who wait: said with -v. */
void progress_say_uncalled(struct progress *view, const char *cannot);

/* The wait is over, or something else is to be said: the live line goes. */
void progress_hide(struct progress *view);

#endif
