#include "lock/lease.h"

#include "util/fileutils.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const mode_names[] = {
    [MODE_EXCLUSIVE] = "exclusive",
    [MODE_SHARED] = "shared",
    [MODE_SLOTS] = "slots",
};

const char *lock_mode_name(enum lock_mode mode)
{
    return mode_names[mode];
}

bool lock_mode_parse(const char *name, enum lock_mode *mode)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof *mode_names; i++) {
        if (strcmp(name, mode_names[i]) == 0) {
            *mode = (enum lock_mode)i;
            return true;
        }
    }
    return false;
}

struct duration lease_drift(struct duration ttl)
{
    struct duration drift = {ttl.ns / 100};
    return duration_min(duration_max(drift, DURATION_MS(2)), DURATION_S(1));
}

static struct deadline lease_deadline(struct deadline before, struct duration left)
{
    return deadline_minus(deadline_plus(before, left), lease_drift(left));
}

void lease_begin(struct lease *lease, const struct lock_request *request, struct deadline before,
                 int64_t fence)
{
    *lease = (struct lease){
        .name = request->name,
        .key = request->key,
        .token = request->token,
        .take_id = request->take_id,
        .mode = request->mode,
        .slots = request->slots,
        .slot = -1,
        .ttl = request->ttl,
        .set = request->ttl,
        .fence = fence,
        .taken = before,
        .hold = deadline_after(request->hold_at_least),
        .began_ms = wall_now_ms(),
        .remember = request->remember,
        .deadline = lease_deadline(before, request->ttl),
        .granted = lease_deadline(before, request->ttl),
    };
}

struct duration lease_grace(struct duration set, struct duration given)
{
    return given.ns >= 0 ? given : duration_min(DURATION_S(10), (struct duration){set.ns / 10});
}

bool lease_is_as_taken(const struct lease *lease, struct duration set)
{
    struct duration slack = lease_grace(lease->ttl, (struct duration){-1});
    return set.ns >= lease->ttl.ns - slack.ns && set.ns <= lease->ttl.ns + slack.ns;
}

struct deadline lease_warning_time(const struct lease *lease, struct deadline deadline)
{
    return deadline_minus(deadline, (struct duration){lease->set.ns / 10});
}

bool lease_as_good_as_over(const struct lease *lease)
{
    return deadline_passed(lease_warning_time(lease, lease->deadline));
}

/* True if two checks report the same end of a lease. The times may differ slightly, because they
 * are rounded, and because the Redis script adds two times that it reads one after the other (TIME
 * and PTTL). */
static bool is_same_end(int64_t a_ms, int64_t b_ms)
{
    enum { SLACK_MS = 20 };
    return a_ms - b_ms <= SLACK_MS && b_ms - a_ms <= SLACK_MS;
}

void lease_adopt(struct lease *lease, struct deadline before, struct deadline after,
                 struct duration left, int64_t end_ms)
{
    struct deadline deadline = lease_deadline(before, left);

    if (!is_same_end(end_ms, lease->end_ms)) {
        lease->granted = deadline;
        lease->set = left;
        lease->end_ms = end_ms;
    }
    bool ends_sooner = deadline_before(deadline_plus(after, left), lease->granted);
    lease->deadline = ends_sooner ? deadline : lease->granted;
}

void lease_extend(struct lease *lease, struct deadline before, struct duration least)
{
    struct deadline deadline = lease_deadline(before, least);

    if (deadline_before(lease->granted, deadline)) {
        lease->granted = deadline;
        lease->set = least;
    }
    if (deadline_before(lease->deadline, deadline))
        lease->deadline = deadline;
}

void lease_cut(struct lease *lease, struct deadline end)
{
    lease->deadline = deadline_earlier(lease->deadline, end);
    lease->granted = deadline_earlier(lease->granted, end);
}

struct deadline holder_end(const struct holder *holder)
{
    struct duration left = holder->expires ? holder->left : DURATION_ZERO;
    left = duration_max(left, holder->pause.left);
    if (left.ns <= 0)
        return DEADLINE_NEVER;
    return deadline_plus(deadline_after(left), DURATION_MS(1));
}

void holder_fill_place(struct holder *holder)
{
    proc_boot_id(holder->boot_id, sizeof holder->boot_id);
    holder->pid_space = proc_pid_space();
}

void holder_fill(struct holder *holder, pid_t pid, const char *command)
{
    struct proc_stat stat = {0};

    *holder = (struct holder){
        .known = true, .pid = pid > 0 ? pid : getpid(), .since_wall_ms = wall_now_ms()};
    if (gethostname(holder->host, sizeof holder->host - 1) != 0)
        holder->host[0] = '\0';
    holder_fill_place(holder);
    if (proc_stat_read(pid, &stat))
        holder->pid_start = stat.start;
    /* In containers and in root's systemd units, neither variable is set. getpwuid(3) is not used,
     * because it may ask a directory service at every run. */
    const char *user = getenv("LOGNAME");
    if (user == NULL || *user == '\0')
        user = getenv("USER");
    if (user != NULL && *user != '\0')
        text_copy(holder->user, sizeof holder->user, user);
    else
        (void)user_name_local(geteuid(), holder->user, sizeof holder->user);
    text_copy(holder->command, sizeof holder->command, command != NULL ? command : stat.name);
}

/* Compares the pid and the start time. Both may be the same for processes on different hosts or in
 * different pid namespaces. */
static bool has_same_numbers(const struct holder *a, const struct holder *b)
{
    return a->pid == b->pid && a->pid_start == b->pid_start;
}

static bool has_same_place(const struct holder *a, const struct holder *b)
{
    return a->pid_space == b->pid_space && strcmp(a->boot_id, b->boot_id) == 0;
}

bool holder_is_near(const struct holder *holder, const struct holder *self)
{
    return holder->known && holder->pid > 0 && holder->pid_space != 0 &&
           holder->boot_id[0] != '\0' && has_same_place(holder, self);
}

enum process_life holder_life(const struct holder *holder)
{
    struct holder self = {.known = true};
    holder_fill_place(&self);
    if (!holder_is_near(holder, &self))
        return PROCESS_UNKNOWN;
    return proc_life((struct process_id){holder->pid, holder->pid_start});
}

enum process_life holder_life_held(const struct holder *holder)
{
    return holder->detached || holder->kept || holder->refusal == REFUSED_QUEUED
               ? PROCESS_UNKNOWN
               : holder_life(holder);
}

bool holder_is_process(const struct holder *holder, const struct holder *self)
{
    return holder_is_near(holder, self) && has_same_numbers(holder, self);
}

bool holder_is_same(const struct holder *a, const struct holder *b)
{
    return a->known == b->known && has_same_numbers(a, b) && has_same_place(a, b) &&
           strcmp(a->host, b->host) == 0 && strcmp(a->command, b->command) == 0;
}
