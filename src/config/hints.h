/* Hints for users who mistype. Used if a command line is refused, or is about to
 * be refused. */
#ifndef DLOCK_CONFIG_HINTS_H
#define DLOCK_CONFIG_HINTS_H

#include "config/options.h"
#include "util/errmsg.h"

#include <stdbool.h>
#include <stddef.h>

/* True, with *why set, if the word is a long name with one dash, which popt would split into
 * letters ("-tree" is -t ree to popt). */
bool hints_one_dash(const char *word, struct errmsg *why);

/* Sets *why for an unknown option: which options are near it. The value of `word` is not
 * shown: it may be a URL with a password. */
void hints_unknown_option(const char *word, struct errmsg *why);

/* Sets *why if there is a NAME, which may have been meant as something else,
 * but no command. */
void hints_no_command(const char *name, struct errmsg *why);

/* Adds to *why what else may be meant if the words after NAME are no command
 * that can be run. Adds nothing if there is no guess. */
void hints_not_a_command(const struct options *options, struct errmsg *why);

/* Adds to *why, which refuses an option after NAME, that NAME may be the command. */
void hints_name_is_command(const char *name, struct errmsg *why);

/* The same for an option that was set there; nothing for one from another place. */
void hints_behind_name(const struct options *options, struct origin origin, struct errmsg *why);

/* True if NAME is the path of a file that flock(1) would lock, and dlock does not. */
bool hints_name_is_file(const struct options *options);

/* Which options may be meant by an unknown name: mistyped, or abbreviated. */

/* Room for three of the longest names. */
enum { NEAR_TEXT_SIZE = 128 };

enum near_kind {
    NEAR_ALL,       /* as on the command line, with their dashes */
    NEAR_KEYS,      /* as in a configuration file */
    NEAR_VARIABLES, /* as in the environment; the name is without DLOCK_ */
};

/* Writes those that are near the first `length` bytes of name, as "A, B or C".
 * False if there are none, or too many to be of help. */
bool hints_near(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind);

#endif
