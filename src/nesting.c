#include "nesting.h"

#include "proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANCESTORS_MOST = 1024 };

bool nested_by_environment(struct backend *backend, const char *key, struct lease *lease, struct bound bound)
{
    struct held held;
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;) {
        struct why ignored = {""};
        if (!held_next(&at, &held) || strcmp(held.backend, backend->kind) != 0 || strcmp(held.key, key) != 0)
            continue;
        *lease = (struct lease){.key = key, .token = held.token, .take_id = ""};
        if (backend->check(backend, lease, bound, &ignored) == LOCK_OK)
            return true;
    }
    return false;
}

bool nested_by_ancestry(const struct holder *holder, const struct holder *self)
{
    struct proc_stat stat;
    if (!holder->known || holder->pid <= 0 || self->boot_id[0] == '\0' || strcmp(holder->boot_id, self->boot_id) != 0 ||
        !proc_is_ours())
        return false;
    pid_t pid = self->pid;
    for (int depth = 0; pid > 0 && depth < ANCESTORS_MOST; depth++) {
        if (!proc_stat_read(pid, &stat))
            return false;
        if (pid == holder->pid)
            return stat.start == holder->pid_start;
        pid = stat.parent;
    }
    return false;
}
