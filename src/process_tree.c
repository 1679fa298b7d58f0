#include "process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Deeper than any tree that is no accident; it bounds our own stack. */
enum { DEPTH_MOST = 128 };

static int signal_below(pid_t pid, int number, int depth);

/* The children that one thread of `pid` forked. */
static int signal_children_of(pid_t pid, const char *thread, int number, int depth)
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
            /* Its children first: once it is gone they are somebody else's. */
            count += signal_below((pid_t)child, number, depth + 1);
            count += kill((pid_t)child, number) == 0;
        }
    }
    free(line);
    fclose(list);
    return count;
}

static int signal_below(pid_t pid, int number, int depth)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *threads = depth < DEPTH_MOST ? opendir(path) : NULL;
    if (threads == NULL)
        return 0;
    for (const struct dirent *thread; (thread = readdir(threads)) != NULL;)
        if (thread->d_name[0] != '.')
            count += signal_children_of(pid, thread->d_name, number, depth);
    closedir(threads);
    return count;
}

int process_tree_signal(pid_t root, int number)
{
    return signal_below(root, number, 0);
}
