#include "ui/progress.h"

#include "util/text.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* --- one line of the terminal --------------------------------------------- */

enum { COLUMNS_UNKNOWN = 80, BYTES_MOST = 3072 };

/* EL and ED (ECMA-48) erase from the cursor to the end of the line or of the screen. WRAP_OFF and
 * WRAP_ON switch the terminal's line wrapping (DECAWM). Wrapping is off while dlock draws,
 * because a character that is wider on the terminal than the C library reports would otherwise
 * start a second line. */
#define ERASE_LINE "\033[K"
#define ERASE_BELOW "\033[J"
#define WRAP_OFF "\033[?7l"
#define WRAP_ON "\033[?7h"

/* True if dlock is not a background job, so it may write to the terminal. */
static bool is_ours(void)
{
    return tcgetpgrp(STDERR_FILENO) == getpgrp();
}

int tty_line_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_UNKNOWN;
}

/* The last column stays free, because terminals differ in where they put the cursor after a
 * character in that column. */
int tty_line_room(void)
{
    return tty_line_columns(STDERR_FILENO) - 1;
}

/* Blocks SIGTTOU, because with `stty tostop` the write would stop dlock if the user moved dlock to
 * the background (Ctrl-Z, bg) between the check by is_ours() and the write. */
static bool write_in_foreground(const char *bytes, size_t length)
{
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    if (sigprocmask(SIG_BLOCK, &stop, &before) != 0)
        return false;
    bool written = is_ours() && message_write(bytes, length);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return written;
}

static const char *erase_old(const struct tty_line *line)
{
    return line->drawn > tty_line_columns(STDERR_FILENO) ? "\r" ERASE_BELOW : "\r";
}

void tty_line_draw(struct tty_line *line, const char *text)
{
    char bytes[BYTES_MOST];
    int length = snprintf(bytes, sizeof bytes, "%s" WRAP_OFF "%s" ERASE_LINE WRAP_ON "\r",
                          erase_old(line), text);
    if (length > 0 && (size_t)length < sizeof bytes && write_in_foreground(bytes, (size_t)length))
        line->drawn = mbwidth_of(text);
}

void tty_line_clear(struct tty_line *line)
{
    char bytes[32];
    if (line->drawn == 0)
        return;
    int length = snprintf(bytes, sizeof bytes, "%s" ERASE_LINE, erase_old(line));
    if (length > 0)
        (void)write_in_foreground(bytes, (size_t)length);
    line->drawn = 0;
}

/* --- the wait -------------------------------------------------------------- */

/* How long a wait must last before dlock shows it: on a terminal (a shorter wait would only make
 * the line flicker), and in a CI log. */
static const struct duration shown_after = {300 * NS_PER_MS};
static const struct duration logged_after = {NS_PER_S};

/* The live line is redrawn at this interval if only the time has changed, and never more often than
 * line_least allows. */
static const struct duration line_interval = {NS_PER_S};
static const struct duration line_least = {NS_PER_S / 4};

/* The time between two lines with -v, and between two messages to the service manager. */
static const struct duration lines_interval = {60 * NS_PER_S};
static const struct duration status_interval = {2 * NS_PER_S};

/* The end of a lease, as calculated from two answers of the store, may differ by this much, because
 * one answer took longer to arrive. */
enum { SAME_END_MS = 1000 };

static enum progress_kind choose_kind(const struct messages *out)
{
    const char *terminal = getenv("TERM");
    if (out->terminal && out->verbosity >= 0 && !out->json)
        return terminal != NULL && *terminal != '\0' && strcmp(terminal, "dumb") != 0
                   ? WAIT_VIEW_LIVE
                   : WAIT_VIEW_LINES;
    if (out->verbosity > 0)
        return WAIT_VIEW_LINES;
    /* Without a terminal and without -v, only a CI log shows the wait: users read such a log if a
     * job seems to hang, but cron jobs must stay silent. */
    return out->ci && out->verbosity == 0 && !out->json ? WAIT_VIEW_HOLDERS : WAIT_VIEW_NONE;
}

