/* Durations as people write them: "90", "1.5s", "1h30m", "250ms". */
#ifndef DLOCK_UTIL_DURATION_H
#define DLOCK_UTIL_DURATION_H

#include "util/clock.h"

#include <stddef.h>

enum duration_error {
    DURATION_OK,
    DURATION_EMPTY,
    DURATION_NEGATIVE,
    DURATION_NOT_A_NUMBER,
    DURATION_UNKNOWN_UNIT,
    DURATION_OVERFLOW,
};

/* Reads decimal terms, each with an optional ms, s, m, h, d or w (none: seconds; sec, min, hr, days and the like are known),
 * and adds them up. A term without a unit can only be the last. Digits below
 * a nanosecond are cut. *out is set only on DURATION_OK. */
enum duration_error duration_parse(const char *text, struct duration *out);

/* The fault and the valid form, for a message. */
const char *duration_error_text(enum duration_error error);

/* Writes d the way duration_parse() reads it, shortest form: "1h30m", "1.5s", "250ms"; "infinity" from DURATION_FOREVER on.
 * Below a millisecond it is "0". Returns text. */
char *duration_format(struct duration d, char *text, size_t size);

/* The same for a measured duration, rounded down to what a person reads:
 * "250ms", "1.2s", "59m18s", "1h30m", "2d5h". */
char *duration_rounded(struct duration d, char *text, size_t size);

/* Enough for either of them. */
#define DURATION_TEXT_SIZE 48

#endif
