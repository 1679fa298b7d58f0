/* The width of UTF-8 text on a terminal, by the locale that setlocale(3) has set. */
#ifndef DLOCK_UTIL_MBWIDTH_H
#define DLOCK_UTIL_MBWIDTH_H

#include <stddef.h>

/* The columns of the whole text. An invalid byte counts as one. */
int mbwidth_of(const char *text);

/* The length in bytes of as many whole characters, each with the combining ones
 * that belong to it, as fit in this many columns, and in *used how many they
 * need. */
size_t mbwidth_fit(const char *text, int columns, int *used);

#endif
