/* The order of the signals.
 *
 * A stop goes to parents before their children. If a child ended before its
 * shell's own signal had arrived, the shell would start its next command, and the
 * lock would be gone by then. So the signal is pending with the parent first: a
 * shell without a trap dies of it, one with a trap runs that. All are found and
 * pinned before the first is signalled, since a process that ends leaves its
 * children elsewhere. Of siblings the younger goes first: in a pipeline it reads
 * what the older one writes, and would take its end for the end of the data.
 *
 * They are not frozen for a stop, as they are for a kill: a stopped process is
 * reported to its parent, and a shell above would take the terminal back from it.
 *
 * A kill freezes parents before their children, so that none can fork any more,
 * and then ends them in the same order. */
#include "process/process_tree.h"

#include "process/procfs.h"
#include "util/array.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DEPTH_MOST = 128,  /* deeper than any intended tree; it bounds our own stack */
    FREEZE_MOST = 200, /* walks that stop a tree; after them it is killed anyway */
    FIND_MOST = 4,     /* walks that find a tree; after them it is signalled anyway */
};

/* How long those walks may delay the signal: a last one may still begin then. */
static const struct duration find_limit = {10 * NS_PER_MS};

/* A process that will be signalled. */
struct mark {
    struct process_id id;
    int pidfd; /* -1: no descriptor is left, or the kernel has none */
    bool stopped;
};

struct marks {
    struct mark *list;
    size_t count, room;
};

struct walk {
    int number;          /* 0: no process is signalled */
    struct marks *marks; /* NULL: no process is marked */
    bool listed;         /* the kernel lists the children of each process */
    struct deadline until;
    pid_t root; /* whose descendants; 0: the family's */
    const struct pids *except;
    struct process_family *family; /* NULL: they are our own */
    struct process_count count;
};

/* One of a family. */
struct process_member {
    struct process_id id;
    bool seen; /* by the walk that is under way */
    bool lives;
};

/* The process whose children are looked at. */
struct parent {
    pid_t pid;
    int pidfd; /* -1: this process, or the kernel has none */
    int threads;
    int depth;
};

/* --- walking ------------------------------------------------------------- */

static bool is_excepted(pid_t pid, const struct pids *except)
{
    for (size_t i = 0; except != NULL && i < except->count; i++)
        if (except->list[i] == pid)
            return true;
    return false;
}

bool process_spare_keep(struct process_spare *spare)
{
    *spare = PROCESS_SPARE_NONE;
    for (size_t i = 0; i < sizeof spare->fds / sizeof *spare->fds; i++)
        if ((spare->fds[i] = eventfd(0, EFD_CLOEXEC)) < 0)
            return false;
    return true;
}

void process_spare_free(struct process_spare *spare)
{
    for (size_t i = 0; i < sizeof spare->fds / sizeof *spare->fds; i++)
        fd_close(&spare->fds[i]);
}

/* True if what has to be read next can be read: a list of threads, and a file of one. */
static bool can_open_two(int fd)
{
    int first = fcntl(fd, F_DUPFD_CLOEXEC, 0), second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    bool both = second >= 0;
    fd_close(&first);
    fd_close(&second);
    return both;
}

/* Linux before 5.3, and some sandboxes, have no pidfds. And no pidfd takes one
 * of the last descriptors. */
static int pin(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0 || can_open_two(pidfd))
        return pidfd;
    close(pidfd);
    errno = EMFILE;
    return -1;
}

/* A pid may be reused once its process has ended, though a pidfd is open. */
static bool process_tree_has_ended(int pidfd)
{
    struct pollfd fd = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&fd, 1, 0) > 0;
}

bool process_signal(int pidfd, pid_t pid, int number)
{
    if (pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) == 0)
        return true;
    if (pidfd >= 0 && (errno == ESRCH || process_tree_has_ended(pidfd))) {
        errno = ESRCH;
        return false;
    }
    return kill(pid, number) == 0;
}

/* Looked at after the child, so that it was the child's parent then. A process
 * that has ended has left its children to us. */
static bool is_child_of(const struct walk *walk, const struct parent *parent,
                        const struct proc_stat *child)
{
    return (child->parent == parent->pid && !process_tree_has_ended(parent->pidfd)) ||
           (walk->root != 0 && child->parent == walk->root);
}

/* A child that runs with the rights of another user may be hidden by /proc (hidepid=), though
 * we may signal it. It was listed before it was pinned, and is still: the pidfd is its own, or
 * that of a process which has ended. */
static bool is_hidden_child(const struct walk *walk, const struct parent *parent, pid_t pid,
                            int pidfd)
{
    struct pids again = {0};
    if (pidfd < 0 || !walk->listed)
        return false;
    proc_children_list(parent->pid, parent->threads, true, &again);
    bool listed = is_excepted(pid, &again);
    free(again.list);
    return listed && !process_tree_has_ended(pidfd);
}

static void walk_below(struct walk *walk, const struct parent *parent);

