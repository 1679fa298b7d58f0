#include "lock/lock_state.h"

#include "config.h"
#include "lock/format.h"
#include "util/array.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lock_forcer(char text[FORCER_SIZE])
{
    struct holder self;
    holder_fill(&self, 0, "");
    snprintf(text, FORCER_SIZE, "%s@%s", self.user, self.host);
}

void lock_forced(struct errmsg *why, const char *by)
{
    errmsg_set(why, "taken away by %.350s with --force-release", by);
}

bool lock_state_init(struct lock_state *state, const char *key, size_t count)
{
    *state = (struct lock_state){.locked = count > 0, .owner_count = count};
    text_copy(state->key, sizeof state->key, key);
    if (count > 0)
        state->owners = calloc(count, sizeof *state->owners);
    if (count > 0 && state->owners == NULL) {
        state->owner_count = 0;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        state->owners[i].slot = -1;
    return true;
}

void lock_state_free(struct lock_state *state)
{
    free(state->owners);
    free(state->queue);
    *state = (struct lock_state){0};
}

enum lock_result lock_state_of_list(struct lock_state *state, const char *key,
                                    enum lock_result looked)
{
    int64_t newer = state->newer;

    if (looked != LOCK_INVALID || (newer == 0 && !state->unusable))
        return looked;
    (void)lock_state_init(state, key, 0);
    state->newer = newer;
    return LOCK_OK;
}

bool lock_state_is_listed(const struct lock_state *state, bool all)
{
    return state->locked || state->newer > 0 || state->pause.left.ns > 0 ||
           (all && state->memory.last.end.how != RUN_NONE);
}

const struct lock_owner *lock_state_owner(const struct lock_state *state, const char *token)
{
    for (size_t i = 0; i < state->owner_count; i++)
        if (strcmp(state->owners[i].token, token) == 0)
            return &state->owners[i];
    return NULL;
}

bool key_list_add(struct key_list *list, const char *key)
{
    char **added = array_add(&list->keys, &list->count, &list->room, sizeof *added);

    if (added != NULL)
        *added = strdup(key);
    if (added != NULL && *added == NULL)
        list->count--;
    return added != NULL && *added != NULL;
}

static int in_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void key_list_sort(struct key_list *list)
{
    size_t kept = 0;

    if (list->count > 1)
        qsort(list->keys, list->count, sizeof *list->keys, in_order);
    for (size_t i = 0; i < list->count; i++)
        if (kept > 0 && strcmp(list->keys[i], list->keys[kept - 1]) == 0)
            free(list->keys[i]);
        else
            list->keys[kept++] = list->keys[i];
    list->count = kept;
}

void key_list_free(struct key_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->keys[i]);
    free(list->keys);
    *list = (struct key_list){0};
}

enum lock_result format_newer(struct errmsg *why, int64_t format)
{
    return errmsg_fail(why, LOCK_INVALID,
                       "stored in format %" PRId64 " by a newer dlock, but dlock " PACKAGE_VERSION
                       " supports formats up to %d only; upgrade dlock on this host",
                       format, STORE_FORMAT);
}
