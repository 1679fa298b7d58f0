/* Text: bounded copies, UTF-8, escaping of foreign text, percent-encoding, numbers, widths on a
 * terminal, names of signals. Nothing here allocates memory. */
#ifndef DLOCK_UTIL_TEXT_H
#define DLOCK_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies source, cut to what fits; target always ends in NUL. Returns target. */
char *text_copy(char *target, size_t size, const char *source);

/* The length in bytes (1 to 4) of the UTF-8 character at the start of the text, which has `left`
 * bytes. 0 if that character is not valid (overlong, a surrogate, or cut off). */
size_t utf8_length(const char *text, size_t left);

/* True if the valid character of `length` bytes at text is a control character: C0, DEL or C1. */
bool utf8_is_control(const char *text, size_t length);

/* True if the character is invisible but changes where other characters appear. Such characters
 * have 2 or 3 bytes. */
bool utf8_reorders(const char *text, size_t length);

/* Writes source so that it cannot disturb a terminal or a log: control characters, characters that
 * change the direction of writing, and bytes that are not UTF-8 become \xHH. In a locale without
 * UTF-8, every byte that is not ASCII becomes \xHH too. A backslash is not escaped. The result is
 * cut to what fits, and always ends in NUL. Returns target. */
char *text_escape(char *target, size_t size, const char *source);

/* Percent-encodes every byte that is a control character, '%', or in `also`. Returns the length of
 * the whole result, like snprintf(3). */
size_t percent_encode(char *target, size_t size, const char *source, const char *also);

/* Decodes %HH in `length` bytes of source. False for a bad code, a NUL in the result, or a result
 * that does not fit. */
bool percent_decode(char *target, size_t size, const char *source, size_t length);

/* Writes a number of bytes in readable form: "80 GB", "1.2 MB". Returns text. */
#define SIZE_TEXT_SIZE 32
char *size_rounded(uint64_t bytes, char text[SIZE_TEXT_SIZE]);

/* Reads a decimal number with nothing before or after it. False if the text is not a number from
 * least to most. */
bool number_parse(const char *text, int64_t least, int64_t most, int64_t *out);

/* --- the width on a terminal, by the locale that setlocale(3) has set ------- */

/* The number of columns of the text. An invalid byte counts as one. */
int mbwidth_of(const char *text);

/* The length in bytes of the longest prefix of the text that fits in `columns`. A character stays
 * together with its combining characters. Sets *used to the columns that the prefix needs. */
size_t mbwidth_fit(const char *text, int columns, int *used);

/* --- signals by name: "TERM", "SIGTERM", "15", "RTMIN+1", "RTMAX-1" ---------- */

/* Returns the signal's number, or 0 if there is no such signal. */
int signame_parse(const char *text);

/* Writes "SIGTERM", or "signal 40" for a signal without a name. Returns text. */
char *signame_format(int signal, char *text, size_t size);

#endif
