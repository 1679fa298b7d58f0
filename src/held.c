#include "held.h"

#include <string.h>

/* The word of length bytes; false where it is empty or too long. */
static bool copy_word(char *target, size_t size, const char *word, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(target, word, length);
    target[length] = '\0';
    return true;
}

/* "BACKEND TOKEN KEY"; a key may have spaces in it. */
bool held_next(const char **at, struct held *held)
{
    const char *line = *at;
    size_t length = strcspn(line, "\n"), backend = strcspn(line, " \n");
    *at = line[length] == '\n' ? line + length + 1 : NULL;
    if (backend >= length)
        return false;
    const char *token = line + backend + 1;
    size_t token_length = strcspn(token, " \n");
    const char *key = token + token_length + 1;
    return key < line + length && copy_word(held->backend, sizeof held->backend, line, backend) &&
           copy_word(held->token, sizeof held->token, token, token_length) &&
           copy_word(held->key, sizeof held->key, key, (size_t)(line + length - key));
}
