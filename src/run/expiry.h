/* Warns, stops and kills the processes that work under a lease when it ends or
 * is lost. */
#ifndef DLOCK_RUN_EXPIRY_H
#define DLOCK_RUN_EXPIRY_H

#include "lock/lease.h"
#include "process/tree.h"
#include "run/watch.h"
#include "util/message.h"

#include <stdbool.h>

/* The process that works under the lease, with all that it has started: the command, or the
 * process that a lock is attached to. */
struct worker {
    const char *name; /* as used in a sentence: "the command" */
    void *data;
    /* Signals all of its processes that can be found until `until`; SIGKILL ends them. */
    void (*signal)(void *data, int number, struct deadline until);
    /* True if nothing is left to be watched; of a worker that was stopped, if only left() has
     * to be asked any more. */
    bool (*has_ended)(void *data);
    /* Counts its processes that are left after it was stopped. */
    struct tree_count (*left)(void *data);
    /* Does what is neither its end nor that of the lease. True if the state of the worker may
     * have changed: the loop then looks again instead of waiting. */
    bool (*attend)(void *data);
};

/* Goes through these phases, never backwards. */
enum stop_phase {
    RUNNING,  /* nothing to do */
    STOPPING, /* the stop signal was sent to all of them; KILL follows at kill_at */
    KILLING,  /* all are stopped and killed, again and again until none is left:
               * what is forked during one walk is found by the next */
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
    struct watch_state state; /* the last that was read */
    /* Results for the caller: */
    enum stop_phase phase;
    bool released; /* with its own token, by the worker: it runs on without the lock */
    bool over;     /* the lease ended or was lost while the worker ran */
    struct deadline over_since;
    /* run/expiry.c's own: */
    int notes;               /* how many messages of the watch were printed */
    struct deadline kill_at; /* of STOPPING */
    struct deadline give_up; /* of KILLING */
    struct deadline next_kill;
    bool warned; /* that 90 % of the lease are over */
};

/* Starts the clock; the caller's members but for `state` are set. */
void expiry_init(struct expiry *end);

/* Does what the boot clock and end->state require at this moment. The caller
 * first checks whether the worker has ended, so that one which ended by itself
 * is not reported as stopped. */
void expiry_act(struct expiry *end);

/* When expiry_act() next has to act by the clock. */
struct deadline expiry_next(const struct expiry *end);

/* Kills the worker, whatever the lease says. */
void expiry_kill(struct expiry *end);

/* True if killing has gone on for as long as it makes sense: what is left hangs
 * in the kernel, or is out of our reach. */
bool expiry_gives_up(const struct expiry *end);

/* Reports which processes of the worker are left then. */
void expiry_say_left(const struct expiry *end, struct tree_count left);

/* The worker has ended, and was not stopped. By the clock it may still have
 * ended too late, if dlock was frozen with it or beside it. */
void expiry_judge(struct expiry *end);

#endif
