/* Which options may be meant by a name that is none: mistyped, or abbreviated. */
#ifndef DLOCK_CONFIG_NEAR_OPTIONS_H
#define DLOCK_CONFIG_NEAR_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Room for three of the longest names. */
enum { NEAR_TEXT_SIZE = 128 };

enum near_kind {
    NEAR_ALL,  /* as they stand on the command line, with their dashes */
    NEAR_KEYS, /* as they stand in a configuration file */
    NEAR_VARIABLES, /* as they stand in the environment; the name is without DLOCK_ */
};

/* Writes those that are near the first `length` bytes of name, as "A, B or C".
 * False where there are none, or so many that it is no help. */
bool near_options(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind);

#endif
