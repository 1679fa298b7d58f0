/* Acts when a lease ends or is lost: warns the user, and stops and kills the processes that work
 * under the lease. */
#ifndef DLOCK_RUN_EXPIRY_H
#define DLOCK_RUN_EXPIRY_H

#include "lock/lease.h"
#include "process/tree.h"
#include "run/watch.h"
#include "util/message.h"

#include <stdbool.h>

/* The process that works under the lease, with its descendants: the command, or the process
 * that a lock is attached to. */
struct worker {
    const char *name; /* as used in a sentence: "the command" */
    void *data;
    /* Signals all processes of the worker that are found before `until`; SIGKILL ends them all
     * (tree_signal()). */
    void (*signal)(void *data, int number, struct deadline until);
    /* True if the worker has ended or need not be watched any more. If dlock has begun to stop the
     * worker, left() then decides whether the stop is complete. */
    bool (*has_ended)(void *data);
    /* Counts the worker's processes that are left after it was stopped. */
    struct tree_count (*left)(void *data);
    /* Handles events other than the end of the worker and of the lease. True if the state of the
     * worker may have changed: the loop then calls has_ended() again instead of waiting. */
    bool (*attend)(void *data);
};

/* The phases of a stop, which never go backwards. */
enum stop_phase {
    RUNNING,  /* no stop has begun */
    STOPPING, /* the stop signal was sent to all processes; KILL follows at kill_at */
    KILLING,  /* all processes are frozen and killed, again and again until none is left: each walk
               * over the processes finds what was forked during the one before */
};

struct expiry_plan {
    struct duration grace; /* negative: the default, see lease_grace() */
    int stop_signal;
    bool warn_only; /* --on-expire=warn */
};

struct expiry {
    /* Set by the caller: */
    const struct messages *out;
    struct lease *lease; /* its deadline follows what the watch adopts */
    struct worker worker;
    struct expiry_plan plan;
    /* When the worker's last heartbeat came, at first when the lock was taken; 0: it sends none. */
    struct deadline beaten;
    struct watch_state state; /* the last state that was read */
    /* Results for the caller: */
    enum stop_phase phase;
    bool released; /* the lock was released with its token; the worker runs on without the lock */
    bool over;     /* the lease ended or was lost while the worker ran */
    struct deadline over_since;
    /* run/expiry.c's own: */
    int notes;               /* how many messages of the watch were printed */
    struct deadline kill_at; /* when STOPPING becomes KILLING */
    struct deadline give_up; /* when KILLING is given up */
    struct deadline next_kill;
    bool warned; /* the user was warned that 90 % of the lease has passed */
};

/* Sets end->state from the lease. The caller has set the other members that it must set. */
void expiry_init(struct expiry *end);

/* Does what the boot clock and end->state require at this moment. The caller first checks
 * whether the worker has ended, so that a worker that has ended by itself is not reported as
 * stopped. */
void expiry_act(struct expiry *end);

/* When expiry_act() next has to act by the clock. */
struct deadline expiry_next(const struct expiry *end);

/* Kills the worker, regardless of the lease. */
void expiry_kill(struct expiry *end);

/* True if killing has gone on for as long as it makes sense: the remaining processes hang in the
 * kernel, or cannot be reached. */
bool expiry_gives_up(const struct expiry *end);

/* Reports which processes of the worker are left when killing is given up. */
void expiry_say_left(const struct expiry *end, struct tree_count left);

/* For a worker that dlock did not stop. Reports if the worker ended, by the boot clock, after the
 * end of the lease (dlock did not see that in time if it was frozen), or if the lock was lost
 * before the worker ended. */
void expiry_judge(struct expiry *end);

#endif
