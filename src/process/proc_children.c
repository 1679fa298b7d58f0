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

/* Where the kernel does not list them (no CONFIG_PROC_CHILDREN; gVisor): all
 * processes whose parent it is. */
static void search_children(pid_t pid, struct pids *children)
{
    DIR *all = opendir("/proc");
    struct proc_stat stat;
    for (const struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        long other = strtol(entry->d_name, NULL, 10);
        if (other > 0 && proc_stat_read((pid_t)other, &stat) && stat.parent == pid)
            add_pid(children, (pid_t)other);
    }
    if (all != NULL)
        closedir(all);
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
