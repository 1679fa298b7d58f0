#include "run/held_locks.h"

#include "process/procfs.h"
#include "run/attach_record.h"
#include "util/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANCESTORS_MOST = 1024, ENVIRONMENT_MOST = 1 << 21 };

static bool add(struct held_locks *list, const struct held *held)
{
    struct held *more = list_with_room(list->list, list->count, &list->room, sizeof *more);
    if (more == NULL)
        return false;
    list->list = more;
    list->list[list->count++] = *held;
    return true;
}

/* The innermost comes last in DLOCK_HELD. */
static void reverse(struct held_locks *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        struct held held = list->list[i];
        list->list[i] = list->list[list->count - 1 - i];
        list->list[list->count - 1 - i] = held;
    }
}

static bool read_lines(struct held_locks *list, const char *lines)
{
    struct held held;
    for (const char *at = lines; at != NULL;)
        if (held_next(&at, &held) && !add(list, &held))
            return false;
    reverse(list);
    return true;
}

/* DLOCK_HELD in the environment with which that process was executed; the
 * caller frees it, NULL if there is none. proc(5) */
static char *read_environment(pid_t pid)
{
    static const char name[] = "DLOCK_HELD=";
    char path[64], *variable = NULL, *found = NULL;
    size_t size = 0, total = 0;
    ssize_t length;
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    while (found == NULL && total < ENVIRONMENT_MOST &&
           (length = getdelim(&variable, &size, '\0', file)) > 0) {
        total += (size_t)length;
        if (strncmp(variable, name, sizeof name - 1) == 0)
            found = strdup(variable + sizeof name - 1);
    }
    free(variable);
    fclose(file);
    return found;
}

static char *read_ancestor(void)
{
    struct proc_stat stat;
    pid_t pid = getppid();
    if (!proc_is_ours())
        return NULL;
    for (int depth = 0; pid > 0 && depth < ANCESTORS_MOST; depth++) {
        char *lines = read_environment(pid);
        if (lines != NULL)
            return lines;
        if (!proc_stat_read(pid, &stat))
            break;
        pid = stat.parent;
    }
    return NULL;
}

static bool read_told(struct held_locks *list)
{
    const char *own = getenv("DLOCK_HELD");
    if (own != NULL)
        return read_lines(list, own);
    char *lines = read_ancestor();
    bool done = lines == NULL || read_lines(list, lines);
    free(lines);
    return done;
}

/* How many locks were in that process's environment when it was executed. */
static size_t count_told(pid_t pid)
{
    size_t count = 0;
    char *lines = read_environment(pid);
    struct held held;
    for (const char *at = lines; at != NULL;)
        count += held_next(&at, &held);
    free(lines);
    return count;
}

struct attached_list {
    struct held_locks *list;
    size_t told; /* how many of the list come from the environment */
    bool done;
};

/* Locks that a script got through its environment lie outside of those attached
 * to it, and locks added to the environment since then lie inside. So an
 * attached lock goes before the former, and behind the attached locks that are
 * further inside. */
static bool add_attached(void *data, pid_t pid, const struct held *held)
{
    struct attached_list *attached = data;
    struct held_locks *list = attached->list;
    size_t outside = count_told(pid);
    outside = outside < attached->told ? outside : attached->told;
    attached->done = add(list, held);
    if (!attached->done)
        return true;
    size_t at = list->count - 1 - outside;
    memmove(&list->list[at + 1], &list->list[at], outside * sizeof *list->list);
    list->list[at] = *held;
    return false;
}

bool held_locks_read(struct held_locks *list, const char *lock_dir)
{
    *list = (struct held_locks){0};
    if (!read_told(list))
        return false;
    struct attached_list attached = {.list = list, .told = list->count, .done = true};
    (void)attach_record_visit_ancestors(lock_dir, add_attached, &attached);
    return attached.done;
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
