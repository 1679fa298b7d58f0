/* Prints locks, their holders and their runs for people and programs. Foreign text is escaped. */
#ifndef DLOCK_UI_LOCK_PRINT_H
#define DLOCK_UI_LOCK_PRINT_H

#include "lock/lock_state.h"
#include "ui/table.h"
#include "util/json.h"

/* Room for each of the texts below. */
enum { LOCK_TEXT_SIZE = 2048 };

/* Writes the lock's name to `text`: the key without `prefix` (which includes the scope), or the
 * whole key if it does not begin with `prefix`. Returns text. */
const char *lock_name_of(char *text, size_t size, const char *key, const char *prefix);

/* "ann@host (pid 12, backup; running) since ..., lease ends in 5m; usually 12m, about 4m left".
 * Returns text. */
const char *lock_owner_format(const struct lock_owner *owner, const struct typical *typical,
                              char text[LOCK_TEXT_SIZE]);

/* Prints the state of the lock to stdout, in several lines. Prints the queue and the owner tokens
 * only if `with_tokens` is true: anybody who read a token in a log could release the lock. */
void lock_state_print(const struct lock_state *state, const char *name, bool with_tokens);

/* Prints the state as one line of JSON to stdout. */
void lock_state_json_print(const struct lock_state *state, const char *name, const char *scope,
                           const char *backend);

/* Prints the holders as an array of JSON objects. */
void lock_owners_json(struct json *json, const char *name, const struct lock_state *state);

/* Prints the JSON object of --acquire and --attach to stdout, in one line: key, scope, full_key,
 * acquired, owner, fence, acquired_at, expires_at, mode, and slot if there is one. Unknown members
 * (token "", fence 0, times 0) are null. */
void lease_json_print(const struct lease *lease, const char *scope);

/* Prints a line such as "nightly: the last success ended today 03:14:11 +0100 on web3, 5h2m
 * ago". */
void run_within_print(const char *name, const struct run_memory *memory, bool within,
                      struct duration limit);

/* Prints the members last_run, last_success, failures_in_a_row, runs_since and skipped_since. */
void run_memory_json(struct json *json, const struct run_memory *memory);

/* The table of --list, without rows. With `usual`, a column shows how long a run usually takes. */
struct table list_table(bool usual);

/* Adds a row. False if memory is short. */
bool list_table_add(struct table *table, const char *name, const struct lock_state *state,
                    bool usual);

#endif
