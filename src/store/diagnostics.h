/* The findings of --doctor, one row a check, in the order in which they were found: as a
 * table for people, as JSON for programs, and as an exit status. Texts may be foreign:
 * they are escaped when they are printed. */
#ifndef DLOCK_STORE_DIAGNOSTICS_H
#define DLOCK_STORE_DIAGNOSTICS_H

#include "util/clock.h"
#include "util/exit_status.h"

#include <stdbool.h>
#include <stddef.h>

enum finding_result {
    FINDING_OK,
    FINDING_NOTE, /* worth knowing, or not to be known */
    FINDING_WARN, /* a lock holds, but something near it will hurt */
    FINDING_FAIL, /* a lock cannot be acquired here, or cannot be trusted */
};

/* A lock can be acquired, but must not be trusted: no exit status of a run says so. */
enum { FINDING_UNTRUSTED = 1 };

struct finding {
    enum finding_result result;
    int status; /* of FINDING_FAIL: that of a run, or FINDING_UNTRUSTED */
    const char *section;
    char *subject; /* of the section: the server, the directory; NULL: none */
    char *name, *found;
    const char *advice; /* what to do; NULL: no advice */
};

/* Begins as {0}. */
struct diagnostics {
    const char *section;
    char *subject;
    struct finding *list;
    size_t count, room;
    bool short_of_memory; /* rows are missing */
};

/* Rows that are added from here on belong to this section, a literal, and to one of its
 * subjects (NULL: none), which is copied. */
void diagnostics_section(struct diagnostics *findings, const char *section, const char *subject);

/* Adds a row. `name` is copied; `advice` (NULL: none) is a literal, and is dropped if the
 * result is FINDING_OK. */
__attribute__((format(printf, 5, 6))) void diagnostics_add(struct diagnostics *findings,
                                                           enum finding_result result,
                                                           const char *name, const char *advice,
                                                           const char *format, ...);

/* The same for FINDING_FAIL with its exit status. */
__attribute__((format(printf, 5, 6))) void diagnostics_fail(struct diagnostics *findings,
                                                            int status, const char *name,
                                                            const char *advice, const char *format,
                                                            ...);

/* Whether a row from the `from`th on (counted from 0) is a failure. */
bool diagnostics_failed(const struct diagnostics *findings, size_t from);

/* Makes warnings of such failures: others make up for what is missing there. */
void diagnostics_excuse(struct diagnostics *findings, size_t from, size_t end);

/* 0 if nothing failed; otherwise the exit status of a run, taken from the first failed
 * row that has one; otherwise FINDING_UNTRUSTED. */
int diagnostics_status(const struct diagnostics *findings);

/* On stdout. `terse`: only warnings and failures. Counts columns by the locale
 * that setlocale(3) has set. */
void diagnostics_print(const struct diagnostics *findings, bool terse);
void diagnostics_print_json(const struct diagnostics *findings);

void diagnostics_free(struct diagnostics *findings);

/* A time that was measured, "0.21 ms" or "1.5 s". Returns text. */
enum { FINDINGS_TIME_SIZE = 32 };
char *diagnostics_time(struct duration time, char text[FINDINGS_TIME_SIZE]);

#endif
