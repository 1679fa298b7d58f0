/* What the harnesses have in common. */
#ifndef DLOCK_FUZZ_H
#define DLOCK_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the bytes as text, to be freed; it has no room for a byte more, so that a read
 * behind its end is found. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* What must hold, whatever the input. */
#define fuzz_expect(holds) ((holds) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #holds))

__attribute__((noreturn)) static inline void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    abort();
}

/* Makes a file in memory that has these bytes and no more: a new one for fd -1, otherwise that
 * one again. Returns its descriptor. */
static inline int fuzz_file(int fd, const uint8_t *data, size_t size)
{
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_expect(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return fd;
}

/* Cuts the next line off *rest; "" after the last one. */
static inline char *fuzz_line(char **rest)
{
    static char none[] = "";
    char *line = strsep(rest, "\n");
    return line != NULL ? line : none;
}

/* Reads one character as in Unicode's table 3-7, not as the program does. Returns
 * its length, or 0 if there is none. */
static inline size_t fuzz_character(const unsigned char *text, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = *text < 0x80       ? 1
                    : *text >> 5 == 6  ? 2
                    : *text >> 4 == 14 ? 3
                    : *text >> 3 == 30 ? 4
                                       : 0;
    if (length == 0 || length > left)
        return 0;
    *code = length == 1 ? *text : *text & (0x7FU >> length);
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        *code = *code << 6 | (text[i] & 0x3FU);
    }
    return *code < least[length] || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF)
               ? 0
               : length;
}

/* True if any terminal and any log can show it: UTF-8 without control characters
 * and without those that reverse the direction of text. */
static inline bool fuzz_shows(const char *text)
{
    uint32_t code;
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        length = fuzz_character((const unsigned char *)text, left, &code);
        if (length == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C ||
            code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
            (code >= 0x2066 && code <= 0x2069))
            return false;
    }
    return true;
}

#endif
