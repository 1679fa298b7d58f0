/* Words of the command line, as popt reads them. */
#ifndef DLOCK_CONFIG_ARGV_H
#define DLOCK_CONFIG_ARGV_H

#include "config/settings.h"
#include "util/errmsg.h"

enum { WORDS_WRONG = -1, WORDS_NO_MEMORY = -2 };

/* Adds the options from argv[1] on to *settings, up to the first word that is
 * none, and blots out the logins of URLs in argv; argv[0] is NAME if they are
 * those behind it. Returns the index of that word (argc if there is none), or
 * WORDS_WRONG or WORDS_NO_MEMORY with *why set. */
int argv_read(struct settings *settings, int argc, char **argv, bool behind_name,
              struct errmsg *why);

#endif
