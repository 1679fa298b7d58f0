#include "run/held_locks.h"

#include "run/attach_record.h"
#include "util/array.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void held_locks_add(struct held_locks *list, const struct held *held)
{
    struct held *added = array_add(&list->list, &list->count, &list->room, sizeof *added);
    if (added != NULL)
        *added = *held;
    list->short_of_memory |= added == NULL;
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

/* A key may contain spaces, and so comes last. */
bool held_next(const char **at, struct held *held)
{
    const char *line = *at, *end = line + strcspn(line, "\n");
    *at = *end == '\n' ? end + 1 : NULL;
    return copy_word(held->backend, sizeof held->backend, &line, end) &&
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
static bool export_held(const struct lease *lease, const char *backend)
{
    const char *outer = getenv("DLOCK_HELD");
    if (outer == NULL)
        outer = "";
    size_t size = strlen(outer) + strlen(backend) + strlen(lease->token) + strlen(lease->take_id) +
                  strlen(lease->key) + 5;
    char *held = malloc(size);
    if (held == NULL)
        return false;
    snprintf(held, size, "%s%s%s %s %s %s", outer, *outer != '\0' ? "\n" : "", backend,
             lease->token, lease->take_id, lease->key);
    bool set = setenv("DLOCK_HELD", held, 1) == 0;
    free(held);
    return set;
}

/* An outer lock's slot does not apply to this lock. */
static bool set_slot(int slot)
{
    char text[16];
    snprintf(text, sizeof text, "%d", slot);
    return slot >= 0 ? setenv("DLOCK_SLOT", text, 1) == 0 : unsetenv("DLOCK_SLOT") == 0;
}

bool held_locks_export(const struct lease *lease, const char *backend)
{
    char fence[24], ttl[32], expires[32];
    snprintf(fence, sizeof fence, "%" PRId64, lease->fence);
    format_seconds(lease->ttl, ttl, sizeof ttl);
    wall_format(wall_at_ms(lease->deadline), expires, sizeof expires);
    return setenv("DLOCK_NAME", lease->name, 1) == 0 &&
           setenv("DLOCK_LOCK_KEY", lease->key, 1) == 0 &&
           setenv("DLOCK_LOCK_OWNER", lease->token, 1) == 0 &&
           setenv("DLOCK_LOCK_TTL", ttl, 1) == 0 && setenv("DLOCK_LOCK_BACKEND", backend, 1) == 0 &&
           setenv("DLOCK_FENCE", fence, 1) == 0 && setenv("DLOCK_EXPIRES_AT", expires, 1) == 0 &&
           set_slot(lease->slot) && export_held(lease, backend);
}
