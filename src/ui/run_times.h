/* How long the runs of a lock take: past runs with bars, an estimate for waiters, and advice on the
 * TTL. Foreign text is escaped. Columns are counted in the locale that setlocale(3) has set. */
#ifndef DLOCK_UI_RUN_TIMES_H
#define DLOCK_UI_RUN_TIMES_H

#include "lock/history.h"
#include "lock/lease.h"
#include "util/json.h"

#include <stdbool.h>
#include <stdio.h>

/* Draws a bar of `columns` columns, at most BAR_MOST, and fills the fraction `part` / `whole` of
 * the bar. The bar is plain ASCII unless the locale is UTF-8. Returns text. */
enum { BAR_MOST = 60, BAR_SIZE = 3 * BAR_MOST + 1 };
char *bar_format(int columns, int64_t part, int64_t whole, char text[BAR_SIZE]);

/* Enough for each text that the functions below return. */
enum { RUN_TIMES_SIZE = 256 };

/* Estimates how much longer the holder's run takes. There is no estimate if the run is over, or if
 * the lock is refused because of a pause or earlier waiters. */
struct estimate holder_estimate(const struct holder *holder, const struct typical *typical);

/* "usually 12m, about 4m left, about 28m until your turn", "longer than usual (usually 12m)"; ""
 * if there is no estimate. */
const char *estimate_format(const struct estimate *estimate, const struct typical *typical,
                            int ahead, char text[RUN_TIMES_SIZE]);

/* Prints the member "typical": an object, or null if no success is known. */
void typical_json(struct json *json, const struct typical *typical);

/* "the longest of the last 32 runs took 41m; recommended TTL: 1h30m", "the last run was stopped
 * after 50m; recommended TTL: at least 2h"; "" if no length is known, or if the lease of the
 * longest run was extended. */
const char *ttl_advice_format(const struct history *history, char text[RUN_TIMES_SIZE]);

/* Prints a line for each run, at most `columns` wide, and a summary that compares the runs with
 * `ttl`. False if memory is short. */
bool history_print(FILE *to, const struct history *history, struct duration ttl, int columns);

/* Prints what history_print() prints, but as members of a JSON object. */
void history_json(struct json *json, const struct history *history, struct duration ttl);

#endif
