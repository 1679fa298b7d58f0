/* Turns the options into what the folders below work with; nothing below actions/ sees them. */
#ifndef DLOCK_ACTIONS_PLAN_H
#define DLOCK_ACTIONS_PLAN_H

#include "config/options.h"
#include "run/acquisition.h"
#include "run/expiry.h"
#include "util/message.h"

#include <stdbool.h>
#include <sys/types.h>

/* Fills in *lock, and opens it: acquisition_open(). `undone` is what does not
 * happen without the lock. False: reported, and *status is the exit status. */
bool plan_acquisition(struct acquisition *lock, const struct options *options, struct messages *out,
                      const char *undone, const char *command, pid_t pid, int *status);

/* Opens the store, and takes the lock in it: acquisition_take(). */
bool plan_take(struct acquisition *lock, const struct options *options, int *status);

/* The state of an action, zeroed, which the caller frees: it would be too much for a small
 * stack (ulimit -s). NULL: reported, and *status is the exit status. */
void *plan_memory(size_t size, const struct messages *out, int *status);

struct awaited_lock plan_awaited(const struct options *options);
struct expiry_plan plan_expiry(const struct options *options);

#endif
