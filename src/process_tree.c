#include "process_tree.h"

#include "proc.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DEPTH_MOST = 128,  /* deeper than any tree that is no accident; it bounds our own stack */
    FREEZE_MOST = 200, /* walks that stop a tree before it is killed all the same */
};

enum order { CHILDREN_FIRST, PARENTS_FIRST };

struct walk {
    int number;
    enum order order;
    bool listed; /* the kernel lists the children of each process */
    struct deadline until;
    pid_t root; /* whose descendants; 0: the family's */
    const struct process_except *except;
    struct process_family *family; /* NULL: they are our own */
    struct process_count count;
};

/* One of a family. */
struct process_member {
    struct process_id id;
    bool seen; /* by the walk that is under way */
    bool lives;
};

/* Whose children are looked at. */
struct parent {
    pid_t pid;
    int pidfd; /* -1: this process, or the kernel has none */
    int threads;
    int depth;
};

struct pids {
    pid_t *list;
    size_t count, room;
    bool short_of_memory;
};

static void pids_add(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->room) {
        size_t room = pids->room > 0 ? 2 * pids->room : 64;
        pid_t *list = realloc(pids->list, room * sizeof *list);
        if (list == NULL) {
            pids->short_of_memory = true; /* the next walk, with fewer of them left, finds it */
            return;
        }
        pids->list = list;
        pids->room = room;
    }
    pids->list[pids->count++] = pid;
}

/* --- whose children ------------------------------------------------------ */

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
            pids_add(children, (pid_t)child);
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
            pids_add(children, (pid_t)other);
    }
    if (all != NULL)
        closedir(all);
}

/* Our own are always there to be asked for, where any are. */
static bool children_are_listed(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    return access(path, F_OK) == 0;
}

static void list_children(pid_t pid, int threads, bool listed, struct pids *children)
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

/* --- walking ------------------------------------------------------------- */

static bool is_excepted(pid_t pid, const struct process_except *except)
{
    for (size_t i = 0; except != NULL && i < except->count; i++)
        if (except->pids[i] == pid)
            return true;
    return false;
}

/* Linux before 5.3, and some sandboxes, have no pidfds. */
static int pin(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void signal_pinned(int pidfd, pid_t pid, int number)
{
    if (number == 0)
        return;
    if (pidfd < 0 || (syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) != 0 && errno == ENOSYS))
        kill(pid, number);
}

/* A pid is free for others once its process has ended, though a pidfd is open. */
static bool has_ended(int pidfd)
{
    struct pollfd fd = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&fd, 1, 0) > 0;
}

/* Looked at after the child, so that it was the child's parent then. Who has
 * left its own children behind has left them to us. */
static bool is_child_of(const struct walk *walk, const struct parent *parent, const struct proc_stat *child)
{
    return (child->parent == parent->pid && !has_ended(parent->pidfd)) || (walk->root != 0 && child->parent == walk->root);
}

static bool is_dead(const struct proc_stat *stat)
{
    return stat->state == 'X' || (stat->state == 'Z' && stat->threads <= 1);
}

static void walk_below(struct walk *walk, const struct parent *parent);

/* The process is pinned, and is the one that is meant. */
static void signal_with_children(struct walk *walk, pid_t pid, int pidfd, const struct proc_stat *stat, int depth)
{
    struct parent self = {.pid = pid, .pidfd = pidfd, .threads = stat->threads, .depth = depth};
    walk->count.first = walk->count.found++ == 0 ? pid : walk->count.first;
    if (walk->order == PARENTS_FIRST)
        signal_pinned(pidfd, pid, walk->number);
    walk_below(walk, &self);
    if (walk->order == CHILDREN_FIRST)
        signal_pinned(pidfd, pid, walk->number);
    /* What is stopped sees no other signal than KILL until it goes on. */
    if (walk->order == CHILDREN_FIRST && walk->number != 0 && stat->state == 'T')
        signal_pinned(pidfd, pid, SIGCONT);
}

static bool family_meets(struct process_family *family, struct process_id id);

static void visit(struct walk *walk, pid_t pid, const struct parent *parent)
{
    struct proc_stat stat;
    if (pid == getpid() || is_excepted(pid, walk->except) || deadline_passed(walk->until))
        return;
    int pidfd = pin(pid);
    bool there = (pidfd >= 0 || errno != ESRCH) && proc_stat_read(pid, &stat) && is_child_of(walk, parent, &stat);
    if (!there || is_dead(&stat))
        walk->count.ended++;
    else if (walk->family == NULL || family_meets(walk->family, (struct process_id){pid, stat.start}))
        signal_with_children(walk, pid, pidfd, &stat, parent->depth + 1);
    if (pidfd >= 0)
        close(pidfd);
}

static void walk_below(struct walk *walk, const struct parent *parent)
{
    struct pids children = {0};
    if (parent->depth >= DEPTH_MOST)
        return; /* its turn comes when those above it have ended */
    list_children(parent->pid, parent->threads, walk->listed, &children);
    for (size_t i = 0; i < children.count; i++)
        visit(walk, children.list[i], parent);
    free(children.list);
}

/* --- our own descendants ------------------------------------------------- */

static struct process_count walk_tree(int number, enum order order, const struct process_except *except,
                                      struct deadline until)
{
    struct parent self = {.pid = getpid(), .pidfd = -1};
    struct walk walk = {.number = number, .order = order, .root = self.pid, .except = except, .until = until, .count.known = proc_is_ours()};
    walk.listed = walk.count.known && children_are_listed();
    if (walk.count.known)
        walk_below(&walk, &self);
    else if (getpid() == 1)
        walk.count.found = kill(-1, number) == 0;
    return walk.count;
}

