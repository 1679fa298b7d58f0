#include "util/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void environment_copy(struct environment *environment)
{
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    char **list = calloc(count + ENVIRONMENT_MOST + 1, sizeof *list);
    *environment = (struct environment){.list = list, .short_of_memory = list == NULL};
    if (list == NULL || count == 0)
        return;
    memcpy(list, environ, count * sizeof *list);
    environment->borrowed = environment->count = count;
}

/* The index of the first one from `at` on; the count: there is none. */
static size_t environment_find(const struct environment *environment, const char *name, size_t at)
{
    size_t length = strlen(name);
    while (at < environment->count && (strncmp(environment->list[at], name, length) != 0 ||
                                       environment->list[at][length] != '='))
        at++;
    return at;
}

const char *environment_get(const struct environment *environment, const char *name)
{
    size_t at = environment_find(environment, name, 0);
    return at < environment->count ? environment->list[at] + strlen(name) + 1 : NULL;
}

void environment_unset(struct environment *environment, const char *name)
{
    for (size_t at = 0; (at = environment_find(environment, name, at)) < environment->count;) {
        char **entry = environment->list + at;
        if (at < environment->borrowed)
            environment->borrowed--;
        else
            free(*entry);
        memmove(entry, entry + 1, (environment->count-- - at) * sizeof *entry);
    }
}

void environment_set(struct environment *environment, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    environment_unset(environment, name);
    char *entry =
        environment->count < environment->borrowed + ENVIRONMENT_MOST ? malloc(size) : NULL;
    environment->short_of_memory |= entry == NULL;
    if (environment->short_of_memory) {
        free(entry);
        return;
    }
    snprintf(entry, size, "%s=%s", name, value);
    environment->list[environment->count++] = entry;
}

void environment_free(struct environment *environment)
{
    while (environment->count > environment->borrowed)
        free(environment->list[--environment->count]);
    free(environment->list);
    *environment = (struct environment){0};
}
