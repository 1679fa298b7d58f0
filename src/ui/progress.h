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

enum wait_view_kind { WAIT_VIEW_NONE, WAIT_VIEW_LIVE, WAIT_VIEW_LINES, WAIT_VIEW_HOLDERS };

struct wait_view {
    const struct options *options;
    const struct messages *out;
    enum wait_view_kind kind;
    struct live_line line;
    struct deadline start;
    struct deadline next_look;   /* when the live line, or a line, is due by time alone */
    struct deadline next_status; /* when the service manager is told again */
    struct deadline last_drawn;
    struct holder told; /* the last one that a line of WAIT_VIEW_HOLDERS was about */
    bool changed; /* the facts have, since they were last drawn */
    bool down;    /* the store cannot be reached, and is tried until then */
    struct deadline down_until;
    struct holder holder; /* who had it when the store last answered */
    int64_t until_ms;     /* when that ends, by the wall clock; 0: not by itself */
    bool seems_dead;      /* its process was gone after the last answer */
    bool died;            /* and the store names it still in a later one */
};

/* A wait begins. */
void wait_view_open(struct wait_view *view, const struct options *options, const struct messages *out);

/* Whether anybody is to be shown anything; whether a person looks on. */
bool wait_view_wanted(const struct wait_view *view);
bool wait_view_attended(const struct wait_view *view);

/* As patience.pausing, of which it is the work. */
struct deadline wait_view_show(struct wait_view *view, const struct holder *holder, const struct why *why,
                               struct deadline down_until);

/* The store cannot call those who wait: said with -v. */
void wait_view_say_uncalled(struct wait_view *view, const char *cannot);

/* The wait is over, or something else is to be said: the live line goes. */
void wait_view_hide(struct wait_view *view);

#endif
