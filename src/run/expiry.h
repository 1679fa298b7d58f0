/* Acts when a lease ends or is lost: warns the user, and stops and kills the processes that work
 * under the lease. */
#ifndef DLOCK_RUN_EXPIRY_H
#define DLOCK_RUN_EXPIRY_H

#include "lock/lease.h"
#include "process/tree.h"
#include "run/watch.h"
#include "util/message.h"

#include <stdbool.h>

/* The process that works under the lease, and its descendants. The process is the command, or the
 * one that a lock is attached to. */
struct worker {
    const char *name; /* as used in messages: "the command" */
    void *data;
    /* Sends the signal to all processes of the worker that are found before `until`. SIGKILL ends
     * all of them (see tree_signal()). */
    void (*signal)(void *data, int number, struct deadline until);
    /* True if the worker has ended or need not be watched any more. If this is true after dlock has
     * begun to stop the worker, dlock also calls left() to find out whether the stop is
     * complete. */
    bool (*has_ended)(void *data);
    /* Counts the worker's remaining processes after it was stopped. */
    struct tree_count (*left)(void *data);
    /* Handles all events except the end of the worker and the end of the lease. True if the state
     * of the worker may have changed: the loop then calls has_ended() again instead of waiting. */
    bool (*attend)(void *data);
};

/* The phases of stopping the worker, in this order. */
enum stop_phase {
    RUNNING,  /* no stop has begun */
    STOPPING, /* the stop signal was sent to all processes; SIGKILL follows at kill_at */
    KILLING,  /* all processes are frozen and killed, repeatedly until none is left, because
               * processes may fork while dlock is looking for them */
};

struct expiry_plan {
    struct duration grace; /* negative: the default, see lease_grace() */
    int stop_signal;
    bool warn_only; /* --on-expire=warn */
};

struct expiry {
    /* Set by the caller: */
    const struct messages *out;
    struct lease *lease; /* its deadline is updated when the watch thread reports a new one */
    struct worker worker;
    struct expiry_plan plan;
    /* The time of the worker's last heartbeat or, before the first one, of the acquisition. 0: the
     * worker sends no heartbeats. */
    struct deadline beaten;
    struct watch_state state; /* the last state that was read from the watch thread */
    /* Results for the caller: */
    enum stop_phase phase;
    bool released; /* the lock was released with its owner token, and the worker runs on */
    bool over;     /* the lease ended or was lost while the worker ran */
    struct deadline over_since;
    /* Private to run/expiry.c: */
    int notes;               /* how many messages of the watch thread were printed */
    struct deadline kill_at; /* when STOPPING becomes KILLING */
    struct deadline give_up; /* when dlock gives up killing */
    struct deadline next_kill;
    bool warned; /* the user was warned that 90 % of the lease has passed */
};

/* Sets end->state from the lease. Before the call, set those members that are marked "Set by the
 * caller" in struct expiry. */
void expiry_init(struct expiry *end);

/* Warns the user, or stops or kills the worker, as the boot clock and end->state require now. The
 * caller must first check whether the worker has ended, so that a worker that has ended by itself
 * is not reported as stopped. */
void expiry_act(struct expiry *end);

/* When expiry_act() must be called next, even if no event comes before. */
struct deadline expiry_next(const struct expiry *end);

/* Kills the worker, regardless of the lease. */
void expiry_kill(struct expiry *end);

/* True if dlock has tried to kill the worker for long enough: the remaining processes hang in the
 * kernel, or cannot be reached. */
bool expiry_gives_up(const struct expiry *end);

/* Reports the worker's remaining processes when dlock gives up killing them. */
void expiry_say_left(const struct expiry *end, struct tree_count left);

/* Called when the worker has ended. If dlock did not stop the worker, reports whether it ended too
 * late: after the loss of the lock, or after the end of the lease by the boot clock. (If dlock
 * was frozen, it may not have seen the end of the lease in time.) */
void expiry_judge(struct expiry *end);

#endif
