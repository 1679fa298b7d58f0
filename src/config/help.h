/* Prints --help and --usage. */
#ifndef DLOCK_CONFIG_HELP_H
#define DLOCK_CONFIG_HELP_H

#include <stdbool.h>

/* To stdout: all options, each with its text; or their names alone. */
void help_print(bool with_texts);

#endif
