/* A lock's holder as part of a sentence. Foreign text in it is not escaped. */
#ifndef DLOCK_UI_HOLDER_TEXT_H
#define DLOCK_UI_HOLDER_TEXT_H

#include "lock/lease.h"

#include <stdbool.h>

/* Enough for each of these texts, which the functions return. */
enum { HOLDER_TEXT_SIZE = 768 };

/* " (has ended)", " (/proc hides it)", "". */
const char *holder_life_text(enum process_life life);

/* "ann@web3, pid 12 (running), backup", where `life` is " (running)"; "another client". */
const char *holder_format(const struct holder *holder, const char *life,
                          char text[HOLDER_TEXT_SIZE]);

/* Why the lock is refused, for so many slots (0: in another mode): "held by
 * ann@web3, pid 12, backup", "2 of 2 slots are taken; held by ...", "free, but others
 * have waited longer". `life`: of its process. */
const char *holder_refusal_format(const struct holder *holder, int slots, enum process_life life,
                                  char text[HOLDER_TEXT_SIZE]);

/* ", since 02:59:58 +0100"; "" if it is not known, kept after the end, or in the future by
 * our clock. */
const char *holder_since_format(const struct holder *holder, char text[HOLDER_TEXT_SIZE]);

/* "paused by ann@web3 until 14:00:00 +0100: why". */
const char *pause_format(const struct pause *pause, char text[HOLDER_TEXT_SIZE]);

#endif
