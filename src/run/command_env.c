#include "run/command_env.h"

#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static bool add_held(const struct lease *lease, const char *backend)
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

bool command_env_set(const struct lease *lease, const char *backend)
{
    char fence[24], ttl[32], expires[32];
    snprintf(fence, sizeof fence, "%" PRId64, lease->fence);
    format_seconds(lease->ttl, ttl, sizeof ttl);
    wall_format(wall_after_ms(deadline_left(lease->deadline)), expires, sizeof expires);
    return setenv("DLOCK_NAME", lease->name, 1) == 0 &&
           setenv("DLOCK_LOCK_KEY", lease->key, 1) == 0 &&
           setenv("DLOCK_LOCK_OWNER", lease->token, 1) == 0 &&
           setenv("DLOCK_LOCK_TTL", ttl, 1) == 0 && setenv("DLOCK_LOCK_BACKEND", backend, 1) == 0 &&
           setenv("DLOCK_FENCE", fence, 1) == 0 && setenv("DLOCK_EXPIRES_AT", expires, 1) == 0 &&
           set_slot(lease->slot) && add_held(lease, backend);
}
