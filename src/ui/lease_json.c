#include "ui/lease_json.h"

#include "util/json.h"

#include <stdio.h>

/* Leases are counted on the boot clock, people read the wall clock. */
static int64_t wall_ms_of(struct deadline when)
{
    if (when.boot_ns == 0)
        return 0;
    return wall_now_ms() + (when.boot_ns - deadline_now().boot_ns) / NS_PER_MS;
}

void lease_json_print(const struct lease *lease, const char *scope)
{
    struct json json = {.to = stdout};
    json_begin(&json, NULL, '{');
    json_text(&json, "key", lease->name);
    json_text(&json, "full_key", lease->key);
    json_bool(&json, "acquired", true);
    json_text(&json, "owner", lease->token);
    json_text(&json, "scope", scope);
    if (lease->fence != 0)
        json_number(&json, "fence", lease->fence);
    else
        json_null(&json, "fence");
    json_time(&json, "acquired_at", wall_ms_of(lease->taken));
    json_time(&json, "expires_at", wall_ms_of(lease->deadline));
    json_text(&json, "mode", lock_mode_name(lease->mode));
    if (lease->slot >= 0)
        json_number(&json, "slot", lease->slot);
    json_end(&json, '}');
    putchar('\n');
}
