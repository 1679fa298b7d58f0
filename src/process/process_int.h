/* Declarations shared by the files of process/. */
#ifndef DLOCK_PROCESS_PROCESS_INT_H
#define DLOCK_PROCESS_PROCESS_INT_H

#include "process/process.h"

#include <limits.h>
#include <stdatomic.h>

/* The size of the stack: much more than the command's process needs until exec. The size is not a
 * multiple of the page size, so the used end of the stack shares a page with the members after it,
 * which saves two page faults. */
enum { SPAWN_STACK = 10 << 10 };

/* The state of the command, in memory that dlock shares with the command's process and with the
 * guard. Messages through a socket would not do, because they would be lost while the socket is
 * full. All members are zero at the start. */
struct guard_page {
    _Alignas(16) char stack[SPAWN_STACK]; /* the stack of the command's process until exec */
    atomic_int exec_errno; /* written if the command's process fails to execute the command */
    atomic_int command;    /* the command's pid; 0: not started */
    atomic_int stops;      /* how often the command has been stopped */
    atomic_int stopped_by; /* the signal that has stopped the command; 0: the command runs */
    atomic_int ended;      /* true once the command has ended; set after `status` */
    atomic_int status;     /* the command's wait status */
    atomic_bool dismissed; /* the command's guard process has been dismissed and must not kill
                            * anything */
    /* Used until exec, by spawn() and the command's process: */
    const struct command *plan;
    pid_t parent;
    char path[PATH_MAX + NAME_MAX + 2];
    const char *script_argv[]; /* room for "/bin/sh" and all of plan->argv */
};

/* Writes the command's new state to the page. `status` is from waitpid(2). */
void note_change(struct guard_page *page, int status);

/* Starts a child of the calling thread. The child executes the command or, if that fails, sets
 * page->exec_errno and exits with 126 or 127. Returns the child's pid without waiting for exec, or
 * -1 with errno set. */
pid_t spawn(const struct command *plan, struct guard_page *page);

/* True if our child `pid` has ended. Does not reap it. */
bool process_is_reapable(pid_t pid);

/* Sends the signal to the command alone. With --tree, once the command has ended, sends the signal
 * to the processes that the guard still waits for. */
void child_signal(const struct child *child, int number);

/* Starts the guard of --tree, which starts the command. Sets pid, command and guard_fd of the
 * child. `exec_end` is the write end of the pipe of exec_fd; the guard closes its own copy, so that
 * the pipe ends with the command's exec. The guard ends when the command and all its descendants
 * have ended; if dlock ends first, the guard kills them all. Returns 0 or an errno. */
int tree_guard_start(struct child *child, int exec_end);

/* Forks the guard beside the command. The guard inherits all open files, so a file lock stays held
 * until the guard ends. `held` is the command's DLOCK_HELD. dlock's own DLOCK_HELD would not do,
 * because it may name the lock of an outer dlock, and the other processes under that lock must stay
 * alive. Returns the guard's pid, or -1 with errno set. */
pid_t orphan_guard_start(const struct child *child, const char *held);

#endif
