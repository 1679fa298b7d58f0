#include "process_tree.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Deeper than any tree that is no accident; it bounds our own stack. */
enum { DEPTH_MOST = 128 };

struct walk {
    int number;
    const struct process_except *except;
    struct process_except *found; /* where not NULL: only take down the first level */
};

static int walk_below(pid_t pid, const struct walk *walk, int depth);

static bool is_excepted(pid_t pid, const struct process_except *except)
{
    for (int i = 0; except != NULL && i < except->count; i++)
        if (except->pids[i] == pid)
            return true;
    return false;
}

static int visit(pid_t pid, const struct walk *walk, int depth)
{
    if (walk->found != NULL) {
        if (walk->found->count < EXCEPT_MOST)
            walk->found->pids[walk->found->count++] = pid;
        return 0;
    }
    if (is_excepted(pid, walk->except))
        return 0;
    /* Its children first: once it is gone they are somebody else's. */
    int count = walk_below(pid, walk, depth + 1);
    return count + (kill(pid, walk->number) == 0);
}

/* The children that one thread of `pid` forked. */
static int walk_children_of(pid_t pid, const char *thread, const struct walk *walk, int depth)
{
    char path[64], *line = NULL, *end;
    size_t size = 0;
    int count = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%.16s/children", (long)pid, thread);
    FILE *list = fopen(path, "re");
    if (list == NULL)
        return 0;
    if (getline(&line, &size, list) > 0) {
        for (const char *at = line;; at = end) {
            long child = strtol(at, &end, 10);
            if (end == at || child <= 0)
                break;
            count += visit((pid_t)child, walk, depth);
        }
    }
    free(line);
    fclose(list);
    return count;
}

static int walk_below(pid_t pid, const struct walk *walk, int depth)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *threads = depth < DEPTH_MOST ? opendir(path) : NULL;
    if (threads == NULL)
        return 0;
    for (const struct dirent *thread; (thread = readdir(threads)) != NULL;)
        if (thread->d_name[0] != '.')
            count += walk_children_of(pid, thread->d_name, walk, depth);
    closedir(threads);
    return count;
}

void process_tree_inherited(struct process_except *except)
{
    except->count = 0;
    /* Nearly always there are none, and that is cheap to know. */
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
        return;
    walk_below(getpid(), &(struct walk){.found = except}, 0);
}

int process_tree_signal(pid_t root, int number, const struct process_except *except)
{
    return walk_below(root, &(struct walk){.number = number, .except = except}, 0);
}
