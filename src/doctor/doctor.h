/* --doctor: can a lock be trusted here, and if not, why? Each check adds rows to the findings, in
 * the order in which it finds them. The findings are printed as a table for people or as JSON for
 * programs, and decide the exit status. Texts in the findings may be foreign: they are escaped when
 * they are printed. */
#ifndef DLOCK_DOCTOR_DOCTOR_H
#define DLOCK_DOCTOR_DOCTOR_H

#include "lock/result.h"
#include "store/backend.h"

enum finding_result {
    FINDING_OK,
    FINDING_NOTE, /* worth knowing, or impossible to find out */
    FINDING_WARN, /* locks work, but something near them will cause trouble */
    FINDING_FAIL, /* a lock cannot be acquired here, or cannot be trusted */
};

/* The exit status if a lock can be acquired, but must not be trusted. No exit status of a run means
 * that. */
enum { FINDING_UNTRUSTED = 1 };

struct finding {
    enum finding_result result;
    int status; /* exit status for FINDING_FAIL: as of a run, or FINDING_UNTRUSTED */
    const char *section;
    char *subject, *name, *found;
    const char *advice; /* NULL: none */
};

/* Starts as {0}. */
struct findings {
    const char *section; /* of the rows that are added from now on: a literal */
    const char *subject; /* of the section: the server, the directory; NULL: none; not copied */
    const char *check;   /* the name of these rows */
    struct finding *list;
    size_t count, room;
    bool short_of_memory; /* rows are missing */
};

/* The next rows belong to this section and, unless `subject` is NULL, to this subject of it. */
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

/* Like findings_add(), for FINDING_FAIL with its exit status. */
__attribute__((format(printf, 4, 5))) void
findings_fail(struct findings *findings, int status, const char *advice, const char *format, ...);

/* True for LOCK_OK. For any other result but LOCK_CANCELLED, adds the failure with the exit status
 * that a run would have. */
bool findings_served(struct findings *findings, enum lock_result result, const char *advice,
                     const struct errmsg *why);

/* 0 if nothing failed; otherwise the exit status of a run, taken from the first failed row that
 * has one; otherwise FINDING_UNTRUSTED. */
int findings_status(const struct findings *findings);

/* Prints the findings on stdout. `terse`: only warnings and failures. Counts columns by the locale
 * that setlocale(3) has set. */
void findings_print(const struct findings *findings, bool terse);
void findings_print_json(const struct findings *findings);

void findings_free(struct findings *findings);

/* Examines the store. The key of `request` must be otherwise unused. True if it is worth trying to
 * take that lock. */
bool doctor_examine(struct backend *store, const struct lock_request *request,
                    struct findings *findings, struct bound bound);

/* Tries out the whole life of the request's lock, which no other process uses: a holder and a
 * waiter compete for it, each through its own backend of the same store. Leaves nothing in the
 * store, if the store allows that. */
void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct findings *findings,
                  struct bound bound);

#endif
