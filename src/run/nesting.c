#include "run/nesting.h"

#include "process/procfs.h"
#include "run/attach_record.h"

#include <string.h>
#include <unistd.h>

enum lock_result nested_claim_check(struct backend *backend, const char *key,
                                    const struct held *held, struct lease *lease,
                                    struct bound bound, struct errmsg *why)
{
    if (strcmp(held->backend, backend->kind) != 0 || strcmp(held->key, key) != 0)
        return LOCK_GONE;
    *lease =
        (struct lease){.key = key, .token = held->token, .take_id = held->take_id, .outside = true};
    enum lock_result result = backend->check(backend, lease, bound, why);
    lease->token = lease->take_id = ""; /* they were the claim's own */
    return result;
}

bool nested_by_attachment(struct backend *backend, const char *lock_dir, const char *key,
                          struct lease *lease, struct bound bound)
{
    struct held_locks attached = {0};
    struct errmsg ignored = {""};
    bool holds = false;
    attach_record_find(&attached, lock_dir);
    for (size_t i = 0; i < attached.count && !holds; i++)
        holds = !attached.list[i].ended && nested_claim_check(backend, key, &attached.list[i],
                                                              lease, bound, &ignored) == LOCK_OK;
    held_locks_free(&attached);
    return holds;
}

/* An outer dlock may be another build, or bear another name as we do. */
static bool is_dlock(const char *name, const char *own)
{
    return strncmp(name, "dlock", strlen("dlock")) == 0 || strcmp(name, own) == 0;
}

bool nested_in_dlock(pid_t self)
{
    struct proc_ancestry at = {.next = self};
    struct proc_stat own;

    if (!proc_stat_read(0, &own))
        return true;
    while (proc_next_ancestor(&at))
        if (at.pid != getpid() && is_dlock(at.stat.name, own.name))
            return true;
    return false;
}

bool nested_by_ancestry(const struct holder *holder, const struct holder *self)
{
    return holder_is_near(holder, self) && !holder->kept && !holder->detached &&
           proc_descends_from(self->pid, (struct process_id){holder->pid, holder->pid_start});
}
