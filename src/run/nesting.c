#include "run/nesting.h"

#include "process/procfs.h"
#include "run/attach_record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool claim_holds(struct backend *backend, const char *key, const struct held *held,
                        struct lease *lease, struct bound bound)
{
    struct errmsg ignored = {""};
    if (strcmp(held->backend, backend->kind) != 0 || strcmp(held->key, key) != 0)
        return false;
    *lease =
        (struct lease){.key = key, .token = held->token, .take_id = held->take_id, .outside = true};
    bool holds = backend->check(backend, lease, bound, &ignored) == LOCK_OK;
    lease->token = lease->take_id = ""; /* they were the claim's own */
    return holds;
}

bool nested_by_environment(struct backend *backend, const char *key, struct lease *lease,
                           struct bound bound)
{
    struct held held;
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;)
        if (held_next(&at, &held) && claim_holds(backend, key, &held, lease, bound))
            return true;
    return false;
}

bool nested_by_attachment(struct backend *backend, const char *lock_dir, const char *key,
                          struct lease *lease, struct bound bound)
{
    struct held_locks attached = {0};
    bool holds = false;
    attach_record_find(&attached, lock_dir);
    for (size_t i = 0; i < attached.count && !holds; i++)
        holds = claim_holds(backend, key, &attached.list[i], lease, bound);
    held_locks_free(&attached);
    return holds;
}

/* An outer dlock may be another build, or bear another name as we do. */
static bool is_dlock(void *own, pid_t pid, const struct proc_stat *stat)
{
    const struct proc_stat *self = own;
    return pid != getpid() && (strncmp(stat->name, "dlock", strlen("dlock")) == 0 ||
                               strcmp(stat->name, self->name) == 0);
}

bool nested_in_dlock(pid_t self)
{
    struct proc_stat own;
    return !proc_stat_read(0, &own) || proc_visit_ancestors(self, is_dlock, &own);
}

bool nested_by_ancestry(const struct holder *holder, const struct holder *self)
{
    return holder_is_near(holder, self) && !holder->kept && !holder->detached &&
           proc_descends_from(self->pid, (struct process_id){holder->pid, holder->pid_start});
}