void progress_open(struct progress *view, const struct awaited_lock *lock, bool waits,
                   const struct messages *out)
{
    *view = (struct progress){.lock = lock, .out = out, .start = deadline_now()};
    if (waits)
        view->kind = choose_kind(out);
    view->next_look = out->terminal ? deadline_plus(view->start, shown_after) : view->start;
    if (view->kind == WAIT_VIEW_HOLDERS)
        view->next_look = deadline_plus(view->start, logged_after);
    view->next_status = view->start;
}

bool progress_attended(const struct progress *view)
{
    return view->kind != WAIT_VIEW_NONE;
}

/* The width of the bar that shows the holder's progress. */
enum { HOLDER_BAR = 10 };

/* --- the facts ------------------------------------------------------------- */

static bool same_process(const struct holder *a, const struct holder *b)
{
    return a->pid == b->pid && a->pid_start == b->pid_start && strcmp(a->boot_id, b->boot_id) == 0;
}

static bool looks_the_same(const struct holder *a, const struct holder *b)
{
    return a->known == b->known && a->expires == b->expires && a->shares == b->shares &&
           a->kept == b->kept && a->detached == b->detached && a->slots_taken == b->slots_taken &&
           a->refusal == b->refusal && a->ahead == b->ahead &&
           a->since_wall_ms == b->since_wall_ms && same_process(a, b) &&
           strcmp(a->host, b->host) == 0 && strcmp(a->user, b->user) == 0 &&
           strcmp(a->command, b->command) == 0 && strcmp(a->pause.by, b->pause.by) == 0 &&
           strcmp(a->pause.message, b->pause.message) == 0;
}

static void note_end(struct progress *view)
{
    const struct holder *holder = &view->holder;
    int64_t until_ms = holder->expires ? wall_after_ms(holder->left) : 0;
    if (until_ms != 0 && view->until_ms != 0 && llabs(until_ms - view->until_ms) < SAME_END_MS)
        return;
    view->changed |= until_ms != view->until_ms;
    view->until_ms = until_ms;
}

/* A holder may release the lock and end right after the store has named it. That looks as if it
 * had died without releasing the lock. So a holder counts as dead only if the store's next answer
 * still names it. */
static void note_death(struct progress *view, bool same_one)
{
    enum process_life life = holder_life_held(&view->holder);
    bool gone = life == PROCESS_ENDED;
    if (gone && !(same_one && view->seems_dead))
        life = PROCESS_UNKNOWN;
    view->changed |= (life == PROCESS_ENDED) != (view->life == PROCESS_ENDED);
    view->life = life;
    view->seems_dead = gone;
}

static void note_holder(struct progress *view, const struct holder *holder)
{
    bool same = looks_the_same(&view->holder, holder),
         same_one = same_process(&view->holder, holder);
    /* An equal remaining time means that this is the store's previous answer again, so nothing has
     * changed. */
    if (same && !view->down && view->holder.left.ns == holder->left.ns &&
        view->holder.pause.left.ns == holder->pause.left.ns)
        return;
    view->changed |= !same || view->down;
    view->down = false;
    view->holder = *holder;
    note_end(view);
    note_death(view, same_one);
}

/* `name` is NULL for a message, which starts with the name anyway. */
static void describe(const struct progress *view, const struct errmsg *why, const char *name,
                     int bar_columns, struct wait_text *text)
{
    wait_text_begin(text, deadline_gap(view->start, deadline_now()), name);
    if (view->down) {
        wait_text_outage(text, why->text, deadline_left(view->down_until));
        return;
    }
    if (view->life != PROCESS_ENDED)
        wait_text_estimate(text, &view->holder, bar_columns);
    wait_text_holder(text, &view->holder, view->until_ms, view->life, view->lock);
}

/* --- showing --------------------------------------------------------------- */

/* The next time at which the wait will have lasted a multiple of `interval`. */
static struct deadline next_interval(const struct progress *view, struct duration interval)
{
    struct duration waited = deadline_gap(view->start, deadline_now());
    return deadline_plus(view->start,
                         (struct duration){(waited.ns / interval.ns + 1) * interval.ns});
}

