#include "run/held_locks.h"

#include "run/attach_record.h"
#include "util/array.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void held_locks_add(struct held_locks *list, const struct held *held)
{
    char *store = strndup(held->store, held->store_length);
    struct held *added =
        store != NULL ? array_add(&list->list, &list->count, &list->room, sizeof *added) : NULL;
    list->short_of_memory |= added == NULL;
    if (added == NULL) {
        free(store);
        return;
    }
    *added = *held;
    added->store = store;
}

static int innermost_first(const void *a, const void *b)
{
    const struct held *left = a, *right = b;
    if (left->depth != right->depth)
        return left->depth > right->depth ? -1 : 1;
    return left->boot_ns > right->boot_ns ? -1 : left->boot_ns < right->boot_ns;
}

/* The innermost comes last in DLOCK_HELD. Locks that a script got through its environment
 * lie outside of those attached to it, and locks added to the environment since then lie
 * inside. So the depth of the Nth line, from 0, is 2 N + 1, and that of a lock which was attached
 * when there were N lines is 2 N. */
bool held_locks_read(struct held_locks *list, const char *lock_dir)
{
    struct held held = {.depth = 1};
    *list = (struct held_locks){0};
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;) {
        if (held_next(&at, &held)) {
            held_locks_add(list, &held);
            held.depth += 2;
        }
    }
    attach_record_find(list, lock_dir);
    if (list->count > 1)
        qsort(list->list, list->count, sizeof *list->list, innermost_first);
    return !list->short_of_memory;
}

void held_locks_free(struct held_locks *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)(uintptr_t)list->list[i].store);
    free(list->list);
    *list = (struct held_locks){0};
}

/* Copies length bytes; false if there are none, or too many. */
static bool copy(char *target, size_t size, const char *from, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(target, from, length);
    target[length] = '\0';
    return true;
}

/* Copies the word at *at, and moves *at behind the space that ends it. */
static bool copy_word(char *target, size_t size, const char **at, const char *end)
{
    const char *word = *at, *space = memchr(word, ' ', (size_t)(end - word));
    if (space == NULL)
        return false;
    *at = space + 1;
    return copy(target, size, word, (size_t)(space - word));
}

static bool copy_backend(struct held *held, const char **at, const char *end)
{
    const char *word = *at;
    size_t length = strcspn(word, "? \n"), whole = strcspn(word, " \n");
    held->store = word + length + (length < whole);
    held->store_length = (size_t)(word + whole - held->store);
    *at = word + whole + 1;
    return word + whole < end && copy(held->backend, sizeof held->backend, word, length);
}

/* A key may contain spaces, and so comes last. */
bool held_next(const char **at, struct held *held)
{
    const char *line = *at, *end = line + strcspn(line, "\n");
    *at = *end == '\n' ? end + 1 : NULL;
    return copy_backend(held, &line, end) &&
           copy_word(held->token, sizeof held->token, &line, end) &&
           copy_word(held->take_id, sizeof held->take_id, &line, end) &&
           copy(held->key, sizeof held->key, line, (size_t)(end - line));
}

/* --- for the command ------------------------------------------------------ */

/* Whole seconds if possible, otherwise down to the millisecond. */
static void format_seconds(struct duration d, char *text, size_t size)
{
    int64_t ms = d.ns / NS_PER_MS;
    if (ms % 1000 == 0)
        snprintf(text, size, "%" PRId64, ms / 1000);
    else
        snprintf(text, size, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

/* The innermost lock comes last. */
static void export_held(struct environment *environment, const struct lease *lease,
                        const char *where)
{
    const char *outer = environment_get(environment, "DLOCK_HELD");
    if (outer == NULL)
        outer = "";
    char *held = NULL;
    if (asprintf(&held, "%s%s%s %s %s %s", outer, *outer != '\0' ? "\n" : "", where, lease->token,
                 lease->take_id, lease->key) < 0) {
        environment->short_of_memory = true;
        return;
    }
    environment_set(environment, "DLOCK_HELD", held);
    free(held);
}

void held_locks_export(struct environment *environment, const struct lease *lease,
                       const char *backend, const char *where)
{
    char number[24], ttl[32], expires[32];
    environment_set(environment, "DLOCK_NAME", lease->name);
    environment_set(environment, "DLOCK_LOCK_KEY", lease->key);
    environment_set(environment, "DLOCK_LOCK_OWNER", lease->token);
    format_seconds(lease->ttl, ttl, sizeof ttl);
    environment_set(environment, "DLOCK_LOCK_TTL", ttl);
    environment_set(environment, "DLOCK_LOCK_BACKEND", backend);
    snprintf(number, sizeof number, "%" PRId64, lease->fence);
    environment_set(environment, "DLOCK_FENCE", number);
    wall_format(wall_at_ms(lease->deadline), expires, sizeof expires);
    environment_set(environment, "DLOCK_EXPIRES_AT", expires);
    snprintf(number, sizeof number, "%d", lease->slot);
    /* An outer lock's slot does not apply to this lock. */
    environment_set(environment, "DLOCK_SLOT", lease->slot >= 0 ? number : NULL);
    export_held(environment, lease, where);
}
