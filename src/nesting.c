#include "nesting.h"

#include "proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANCESTORS_MOST = 1024 };

/* The token in "BACKEND TOKEN KEY" (length bytes) if it is of this lock. */
static bool token_of(const char *line, size_t length, const char *backend, const char *key, char token[TOKEN_SIZE])
{
    size_t kind = strlen(backend);
    if (length <= kind || memcmp(line, backend, kind) != 0 || line[kind] != ' ')
        return false;
    const char *from = line + kind + 1, *end = line + length;
    const char *space = memchr(from, ' ', (size_t)(end - from));
    if (space == NULL || space == from || space - from >= TOKEN_SIZE || (size_t)(end - space - 1) != strlen(key) ||
        memcmp(space + 1, key, strlen(key)) != 0)
        return false;
    memcpy(token, from, (size_t)(space - from));
    token[space - from] = '\0';
    return true;
}

bool nested_by_environment(struct backend *backend, const char *key, struct bound bound)
{
    char token[TOKEN_SIZE];
    const char *line = getenv("DLOCK_HELD");
    while (line != NULL && *line != '\0') {
        size_t length = strcspn(line, "\n");
        struct why ignored = {""};
        if (token_of(line, length, backend->kind, key, token)) {
            struct lease lease = {.key = key, .token = token, .take_id = ""};
            if (backend->check(backend, &lease, bound, &ignored) == LOCK_OK)
                return true;
        }
        line += length + (line[length] == '\n');
    }
    return false;
}

bool nested_by_ancestry(const struct holder *holder, const struct holder *self)
{
    struct proc_stat stat;
    if (!holder->known || holder->pid <= 0 || self->boot_id[0] == '\0' || strcmp(holder->boot_id, self->boot_id) != 0 ||
        !proc_is_ours())
        return false;
    pid_t pid = getppid();
    for (int depth = 0; pid > 0 && depth < ANCESTORS_MOST; depth++) {
        if (!proc_stat_read(pid, &stat))
            return false;
        if (pid == holder->pid)
            return stat.start == holder->pid_start;
        pid = stat.parent;
    }
    return false;
}
