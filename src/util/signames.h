/* Signals by name, as people write them: "TERM", "SIGTERM", "15", "RTMIN+1", "RTMAX-1". */
#ifndef DLOCK_UTIL_SIGNAMES_H
#define DLOCK_UTIL_SIGNAMES_H

#include <stddef.h>

/* Returns the signal's number, 0 if there is no such signal. */
int signame_parse(const char *text);

/* Writes "SIGTERM", or "signal 40" for one without a name. Returns text. */
char *signame_format(int signal, char *text, size_t size);

#endif
