/* --report=FILE: one line of JSON about each run, appended in one write(2), so
 * that many may share the file. */
#ifndef DLOCK_UI_RUN_REPORT_H
#define DLOCK_UI_RUN_REPORT_H

#include "lock/lease.h"
#include "lock/result.h"

#include <stdbool.h>

struct report {
    int fd; /* -1: no report */
    int64_t asked_wall_ms;
    const char *error; /* code of the failure (ui/failure.h); NULL: none */
    /* The outcome of the run, set by the caller before the line is written: */
    const char *name, *key, *backend; /* backend may be NULL */
    const struct holder *self;
    const struct lease *lease; /* NULL: not taken */
    struct duration waited, held;
    bool nested, lost;
    int status;
};

/* Opens the file, made 0644 less the umask; with a NULL path there is no report.
 * Before anything is taken: LOCK_OK; LOCK_REFUSED, LOCK_CANT_CREATE,
 * LOCK_SYSTEM with *why set. */
enum lock_result run_report_open(struct report *report, const char *path, struct errmsg *why);

/* Writes the line. False with *why set if that fails. */
bool run_report_write(const struct report *report, struct errmsg *why);

void run_report_close(struct report *report);

#endif
