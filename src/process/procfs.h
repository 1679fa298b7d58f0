/* Reads /proc. Source of the formats: proc(5). */
#ifndef DLOCK_PROCESS_PROCFS_H
#define DLOCK_PROCESS_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
    char name[16]; /* of the program, cut */
    char state;    /* R, S, D, T, Z, ... */
    pid_t parent;
    int threads;
    /* In clock ticks since boot, the same in all time namespaces. A later process with
     * the same pid has another one. */
    int64_t start;
};

/* A process, distinguished from a later one with its pid. */
struct process_id {
    pid_t pid;
    int64_t start; /* of struct proc_stat */
};

/* Of the process itself with pid 0. False if there is no such process. */
bool proc_stat_read(pid_t pid, struct proc_stat *stat);

/* True if all threads of the process that *stat is of are zombies: it has ended, even if
 * its parent does not reap it. */
bool proc_is_dead(pid_t pid, const struct proc_stat *stat);

enum process_life {
    PROCESS_UNKNOWN, /* of another host or pid namespace */
    PROCESS_HIDDEN,  /* the pid is in use, and /proc does not show whose it is (hidepid=) */
    PROCESS_LIVES,
    PROCESS_ENDED,
};

/* Of a process of this boot, and of our pid namespace. */
enum process_life proc_life(struct process_id id);

/* True if /proc knows this process by its own pid: not if it was mounted for a
 * pid namespace other than ours. */
bool proc_is_ours(void);

/* A climb from a process, which `next` names at first, to its ancestors. */
struct proc_ancestry {
    pid_t next;
    int count;
    pid_t pid; /* the process that was reached last */
    struct proc_stat stat;
};

/* Goes on to the process itself, then to each of its ancestors. False if there are no more,
 * or if they are not visible. */
bool proc_next_ancestor(struct proc_ancestry *at);

/* True if the process is `id`, or a descendant of it. */
bool proc_descends_from(pid_t pid, struct process_id id);

/* True if the process was executed with a variable `name` in its environment
 * whose first lines are `lines`. False if we may not look. */
bool proc_environ_has(pid_t pid, const char *name, const char *lines);

/* The first number after `word` in the fdinfo of one of our open files, proc(5). */
bool proc_fdinfo_number(int fd, const char *word, int base, uint64_t *number);

/* The id of this boot; "" if it is not available. A container may have been
 * given another one, which does not identify the kernel's boot: that begins
 * with '~'. */
void proc_boot_id(char *text, size_t size);

/* By how many nanoseconds our CLOCK_BOOTTIME is ahead of that of the first time
 * namespace, whichever ours is. */
int64_t proc_boot_offset(void);

/* A number for the pid namespace that this process is in: on one boot no other
 * namespace has it at the same time. 0: unknown. */
int64_t proc_pid_space(void);

struct pids {
    pid_t *list; /* the caller's to free */
    size_t count, room;
    bool short_of_memory; /* some are left out */
};

/* Adds one. False if memory is short. */
bool pids_add(struct pids *pids, pid_t pid);
bool pids_has(const struct pids *pids, pid_t pid);

/* Adds the numbers above 0 that are names in this directory: in /proc those of processes, in
 * others those of threads or descriptors. False if it cannot be read. */
bool proc_list(const char *path, struct pids *all);

/* Adds the children that the process has at this moment. `threads`: how many it has, 1 or
 * more, 0 if that is not known. */
void proc_children_list(pid_t pid, int threads, struct pids *children);

#endif
