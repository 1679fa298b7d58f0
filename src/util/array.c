#include "util/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *array_add(void *list, size_t *count, size_t *room, size_t size)
{
    enum { FIRST_ROOM = 16 };
    char *elements;
    memcpy(&elements, list, sizeof elements);
    if (*count == *room) {
        size_t more = *room > 0 ? 2 * *room : FIRST_ROOM;
        char *grown = reallocarray(elements, more, size);
        if (grown == NULL)
            return NULL;
        elements = grown;
        memcpy(list, &elements, sizeof elements);
        *room = more;
    }
    return memset(elements + (*count)++ * size, 0, size);
}

/* --- an environment ------------------------------------------------------- */

/* Adds the entry before the NULL at the end. Frees the entry if memory is short. */
static void add_entry(struct environment *environment, char *entry)
{
    char **end = entry != NULL ? array_add(&environment->list, &environment->count,
                                           &environment->room, sizeof *end)
                               : NULL;
    if (end != NULL) {
        end[-1] = entry;
    } else {
        environment->short_of_memory = true;
        free(entry);
    }
}

void environment_copy(struct environment *environment)
{
    *environment = (struct environment){0};
    if (array_add(&environment->list, &environment->count, &environment->room,
                  sizeof *environment->list) == NULL)
        environment->short_of_memory = true;
    for (char **variable = environ; *variable != NULL && !environment->short_of_memory; variable++)
        add_entry(environment, strdup(*variable));
}

/* The variable's entry, or the NULL at the end of the list if the variable is not set. */
static char **entry_of(const struct environment *environment, const char *name)
{
    size_t length = strlen(name);
    char **entry = environment->list;
    while (*entry != NULL && (strncmp(*entry, name, length) != 0 || (*entry)[length] != '='))
        entry++;
    return entry;
}

const char *environment_get(const struct environment *environment, const char *name)
{
    const char *entry = environment->short_of_memory ? NULL : *entry_of(environment, name);
    return entry != NULL ? entry + strlen(name) + 1 : NULL;
}

void environment_set(struct environment *environment, const char *name, const char *value)
{
    char *set = NULL;
    if (environment->short_of_memory)
        return;
    for (char **entry; *(entry = entry_of(environment, name)) != NULL;) {
        free(*entry);
        do
            entry[0] = entry[1];
        while (*entry++ != NULL);
        environment->count--;
    }
    if (value != NULL)
        add_entry(environment, asprintf(&set, "%s=%s", name, value) >= 0 ? set : NULL);
}

void environment_free(struct environment *environment)
{
    for (size_t i = 0; i < environment->count; i++)
        free(environment->list[i]);
    free(environment->list);
    *environment = (struct environment){0};
}
