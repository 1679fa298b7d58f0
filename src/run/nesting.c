#include "run/nesting.h"

#include "process/procfs.h"
#include "run/attach_record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANCESTORS_MOST = 1024 };

struct claim {
    struct backend *backend;
    const char *key;
    struct lease *lease;
    struct bound bound;
};

static bool claim_holds(const struct claim *claim, const struct held *held)
{
    struct backend *backend = claim->backend;
    struct errmsg ignored = {""};
    if (strcmp(held->backend, backend->kind) != 0 || strcmp(held->key, claim->key) != 0)
        return false;
    *claim->lease = (struct lease){
        .key = claim->key, .token = held->token, .take_id = held->take_id, .outside = true};
    bool holds = backend->check(backend, claim->lease, claim->bound, &ignored) == LOCK_OK;
    claim->lease->token = claim->lease->take_id = ""; /* they were the claim's own */
    return holds;
}

bool nested_by_environment(struct backend *backend, const char *key, struct lease *lease,
                           struct bound bound)
{
    struct claim claim = {backend, key, lease, bound};
    struct held held;
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;)
        if (held_next(&at, &held) && claim_holds(&claim, &held))
            return true;
    return false;
}

static bool attachment_holds(void *data, pid_t pid, const struct held *held)
{
    (void)pid;
    return claim_holds(data, held);
}

bool nested_by_attachment(struct backend *backend, const char *lock_dir, const char *key,
                          struct lease *lease, struct bound bound)
{
    struct claim claim = {backend, key, lease, bound};
    return attach_record_visit_ancestors(lock_dir, attachment_holds, &claim);
}

bool nested_by_ancestry(const struct holder *holder, const struct holder *self)
{
    struct proc_stat stat;
    if (!holder_is_near(holder, self) || holder->kept || holder->detached || !proc_is_ours())
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