bool process_tree_inherited(struct process_except *except)
{
    struct pids children = {0};
    siginfo_t info;
    *except = (struct process_except){0};
    /* Nearly always there are none, and that is cheap to know. */
    if ((waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) || !proc_is_ours())
        return true;
    list_children(getpid(), 0, children_are_listed(), &children);
    *except = (struct process_except){children.count, children.list};
    return !children.short_of_memory;
}

void process_tree_forget(struct process_except *except)
{
    free(except->pids);
    *except = (struct process_except){0};
}

struct process_count process_tree_signal(int number, const struct process_except *except, struct deadline until)
{
    return walk_tree(number, CHILDREN_FIRST, except, until);
}

/* A tree of our own, or a family. */
struct tree {
    const struct process_except *except;
    struct process_family *family; /* NULL: our own */
};

static struct process_count walk_any(const struct tree *tree, int number, enum order order);

/* See process_tree_kill(). */
static struct process_count freeze_and_kill(const struct tree *tree)
{
    struct process_count count = {0};
    int priority = getpriority(PRIO_PROCESS, 0); /* Linux: of this thread */
    (void)setpriority(PRIO_PROCESS, 0, -20);
    for (int walks = 0, before = -1; walks < FREEZE_MOST && count.found > before; walks++) {
        before = count.found;
        count = walk_any(tree, SIGSTOP, PARENTS_FIRST);
    }
    count = walk_any(tree, SIGKILL, CHILDREN_FIRST);
    (void)setpriority(PRIO_PROCESS, 0, priority);
    return count;
}

struct process_count process_tree_kill(const struct process_except *except)
{
    return freeze_and_kill(&(struct tree){.except = except});
}

bool process_tree_has(pid_t pid, const struct process_except *except)
{
    struct proc_stat stat;
    if (!proc_is_ours())
        return false;
    for (int depth = 0; pid > 1 && depth < 1024; depth++) {
        if (is_excepted(pid, except) || !proc_stat_read(pid, &stat))
            return false;
        if (stat.parent == getpid())
            return true;
        pid = stat.parent;
    }
    return false;
}

/* --- another process's family -------------------------------------------- */

static bool family_add(struct process_family *family, struct process_id id)
{
    if (family->count == family->room) {
        size_t room = family->room > 0 ? 2 * family->room : 16;
        struct process_member *members = realloc(family->members, room * sizeof *members);
        if (members == NULL)
            return false;
        family->members = members;
        family->room = room;
    }
    family->members[family->count++] = (struct process_member){.id = id};
    return true;
}

bool process_family_init(struct process_family *family, struct process_id head)
{
    *family = (struct process_family){0};
    return family_add(family, head);
}

void process_family_forget(struct process_family *family)
{
    free(family->members);
    *family = (struct process_family){0};
}

/* Remembers who was met. False where this walk has seen it before. */
static bool family_meets(struct process_family *family, struct process_id id)
{
    size_t at = 0;
    while (at < family->count && (family->members[at].id.pid != id.pid || family->members[at].id.start != id.start))
        at++;
    if (at == family->count && !family_add(family, id))
        return true; /* no memory: it is signalled now, and forgotten */
    bool first = !family->members[at].seen;
    family->members[at].seen = family->members[at].lives = true;
    return first;
}

static void visit_member(struct walk *walk, struct process_id id)
{
    struct proc_stat stat;
    int pidfd = pin(id.pid);
    bool there = (pidfd >= 0 || errno != ESRCH) && proc_stat_read(id.pid, &stat) && stat.start == id.start;
    if (!there || is_dead(&stat))
        walk->count.ended++;
    else if (family_meets(walk->family, id))
        signal_with_children(walk, id.pid, pidfd, &stat, 0);
    if (pidfd >= 0)
        close(pidfd);
}

/* The head is the first; those that a walk adds it has visited. A walk that was
 * broken off forgets nobody. */
static struct process_count walk_family(struct process_family *family, int number, enum order order, struct deadline until)
{
    struct walk walk = {.number = number, .order = order, .family = family, .until = until, .count.known = proc_is_ours()};
    size_t known = family->count, kept = 0;
    if (!walk.count.known)
        return walk.count;
    walk.listed = children_are_listed();
    for (size_t i = 0; i < family->count; i++)
        family->members[i].seen = family->members[i].lives = false;
    for (size_t i = 0; i < known && !deadline_passed(until); i++)
        if (!family->members[i].seen)
            visit_member(&walk, family->members[i].id);
    bool whole = !deadline_passed(until);
    for (size_t i = 0; i < family->count; i++)
        if (!whole || family->members[i].lives)
            family->members[kept++] = family->members[i];
    family->count = kept;
    return walk.count;
}

struct process_count process_family_signal(struct process_family *family, int number, struct deadline until)
{
    return walk_family(family, number, CHILDREN_FIRST, until);
}

struct process_count process_family_kill(struct process_family *family)
{
    return freeze_and_kill(&(struct tree){.family = family});
}

static struct process_count walk_any(const struct tree *tree, int number, enum order order)
{
    return tree->family != NULL ? walk_family(tree->family, number, order, DEADLINE_NEVER)
                                : walk_tree(number, order, tree->except, DEADLINE_NEVER);
}
