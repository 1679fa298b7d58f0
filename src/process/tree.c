/* The order of the signals.
 *
 * A stop signal (SIGTERM, as a rule) goes to parents before their children. If the child of a shell
 * ended before the signal had reached the shell, the shell would start its next command, which
 * might outlive the lock. So the parent gets the signal first: a shell without a trap dies of it,
 * and a shell with a trap runs the trap. All processes are found, and pinned by pidfds, before the
 * first is signalled, because a process that ends leaves its children to another parent. Of two
 * siblings, the younger is signalled first: in a pipeline the younger one reads what the older one
 * writes, and would mistake the death of the older one for the end of the data.
 *
 * A kill first freezes the processes, parents before their children, so that none can fork any
 * more, and then ends them in the same order. Before a stop signal, dlock does not freeze the
 * processes: the kernel reports a frozen process to its parent, and a parent that is a shell would
 * take the terminal back from the process. */
#include "process/tree.h"

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
    DEPTH_MOST = 128,  /* deeper than any intended tree; limits the stack, because a walk is
                        * recursive */
    FREEZE_MOST = 200, /* the most searches before a kill, even if the tree is still growing */
    FIND_MOST = 4,     /* the most searches before another signal, even if the tree is still
                        * growing */
    LEFT_MOST = 10,    /* the most searches for remaining processes */
};

/* Before a signal other than SIGKILL, tree_signal() repeats its search for processes only within
 * this time. The last search may end later. */
static const struct duration find_limit = {10 * NS_PER_MS};

/* A member of another process's tree. */
struct tree_member {
    struct process_id id;
    bool met; /* true if the current walk has met the process */
};

/* A process that will be signalled. */
struct mark {
    struct process_id id;
    int pidfd; /* -1: no descriptor is left, or the kernel has no pidfds */
    bool stopped;
};

struct marks {
    struct mark *list;
    size_t count, room;
};

struct walk {
    struct tree *tree;
    pid_t self;
    int number;          /* signal to send to each process when it is found; 0: none */
    struct marks *marks; /* the processes found; NULL: they are not collected */
    struct deadline until;
    struct tree_count count;
};

/* A process whose children the walk visits. */
struct parent {
    pid_t pid;
    int pidfd; /* -1: the parent is this process, or there is no pidfd */
    int threads;
    int depth;
};

static bool is_own(const struct tree *tree)
{
    return tree->head.pid == 0;
}

/* --- one process --------------------------------------------------------- */

/* True if two more descriptors can be opened. A walk needs them for a list of threads and for a
 * file of one thread. */
static bool can_open_two(int fd)
{
    int first = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    bool both = second >= 0;

    fd_close(&first);
    fd_close(&second);
    return both;
}

/* Opens a pidfd. Returns -1 with errno set if that fails: Linux before 5.3 and some sandboxes have
 * no pidfds. Always leaves two descriptors free for the walk. */
static int pin(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0 || can_open_two(pidfd))
        return pidfd;
    close(pidfd);
    errno = EMFILE;
    return -1;
}

/* True if the process of the pidfd has ended. Then another process may already have its pid, even
 * though the pidfd is open. */
static bool has_ended(int pidfd)
{
    struct pollfd fd = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&fd, 1, 0) > 0;
}

bool process_signal(int pidfd, pid_t pid, int number)
{
    if (pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) == 0)
        return true;
    if (pidfd >= 0 && (errno == ESRCH || has_ended(pidfd))) {
        errno = ESRCH;
        return false;
    }
    return kill(pid, number) == 0;
}

/* Adds a process to the list of those that will be signalled; forget_marks() closes its pidfd.
 * False if memory is short. */
static bool mark(struct marks *marks, pid_t pid, int pidfd, const struct proc_stat *stat)
{
    struct mark *mark = array_add(&marks->list, &marks->count, &marks->room, sizeof *mark);

    if (mark != NULL)
        *mark = (struct mark){{pid, stat->start}, pidfd, stat->state == 'T'};
    return mark != NULL;
}

static void forget_marks(struct marks *marks)
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

/* --- the members of another process's tree ------------------------------- */

/* Returns the index of the member, or tree->count if the process is not a member. */
static size_t find_member(const struct tree *tree, struct process_id id)
{
    size_t at = 0;

    while (at < tree->count &&
           (tree->members[at].id.pid != id.pid || tree->members[at].id.start != id.start))
        at++;
    return at;
}

bool tree_add(struct tree *tree, struct process_id id)
{
    if (find_member(tree, id) < tree->count)
        return true;

    struct tree_member *member =
        array_add(&tree->members, &tree->count, &tree->room, sizeof *member);
    if (member != NULL)
        member->id = id;
    return member != NULL;
}

