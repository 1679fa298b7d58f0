/* Whose children are whose, by /proc. Source of the formats: proc(5). */
#ifndef DLOCK_PROCESS_PROC_CHILDREN_H
#define DLOCK_PROCESS_PROC_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pids {
    pid_t *list; /* the caller's to free */
    size_t count, room;
    bool short_of_memory; /* some are left out */
};

/* Whether the kernel lists the children of each process; else all processes are
 * asked for their parents. */
bool proc_children_listed(void);

/* Adds all processes. */
void proc_list(struct pids *all);

/* Adds the children that the process has at this moment. `threads`: how many it
 * has, 1 or more, 0 where that is not known; `listed` as above. */
void proc_children_list(pid_t pid, int threads, bool listed, struct pids *children);

#endif
