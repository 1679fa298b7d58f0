/* Reads /proc. Source of the formats: proc(5). */
#ifndef DLOCK_PROCESS_PROCFS_H
#define DLOCK_PROCESS_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
    char name[16]; /* the program's name, truncated */
    char state;    /* R, S, D, T, Z, ... */
    bool executed; /* true if the process has executed a program since its fork */
    pid_t parent;
    int threads;
    /* The start time in clock ticks since boot, the same in all time namespaces. A later process
     * with the same pid has a different start time. */
    int64_t start;
};

/* A process, distinguished from a later process with the same pid. */
struct process_id {
    pid_t pid;
    int64_t start; /* as in struct proc_stat */
};

/* Reads /proc/PID/stat; pid 0 is this process. False if there is no such process. */
bool proc_stat_read(pid_t pid, struct proc_stat *stat);

/* True if all threads of the process are zombies: the process has ended, even if its parent does
 * not reap it. *stat is from proc_stat_read(). */
bool proc_is_dead(pid_t pid, const struct proc_stat *stat);

enum process_life {
    PROCESS_UNKNOWN, /* the process is on another host or in another pid namespace */
    PROCESS_HIDDEN,  /* the pid is in use; /proc does not show by which process (hidepid=) */
    PROCESS_LIVES,
    PROCESS_ENDED,
};

/* Finds out whether a process lives. The process must be of this boot and of our pid namespace. */
enum process_life proc_life(struct process_id id);

/* True if /proc shows this process under its own pid. False if /proc was mounted for
 * another pid namespace. */
bool proc_is_ours(void);

/* An iteration over a process and its ancestors. It starts with the process `next`. */
struct proc_ancestry {
    pid_t next;
    int count;
    pid_t pid; /* the process that was reached last */
    struct proc_stat stat;
};

/* The first call reads the process itself, each further call the next ancestor. False if there is
 * no further ancestor, or if /proc does not show it. */
bool proc_next_ancestor(struct proc_ancestry *at);

/* True if `pid` is the process `id` or one of its descendants. */
bool proc_descends_from(pid_t pid, struct process_id id);

/* True if the process was executed with an environment variable `name` whose value begins with the
 * lines `lines`. False if this process may not read that environment. */
bool proc_environ_has(pid_t pid, const char *name, const char *lines);

/* Reads the first number after `word` in the fdinfo of our open file `fd` (proc(5)). False if
 * fdinfo has no such word. */
bool proc_fdinfo_number(int fd, const char *word, int base, uint64_t *number);

/* The id of this boot; "" if it is not available. A container manager may provide an id that
 * does not identify the kernel's boot; such an id is returned with a '~' before it. */
void proc_boot_id(char *text, size_t size);

/* By how many nanoseconds CLOCK_BOOTTIME in our time namespace is ahead of CLOCK_BOOTTIME in
 * the first time namespace. */
int64_t proc_boot_offset(void);

/* A number for this process's pid namespace. During one boot, no other pid namespace has the
 * same number at the same time. 0: unknown. */
int64_t proc_pid_space(void);

/* True if this process is in the pid namespace that the system was booted with, the only one in
 * which the kernel shows everything about every process. False if that is not known. */
bool proc_pid_space_is_first(void);

struct pids {
    pid_t *list; /* the caller frees it */
    size_t count, room;
    bool short_of_memory; /* some pids are missing */
};

/* Adds a pid. False if memory is short. */
bool pids_add(struct pids *pids, pid_t pid);
bool pids_has(const struct pids *pids, pid_t pid);

/* Lists the process and its ancestors, as far as they are visible. False if some may be missing,
 * because one of them could not be read (it may just have ended). */
bool proc_list_ancestors(pid_t pid, struct pids *all);

/* Adds each name in the directory that is a number above 0: processes in /proc, threads or
 * descriptors in its subdirectories. False if the directory cannot be read. */
bool proc_list(const char *path, struct pids *all);

/* Adds the children that the process has at this moment. `threads` is its number of threads;
 * 0: unknown. */
void proc_children_list(pid_t pid, int threads, struct pids *children);

#endif