/* Remembers a process that a walk has met. False if the same walk has already met it. */
static bool meets(struct tree *tree, struct process_id id)
{
    size_t at = find_member(tree, id);

    if (at == tree->count && !tree_add(tree, id))
        return true; /* no memory: the process is signalled now, but not remembered */
    bool first = !tree->members[at].met;
    tree->members[at].met = true;
    return first;
}

/* --- walking ------------------------------------------------------------- */

static void walk_below(struct walk *walk, const struct parent *parent);

/* True if `child`, which was just read from /proc, is a child of `parent`. The parent is checked
 * after the child was read, because a parent that still lives also lived when the child was read.
 * If the parent has ended, its children have become children of this process. */
static bool is_child_of(const struct walk *walk, const struct parent *parent,
                        const struct proc_stat *child)
{
    return (child->parent == parent->pid && !has_ended(parent->pidfd)) ||
           (is_own(walk->tree) && child->parent == walk->self);
}

/* With hidepid=, /proc may hide a child that runs as another user, even if this process may signal
 * the child. The list of children contained `pid` before the pidfd was opened. If the list still
 * contains it, the pidfd belongs to the child, or to a process that has ended. */
static bool is_hidden_child(const struct parent *parent, pid_t pid, int pidfd)
{
    struct pids again = {0};

    if (pidfd < 0)
        return false;
    proc_children_list(parent->pid, parent->threads, &again);
    bool listed = pids_has(&again, pid);
    free(again.list);
    return listed && !has_ended(pidfd);
}

/* Counts a living process of the tree. Adds it to walk->marks and sends it the signal walk->number,
 * if these are set. Then visits its children. Returns true if the caller must close the pidfd. */
static bool take_with_children(struct walk *walk, pid_t pid, int pidfd,
                               const struct proc_stat *stat, int depth)
{
    struct parent self = {.pid = pid, .pidfd = pidfd, .threads = stat->threads, .depth = depth};

    if (pid == walk->tree->guard) {
        walk_below(walk, &self);
        return true;
    }
    bool marked = walk->marks != NULL && mark(walk->marks, pid, pidfd, stat);
    if (walk->count.found++ == 0)
        walk->count.first = pid;
    if (walk->number != 0)
        (void)process_signal(pidfd, pid, walk->number);
    walk_below(walk, &self);
    return !marked;
}

/* Visits the process `pid`: a child of `parent` or, if that is NULL, a member of walk->tree, whose
 * start time must be `start`. */
static void visit(struct walk *walk, pid_t pid, const struct parent *parent, int64_t start)
{
    struct proc_stat stat = {0};
    bool done = true;
    bool lives;

    if (parent != NULL && (pid == walk->self || pids_has(&walk->tree->except, pid)))
        return;
    if (deadline_passed(walk->until))
        return;

    int pidfd = pin(pid);
    if ((pidfd < 0 && errno == ESRCH) || !proc_stat_read(pid, &stat)) {
        stat = (struct proc_stat){0};
        lives = parent != NULL && is_hidden_child(parent, pid, pidfd);
    } else {
        lives = !proc_is_dead(pid, &stat) &&
                (parent != NULL ? is_child_of(walk, parent, &stat) : stat.start == start);
    }

    if (!lives)
        walk->count.ended++;
    else if (is_own(walk->tree) || meets(walk->tree, (struct process_id){pid, stat.start}))
        done = take_with_children(walk, pid, pidfd, &stat, parent != NULL ? parent->depth + 1 : 0);
    if (done)
        fd_close(&pidfd);
}

static void walk_below(struct walk *walk, const struct parent *parent)
{
    struct pids children = {0};

    if (parent->depth >= DEPTH_MOST)
        return; /* too deep: a later walk finds the children, once processes above them have
                 * ended */
    proc_children_list(parent->pid, parent->threads, &children);
    for (size_t i = children.count; i > 0; i--)
        visit(walk, children.list[i - 1], parent, 0);
    free(children.list);
}

/* Visits all members, the head first. A member that the walk itself adds has already been visited.
 * Members that the walk has not met are forgotten, unless the walk stopped early, at its
 * deadline. */
static void walk_members(struct walk *walk)
{
    struct tree *tree = walk->tree;
    size_t known = tree->count;
    size_t kept = 0;

    for (size_t i = 0; i < tree->count; i++)
        tree->members[i].met = false;
    for (size_t i = 0; i < known && !deadline_passed(walk->until); i++)
        if (!tree->members[i].met)
            visit(walk, tree->members[i].id.pid, NULL, tree->members[i].id.start);

    bool whole = !deadline_passed(walk->until);
    for (size_t i = 0; i < tree->count; i++)
        if (!whole || tree->members[i].met)
            tree->members[kept++] = tree->members[i];
    tree->count = kept;
}

