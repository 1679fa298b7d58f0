#include "lease_json.h"

#include "json.h"

#include <stdio.h>

void lease_json_print(const struct lease *lease, const char *scope)
{
    struct json json = {.to = stdout};
    int64_t now = wall_now_ms(), since = deadline_gap(lease->taken, deadline_now()).ns / NS_PER_MS;
    json_begin(&json, NULL, '{');
    json_text(&json, "key", lease->name);
    json_text(&json, "full_key", lease->key);
    json_bool(&json, "acquired", true);
    json_text(&json, "owner", lease->token);
    json_text(&json, "scope", scope);
    json_number(&json, "fence", lease->fence);
    json_time(&json, "acquired_at", now - since);
    json_time(&json, "expires_at", now + deadline_left(lease->deadline).ns / NS_PER_MS);
    json_text(&json, "mode", lock_mode_name(lease->mode));
    if (lease->slot >= 0)
        json_number(&json, "slot", lease->slot);
    json_end(&json, '}');
    putchar('\n');
}
