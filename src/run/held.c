#include "run/held.h"

#include <string.h>

/* Copies length bytes; false if there are none, or too many. */
static bool copy(char *target, size_t size, const char *from, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(target, from, length);
    target[length] = '\0';
    return true;
}

/* Copies the word at *at, which moves on behind the space that ends it. */
static bool copy_word(char *target, size_t size, const char **at, const char *end)
{
    const char *word = *at, *space = memchr(word, ' ', (size_t)(end - word));
    if (space == NULL)
        return false;
    *at = space + 1;
    return copy(target, size, word, (size_t)(space - word));
}

/* A key may have spaces in it, and so stands last. */
bool held_next(const char **at, struct held *held)
{
    const char *line = *at, *end = line + strcspn(line, "\n");
    *at = *end == '\n' ? end + 1 : NULL;
    return copy_word(held->backend, sizeof held->backend, &line, end) && copy_word(held->token, sizeof held->token, &line, end) &&
           copy_word(held->take_id, sizeof held->take_id, &line, end) &&
           copy(held->key, sizeof held->key, line, (size_t)(end - line));
}