static struct tree_count walk(struct tree *tree, int number, struct marks *marks,
                              struct deadline until)
{
    struct walk walk = {
        .tree = tree, .self = getpid(), .number = number, .marks = marks, .until = until};

    walk.count.known = proc_is_ours();
    if (walk.count.known && is_own(tree))
        walk_below(&walk, &(struct parent){.pid = walk.self, .pidfd = -1});
    else if (walk.count.known)
        walk_members(&walk);
    else if (is_own(tree) && walk.self == 1)
        walk.count.found = kill(-1, number) == 0;
    return walk.count;
}

/* --- the whole tree ------------------------------------------------------ */

/* Adds to tree->except the children that this process already has. There are nearly always none,
 * which waitid(2) finds out cheaply. */
static bool except_children(struct tree *tree)
{
    siginfo_t info;

    if ((waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) ||
        !proc_is_ours())
        return true;
    proc_children_list(getpid(), 0, &tree->except);
    errno = ENOMEM;
    return !tree->except.short_of_memory;
}

bool tree_follow(struct tree *tree, struct process_id head)
{
    tree->head = head;
    return tree_add(tree, head);
}

bool tree_open(struct tree *tree, struct process_id head)
{
    *tree = TREE_OWN;
    if (!(head.pid == 0 ? except_children(tree) : tree_follow(tree, head)))
        return false;
    for (size_t i = 0; i < sizeof tree->spare / sizeof *tree->spare; i++) {
        int first = tree->spare[0];
        tree->spare[i] = i == 0 ? eventfd(0, EFD_CLOEXEC) : fcntl(first, F_DUPFD_CLOEXEC, 0);
        if (tree->spare[i] < 0)
            return false;
    }
    return true;
}

void tree_free_spare(struct tree *tree)
{
    for (size_t i = 0; i < sizeof tree->spare / sizeof *tree->spare; i++)
        fd_close(&tree->spare[i]);
}

void tree_close(struct tree *tree)
{
    tree_free_spare(tree);
    free(tree->members);
    free(tree->except.list);
    *tree = TREE_OWN;
}

void tree_reaped(struct tree *tree, pid_t pid)
{
    struct pids *except = &tree->except;
    size_t at = 0;

    if (pid == tree->guard)
        tree->guard = 0;
    while (at < except->count && except->list[at] != pid)
        at++;
    if (at < except->count)
        except->list[at] = except->list[--except->count];
}

/* If a process ends during a walk, the walk may miss its children; the next walk finds them. */
struct tree_count tree_left(struct tree *tree)
{
    struct tree_count left = {.ended = 1};

    for (int walks = 0; walks < LEFT_MOST && left.found == 0 && left.ended > 0; walks++)
        left = walk(tree, 0, NULL, DEADLINE_NEVER);
    return left;
}

/* Repeats the walk until it finds no more processes than the walk before, because processes may be
 * forked meanwhile. */
struct tree_count tree_signal(struct tree *tree, int number, struct deadline until)
{
    bool kills = number == SIGKILL;
    int most = kills ? FREEZE_MOST : FIND_MOST;
    struct deadline last =
        deadline_earlier(kills ? DEADLINE_NEVER : deadline_after(find_limit), until);
    struct tree_count count = {0};
    struct marks marks = {0};

    tree_free_spare(tree);
    for (int walks = 0, before = -1; walks < most && count.found > before; walks++) {
        if (walks > 0 && deadline_passed(last))
            break;
        before = count.found;
        forget_marks(&marks);
        count = walk(tree, kills ? SIGSTOP : 0, &marks, until);
    }

    for (size_t i = 0; i < marks.count; i++)
        signal_mark(&marks.list[i], number);
    /* A stopped process acts on no signal but KILL until it is continued. */
    for (size_t i = 0; i < marks.count && !kills; i++)
        if (marks.list[i].stopped)
            signal_mark(&marks.list[i], SIGCONT);
    if (!count.known)
        count = walk(tree, number, NULL, until);
    forget_marks(&marks);
    return count;
}

bool tree_has(const struct tree *tree, pid_t pid)
{
    struct proc_ancestry at = {.next = pid};

    while (proc_next_ancestor(&at) && !pids_has(&tree->except, at.pid))
        if (at.stat.parent == getpid())
            return true;
    return false;
}
