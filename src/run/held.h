/* What a dlock tells those below it of its lock: a line of DLOCK_HELD. */
#ifndef DLOCK_RUN_HELD_H
#define DLOCK_RUN_HELD_H

#include "lock/lock_name.h"
#include "lock/token.h"

#include <stdbool.h>

/* One line of DLOCK_HELD: "BACKEND TOKEN TAKE KEY". The id of the take tells the
 * lock apart from that of a later run with the same --owner. */
struct held {
    char backend[16];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    char key[LOCK_KEY_SIZE];
};

/* Reads the line at *at, which moves on to the next one (NULL after the last).
 * False for a line that is none. */
bool held_next(const char **at, struct held *held);

#endif
