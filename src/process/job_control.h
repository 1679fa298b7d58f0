/* Passes signals between their senders, dlock and the command. */
#ifndef DLOCK_PROCESS_JOB_CONTROL_H
#define DLOCK_PROCESS_JOB_CONTROL_H

#include "process/child.h"
#include "process/signals.h"
#include "util/message.h"

#include <stdbool.h>

struct job_control {
    const struct signals *signals;
    const struct messages *out;
    sigset_t told;              /* signals from others than the command */
    bool resumed;               /* dlock has stopped with the command and was continued */
    struct deadline stop_asked; /* when SIGTSTP came last, from any sender */
    struct deadline stop_seen;  /* of the stop that is not followed yet */
    int stops;                  /* how many have been seen */
};

/* Passes on to the command the signals that were sent to dlock alone, of a flood
 * the first. True if a child has changed its state meanwhile. */
bool job_pass_signals_on(struct job_control *job, struct child *child);

/* Stops dlock if the terminal has stopped the command, and returns once both
 * are continued; so the shell sees a stopped job, and fg continues it. */
void job_stop_with_command(struct job_control *job, struct child *child);

#endif