/* The pidfd belongs to the marks from now on. False if memory is short. */
static bool mark(struct marks *marks, pid_t pid, int pidfd, const struct proc_stat *stat)
{
    struct mark *mark = array_add(&marks->list, &marks->count, &marks->room, sizeof *mark);
    if (mark != NULL)
        *mark = (struct mark){{pid, stat->start}, pidfd, stat->state == 'T'};
    return mark != NULL;
}

static void marks_forget(struct marks *marks)
{
    for (size_t i = 0; i < marks->count; i++)
        fd_close(&marks->list[i].pidfd);
    free(marks->list);
    *marks = (struct marks){0};
}

static void signal_mark(const struct mark *mark, int number)
{
    struct proc_stat stat;
    if (mark->pidfd >= 0 || (proc_stat_read(mark->id.pid, &stat) && stat.start == mark->id.start))
        (void)process_signal(mark->pidfd, mark->id.pid, number);
}

static void signal_marks(const struct marks *marks, int number)
{
    for (size_t i = 0; i < marks->count; i++)
        signal_mark(&marks->list[i], number);
}

/* A stopped process acts on no signal but KILL until it is continued. */
static void continue_stopped(const struct marks *marks)
{
    for (size_t i = 0; i < marks->count; i++)
        if (marks->list[i].stopped)
            signal_mark(&marks->list[i], SIGCONT);
}

/* The process is pinned, and is the right one. Returns true if the caller must
 * close the pidfd. */
static bool take_with_children(struct walk *walk, pid_t pid, int pidfd,
                               const struct proc_stat *stat, int depth)
{
    struct parent self = {.pid = pid, .pidfd = pidfd, .threads = stat->threads, .depth = depth};
    bool marked = walk->marks != NULL && mark(walk->marks, pid, pidfd, stat);
    walk->count.first = walk->count.found++ == 0 ? pid : walk->count.first;
    if (walk->number != 0)
        (void)process_signal(pidfd, pid, walk->number);
    walk_below(walk, &self);
    return !marked;
}

static bool family_meets(struct process_family *family, struct process_id id);

/* A child of `parent`; or, with none, the member of the family that started then. */
static void visit(struct walk *walk, pid_t pid, const struct parent *parent, int64_t start)
{
    struct proc_stat stat;
    bool done = true;
    if (parent != NULL && (pid == getpid() || is_excepted(pid, walk->except)))
        return;
    if (deadline_passed(walk->until))
        return;
    int pidfd = pin(pid);
    bool seen = (pidfd >= 0 || errno != ESRCH) && proc_stat_read(pid, &stat);
    bool lives = seen
                     ? !proc_is_dead(pid, &stat) &&
                           (parent != NULL ? is_child_of(walk, parent, &stat) : stat.start == start)
                     : parent != NULL && is_hidden_child(walk, parent, pid, pidfd);
    if (!seen)
        stat = (struct proc_stat){0};
    if (!lives)
        walk->count.ended++;
    else if (walk->family == NULL ||
             family_meets(walk->family, (struct process_id){pid, stat.start}))
        done = take_with_children(walk, pid, pidfd, &stat, parent != NULL ? parent->depth + 1 : 0);
    if (done)
        fd_close(&pidfd);
}

static void walk_below(struct walk *walk, const struct parent *parent)
{
    struct pids children = {0};
    if (parent->depth >= DEPTH_MOST)
        return; /* its turn comes when those above it have ended */
    proc_children_list(parent->pid, parent->threads, walk->listed, &children);
    for (size_t i = children.count; i > 0; i--)
        visit(walk, children.list[i - 1], parent, 0);
    free(children.list);
}

/* --- our own descendants ------------------------------------------------- */

static struct process_count walk_tree(struct walk walk)
{
    struct parent self = {.pid = getpid(), .pidfd = -1};
    walk.root = self.pid;
    walk.count.known = proc_is_ours();
    walk.listed = walk.count.known && proc_children_listed();
    if (walk.count.known)
        walk_below(&walk, &self);
    else if (getpid() == 1)
        walk.count.found = kill(-1, walk.number) == 0;
    return walk.count;
}

bool process_tree_inherited(struct pids *except)
{
    siginfo_t info;
    *except = (struct pids){0};
    /* Nearly always there are none, and finding that out is cheap. */
    if ((waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) ||
        !proc_is_ours())
        return true;
    proc_children_list(getpid(), 0, proc_children_listed(), except);
    return !except->short_of_memory;
}

void process_tree_reaped(struct pids *except, pid_t pid)
{
    size_t at = 0;
    while (at < except->count && except->list[at] != pid)
        at++;
    if (at < except->count)
        except->list[at] = except->list[--except->count];
}

static struct process_count walk_family(struct walk walk);

static struct process_count walk_any(struct process_family *family, const struct pids *except,
                                     int number, struct marks *marks, struct deadline until)
{
    struct walk walk = {
        .number = number, .marks = marks, .except = except, .family = family, .until = until};
    return family != NULL ? walk_family(walk) : walk_tree(walk);
}

