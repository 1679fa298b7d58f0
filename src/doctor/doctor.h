/* --doctor: can a lock be trusted here, and if not, why? Each check adds rows to the findings. The
 * findings are printed as a table for people or as JSON for programs, and decide the exit status.
 * Texts in the findings may come from a server, so they are escaped when they are printed. */
#ifndef DLOCK_DOCTOR_DOCTOR_H
#define DLOCK_DOCTOR_DOCTOR_H

#include "lock/result.h"
#include "store/backend.h"

enum finding_result {
    FINDING_OK,
    FINDING_NOTE, /* worth knowing, or something that dlock could not find out */
    FINDING_WARN, /* locks work, but something may cause trouble */
    FINDING_FAIL, /* a lock cannot be acquired here, or cannot be trusted */
};

/* The exit status if a lock can be acquired, but must not be trusted. enum exit_status has no value
 * with that meaning. */
enum { FINDING_UNTRUSTED = 1 };

struct finding {
    enum finding_result result;
    int status; /* for FINDING_FAIL: an enum exit_status, or FINDING_UNTRUSTED */
    const char *section;
    char *subject, *name, *found;
    const char *advice; /* NULL: none */
};

/* Initialize with {0}. */
struct findings {
    const char *section; /* the section of the rows added from now on; a literal */
    const char *subject; /* what the section is about, such as a server; NULL: none; not copied */
    const char *check;   /* the name of the rows added from now on */
    struct finding *list;
    size_t count, room;
    bool short_of_memory; /* rows are missing */
};

/* The rows added from now on belong to this section and, unless `subject` is NULL, are about this
 * subject. */
void findings_section(struct findings *findings, const char *section, const char *subject);

/* Adds a row for the current check. `advice` (NULL: none) is a literal, and is dropped if the
 * result is FINDING_OK. */
__attribute__((format(printf, 4, 5))) void findings_add(struct findings *findings,
                                                        enum finding_result result,
                                                        const char *advice, const char *format,
                                                        ...);

#define findings_good(findings, ...) findings_add(findings, FINDING_OK, NULL, __VA_ARGS__)
#define findings_note(findings, ...) findings_add(findings, FINDING_NOTE, __VA_ARGS__)
#define findings_warn(findings, ...) findings_add(findings, FINDING_WARN, __VA_ARGS__)

/* Like findings_add(), but the result is FINDING_FAIL with this exit status. */
__attribute__((format(printf, 4, 5))) void
findings_fail(struct findings *findings, int status, const char *advice, const char *format, ...);

/* Returns true for LOCK_OK. For any other result except LOCK_CANCELLED, adds a row that is
 * FINDING_FAIL and has the exit status for that result. */
bool findings_served(struct findings *findings, enum lock_result result, const char *advice,
                     const struct errmsg *why);

/* Returns 0 if no row is FINDING_FAIL. Otherwise returns the status of the first failed row whose
 * status is not FINDING_UNTRUSTED. If there is no such row, returns FINDING_UNTRUSTED. */
int findings_status(const struct findings *findings);

/* Prints the findings on stdout, or with `terse` only the warnings and failures. Call setlocale(3)
 * first, because the width of characters depends on the locale. */
void findings_print(const struct findings *findings, bool terse);
void findings_print_json(const struct findings *findings);

void findings_free(struct findings *findings);

/* Examines the store. The key of `request` must be one that no other process uses. Returns true if
 * it makes sense to continue with doctor_trial(). */
bool doctor_examine(struct backend *store, const struct lock_request *request,
                    struct findings *findings, struct bound bound);

/* Tries out everything that dlock does with a lock. No other process may use the lock that
 * `request` names. A holder and a waiter compete for the lock, each through its own backend of the
 * same store. Afterwards removes all traces from the store, if the store allows that. */
void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct findings *findings,
                  struct bound bound);

#endif
