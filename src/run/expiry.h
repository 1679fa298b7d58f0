/* Warns, stops and kills the processes that work under a lease when it ends or
 * is lost. */
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
    /* Signals all processes of the worker that are found before `until`; SIGKILL ends them. */
    void (*signal)(void *data, int number, struct deadline until);
    /* True if nothing is left to watch. If the worker was stopped, true means that left() must
     * decide from now on. */
    bool (*has_ended)(void *data);
    /* Counts the worker's processes that are left after it was stopped. */
    struct tree_count (*left)(void *data);
    /* Handles events other than the end of the worker and of the lease. True if the state of
     * the worker may have changed: the loop then checks it again instead of waiting. */
    bool (*attend)(void *data);
};

/* The phases of a stop, which never go backwards. */
enum stop_phase {
    RUNNING,  /* nothing to do */
    STOPPING, /* the stop signal was sent to all processes; KILL follows at kill_at */
    KILLING,  /* all processes are stopped and killed, again and again until none is left: the next
               * walk finds what was forked during this one */
};

struct expiry_plan {
    struct duration grace; /* negative: lease_grace() */
    int stop_signal;
    bool warn_only; /* --on-expire=warn */
};

struct expiry {
    /* Set by the caller: */
    const struct messages *out;
    struct lease *lease; /* its deadline follows what the watch adopts */
    struct worker worker;
    struct expiry_plan plan;
    struct deadline beaten;   /* the worker's last heartbeat, at first the take; 0: it sends none */
    struct watch_state state; /* the last state that was read */
    /* Results for the caller: */
    enum stop_phase phase;
    bool released; /* the worker released the lock with its token, and runs on without it */
    bool over;     /* the lease ended or was lost while the worker ran */
    struct deadline over_since;
    /* run/expiry.c's own: */
    int notes;               /* how many messages of the watch were printed */
    struct deadline kill_at; /* of STOPPING */
    struct deadline give_up; /* of KILLING */
    struct deadline next_kill;
    bool warned; /* that 90 % of the lease are over */
};

/* Sets `state` from the lease. The caller has set its other members. */
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

/* For a worker that ended without being stopped: reports that it ended too late by the boot clock,
 * which dlock did not see if it was frozen, or that the lock had been lost before. */
void expiry_judge(struct expiry *end);

#endif