static void draw(struct progress *view, const struct errmsg *why)
{
    struct wait_text text;
    int room = tty_line_room();
    view->changed = false;
    view->last_drawn = deadline_now();
    view->next_look = next_interval(view, line_interval);
    if (room < 1 || !is_ours())
        return;
    if (!view->line.ready) /* not earlier, because this call is slow */
        (void)setlocale(LC_CTYPE, "");
    view->line.ready = true;
    describe(view, why, view->lock->name, HOLDER_BAR, &text);
    wait_text_fit(&text, room);
    tty_line_draw(&view->line, text.line);
}

/* Replaces the live line with a line that stays, so that the user can read and copy it. */
static void say_once(struct progress *view, const struct errmsg *why)
{
    struct wait_text text;
    if (view->out->terminal && !is_ours())
        return;
    describe(view, why, NULL, 0, &text);
    progress_hide(view);
    say_notice(view->out, "%s", text.line);
}

static struct deadline show_live(struct progress *view, const struct errmsg *why)
{
    bool shown = view->last_drawn.boot_ns > 0;
    struct deadline least = deadline_plus(view->last_drawn, line_least);
    struct deadline due = deadline_before(view->next_look, least) || (shown && view->changed)
                              ? least
                              : view->next_look;
    if (!deadline_passed(due))
        return due;
    draw(view, why);
    return view->next_look;
}

static struct deadline show_lines(struct progress *view, const struct errmsg *why)
{
    if (!deadline_passed(view->next_look))
        return view->next_look;
    say_once(view, why);
    view->next_look = next_interval(view, lines_interval);
    return view->next_look;
}

static struct deadline show_holders(struct progress *view, const struct errmsg *why)
{
    const struct holder *holder = &view->holder;
    bool was_said =
        view->said.known && (same_process(&view->said, holder) || !holder->known || view->down);
    if (was_said)
        return DEADLINE_NEVER;
    if (!deadline_passed(view->next_look))
        return view->next_look;
    say_once(view, why);
    view->said = *holder;
    view->said.known = true; /* a line was printed, even if the holder is unknown */
    return DEADLINE_NEVER;
}

/* systemd regards a unit that waits for its lock as still starting. So each message extends the
 * time limit for the start (TimeoutStartSec) by more than the longest pause between two tries. */
static struct deadline notify_manager(struct progress *view, const struct errmsg *why)
{
    struct wait_text text;
    if (!deadline_passed(view->next_status))
        return view->next_status;
    view->next_status = deadline_after(status_interval);
    describe(view, why, view->lock->name, 0, &text);
    say_status(view->out, "%s", text.line);
    sd_notify_send(&view->out->notify, "EXTEND_TIMEOUT_USEC=%d", 30 * 1000 * 1000);
    return view->next_status;
}

struct deadline progress_show(struct progress *view, const struct holder *holder,
                              const struct errmsg *why, struct deadline down_until)
{
    struct deadline next = DEADLINE_NEVER;
    bool had_died = view->life == PROCESS_ENDED;
    if (view->kind == WAIT_VIEW_NONE && view->out->notify.fd < 0)
        return next;

    if (holder != NULL) {
        note_holder(view, holder);
    } else {
        view->changed |= !view->down;
        view->down = true;
        view->down_until = down_until;
    }

    if (view->kind != WAIT_VIEW_NONE && view->life == PROCESS_ENDED && !had_died)
        say_once(view, why);
    if (view->kind == WAIT_VIEW_LIVE)
        next = show_live(view, why);
    else if (view->kind == WAIT_VIEW_LINES)
        next = show_lines(view, why);
    else if (view->kind == WAIT_VIEW_HOLDERS)
        next = show_holders(view, why);
    return view->out->notify.fd >= 0 ? deadline_earlier(next, notify_manager(view, why)) : next;
}

void progress_say_uncalled(struct progress *view, const char *cannot)
{
    if (view->out->verbosity < 1)
        return;
    progress_hide(view);
    say_verbose(view->out, "the backend cannot notify waiters (%s); dlock polls the lock", cannot);
}

void progress_hide(struct progress *view)
{
    tty_line_clear(&view->line);
}
