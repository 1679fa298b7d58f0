#include "process/proc_children.h"

#include "process/procfs.h"
#include "util/list.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void add_pid(struct pids *pids, pid_t pid)
{
    pid_t *list = list_with_room(pids->list, pids->count, &pids->room, sizeof *list);
    if (list == NULL) {
        pids->short_of_memory = true; /* the next walk, with fewer of them left, finds it */
        return;
    }
    pids->list = list;
    list[pids->count++] = pid;
}

/* The children that one thread of `pid` forked. */
static void list_children_of(pid_t pid, const char *thread, struct pids *children)
{
    char path[64], *line = NULL, *end;
    size_t size = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%.16s/children", (long)pid, thread);
    FILE *list = fopen(path, "re");
    if (list == NULL)
        return;
    if (getline(&line, &size, list) > 0) {
        for (const char *at = line;; at = end) {
            long child = strtol(at, &end, 10);
            if (end == at || child <= 0)
                break;
            add_pid(children, (pid_t)child);
        }
    }
    free(line);
    fclose(list);
}

static DIR *open_threads(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    return opendir(path);
}

void proc_list(struct pids *all)
{
    DIR *list = opendir("/proc");
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0)
            add_pid(all, (pid_t)pid);
    }
    if (list != NULL)
        closedir(list);
}

/* Where the kernel does not list them (no CONFIG_PROC_CHILDREN; gVisor): all
 * processes whose parent it is. */
static void search_children(pid_t pid, struct pids *children)
{
    struct pids all = {0};
    struct proc_stat stat;
    proc_list(&all);
    for (size_t i = 0; i < all.count; i++)
        if (proc_stat_read(all.list[i], &stat) && stat.parent == pid)
            add_pid(children, all.list[i]);
    children->short_of_memory |= all.short_of_memory;
    free(all.list);
}

/* Our own are always there to be asked for, where any are. */
bool proc_children_listed(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    return access(path, F_OK) == 0;
}

void proc_children_list(pid_t pid, int threads, bool listed, struct pids *children)
{
    char leader[16];
    snprintf(leader, sizeof leader, "%ld", (long)pid);
    if (!listed) {
        search_children(pid, children);
    } else if (threads == 1) {
        list_children_of(pid, leader, children);
    } else {
        DIR *all = open_threads(pid);
        for (const struct dirent *thread; all != NULL && (thread = readdir(all)) != NULL;)
            if (thread->d_name[0] != '.')
                list_children_of(pid, thread->d_name, children);
        if (all != NULL)
            closedir(all);
    }
}
