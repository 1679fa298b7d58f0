/* Prints what a lock remembers of its runs, for people and programs. Foreign text is
 * escaped. */
#ifndef DLOCK_UI_RUN_PRINT_H
#define DLOCK_UI_RUN_PRINT_H

#include "lock/run_memory.h"
#include "util/json.h"

/* Enough for each of these texts. */
enum { RUN_LINE_SIZE = 1536 };

/* "web3, today 03:00:02 to 03:14:11 (14m9s), exit status 0". Returns text. */
char *run_format(const struct run_record *run, char text[RUN_LINE_SIZE]);

/* Two lines, or, if no run is known, none. */
void run_memory_print(const struct run_memory *memory);

/* "nightly: the last success ended today 03:14:11 on web3, 5h2m ago". */
void run_within_print(const char *name, const struct run_memory *memory, bool within,
                      struct duration limit);

/* The members last_run, last_success, failures_in_a_row, runs_since and skipped_since. */
void run_memory_json(struct json *json, const struct run_memory *memory);

#endif