struct process_count process_tree_kill(struct process_family *family, const struct pids *except)
{
    struct process_count count = {0};
    struct marks marks = {0};
    for (int walks = 0, before = -1; walks < FREEZE_MOST && count.found > before; walks++) {
        before = count.found;
        marks_forget(&marks);
        count = walk_any(family, except, SIGSTOP, &marks, DEADLINE_NEVER);
    }
    signal_marks(&marks, SIGKILL);
    if (!count.known)
        count = walk_any(family, except, SIGKILL, NULL, DEADLINE_NEVER);
    marks_forget(&marks);
    return count;
}

/* Walks until no more are found than before, since a process may be forked meanwhile. */
static struct process_count process_tree_find(struct process_family *family,
                                              const struct pids *except, struct marks *marks,
                                              struct deadline until)
{
    struct process_count count = {0};
    struct deadline last = deadline_after(find_limit);
    for (int walks = 0, before = -1; walks < FIND_MOST && count.found > before; walks++) {
        if (walks > 0 && (deadline_passed(last) || deadline_passed(until)))
            break;
        before = count.found;
        marks_forget(marks);
        count = walk_any(family, except, 0, marks, until);
    }
    return count;
}

struct process_count process_tree_signal(struct process_family *family, const struct pids *except,
                                         int number, struct deadline until)
{
    struct marks marks = {0};
    if (number == 0)
        return walk_any(family, except, 0, NULL, until);
    struct process_count count = process_tree_find(family, except, &marks, until);
    signal_marks(&marks, number);
    continue_stopped(&marks);
    if (!count.known)
        count = walk_any(family, except, number, NULL, until);
    marks_forget(&marks);
    return count;
}

/* A process may end during a walk; the next walk finds the children that it left. */
bool process_tree_is_gone(const struct pids *except)
{
    enum { WALKS_MOST = 10 };
    struct process_count left = {.ended = 1};
    for (int walks = 0; walks < WALKS_MOST && left.found == 0 && left.ended > 0; walks++)
        left = walk_any(NULL, except, 0, NULL, DEADLINE_NEVER);
    return left.known && left.found == 0;
}

void process_kill_child(pid_t pid)
{
    bool killed = kill(pid, SIGKILL) == 0;
    while (killed && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

struct climb {
    const struct pids *except;
    bool ours;
};

static bool reaches_us(void *data, pid_t pid, const struct proc_stat *stat)
{
    struct climb *climb = data;
    bool excepted = is_excepted(pid, climb->except);
    climb->ours = !excepted && stat->parent == getpid();
    return excepted || climb->ours;
}

bool process_tree_has(pid_t pid, const struct pids *except)
{
    struct climb climb = {.except = except};
    return proc_visit_ancestors(pid, reaches_us, &climb) && climb.ours;
}

/* --- another process's family -------------------------------------------- */

/* family->count if it is not there. */
static size_t family_find(const struct process_family *family, struct process_id id)
{
    size_t at = 0;
    while (at < family->count &&
           (family->members[at].id.pid != id.pid || family->members[at].id.start != id.start))
        at++;
    return at;
}

bool process_family_add(struct process_family *family, struct process_id id)
{
    if (family_find(family, id) < family->count)
        return true;
    struct process_member *member =
        array_add(&family->members, &family->count, &family->room, sizeof *member);
    if (member != NULL)
        member->id = id;
    return member != NULL;
}

bool process_family_init(struct process_family *family, struct process_id head)
{
    *family = (struct process_family){0};
    return process_family_add(family, head);
}

void process_family_forget(struct process_family *family)
{
    free(family->members);
    *family = (struct process_family){0};
}

/* Remembers a process that was met. False if this walk has seen it before. */
static bool family_meets(struct process_family *family, struct process_id id)
{
    size_t at = family_find(family, id);
    if (at == family->count && !process_family_add(family, id))
        return true; /* no memory: it is signalled now, and forgotten */
    bool first = !family->members[at].seen;
    family->members[at].seen = family->members[at].lives = true;
    return first;
}

/* The head is the first; members that a walk adds have been visited by it. A
 * walk that was broken off forgets no process. */
static struct process_count walk_family(struct walk walk)
{
    struct process_family *family = walk.family;
    struct deadline until = walk.until;
    size_t known = family->count, kept = 0;
    walk.count.known = proc_is_ours();
    if (!walk.count.known)
        return walk.count;
    walk.listed = proc_children_listed();
    for (size_t i = 0; i < family->count; i++)
        family->members[i].seen = family->members[i].lives = false;
    for (size_t i = 0; i < known && !deadline_passed(until); i++)
        if (!family->members[i].seen)
            visit(&walk, family->members[i].id.pid, NULL, family->members[i].id.start);
    bool whole = !deadline_passed(until);
    for (size_t i = 0; i < family->count; i++)
        if (!whole || family->members[i].lives)
            family->members[kept++] = family->members[i];
    family->count = kept;
    return walk.count;
}
