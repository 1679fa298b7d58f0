#include "process/procfs.h"

#include "util/array.h"
#include "util/fileutils.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

bool pids_add(struct pids *pids, pid_t pid)
{
    pid_t *added = array_add(&pids->list, &pids->count, &pids->room, sizeof *added);

    if (added != NULL)
        *added = pid;
    else
        pids->short_of_memory = true; /* a later search of /proc finds the process */
    return added != NULL;
}

bool pids_has(const struct pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->count; i++)
        if (pids->list[i] == pid)
            return true;
    return false;
}

bool proc_list(const char *path, struct pids *all)
{
    DIR *list = opendir(path);

    if (list == NULL)
        return false;
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        long number = strtol(entry->d_name, NULL, 10);
        if (number > 0)
            (void)pids_add(all, (pid_t)number);
    }
    closedir(list);
    return true;
}

static bool list_threads(pid_t pid, struct pids *threads)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    return proc_list(path, threads);
}

/* Reads until the text ends with a newline or `size` is reached, because one read(2) may return
 * only part of the line, which would be misread. A process's name may contain a newline, so the
 * text may have several lines. False, with text "", if nothing can be read. */
static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t length = fd < 0 ? -1 : 1;

    while (length > 0 && used < size - 1 && (used == 0 || text[used - 1] != '\n')) {
        do
            length = read(fd, text + used, size - 1 - used);
        while (length < 0 && errno == EINTR);
        used += length > 0 ? (size_t)length : 0;
    }
    fd_close(&fd);
    text[length >= 0 ? used : 0] = '\0';
    return length >= 0 && used > 0;
}

/* The numbers of the fields, as in proc(5). The state is the first field after the command's name.
 * The name is in parentheses and may contain any character, even a newline, so the fields cannot be
 * read as a line. */
enum { FIELD_STATE = 3, FIELD_PARENT = 4, FIELD_FLAGS = 9, FIELD_THREADS = 20, FIELD_START = 22 };
enum { FORKED_NO_EXEC = 0x40 }; /* PF_FORKNOEXEC of Linux */

bool proc_stat_read(pid_t pid, struct proc_stat *stat)
{
    static const int64_t ns_per_s = 1000000000;
    char path[64] = "/proc/self/stat";
    char text[1024];
    int64_t number[FIELD_START + 1] = {0};

    if (pid != 0)
        snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!read_file(path, text, sizeof text))
        return false;

    const char *name = strchr(text, '(');
    const char *at = strrchr(text, ')');
    *stat = (struct proc_stat){0};
    if (name != NULL && at > name)
        snprintf(stat->name, sizeof stat->name, "%.*s", (int)(at - name - 1), name + 1);
    if (at != NULL && at[1] != '\0')
        stat->state = at[2];
    for (int field = FIELD_STATE; at != NULL && field <= FIELD_START; field++) {
        at = strchr(at + 1, ' ');
        if (at != NULL)
            number[field] = strtoll(at, NULL, 10);
    }
    stat->parent = (pid_t)number[FIELD_PARENT];
    stat->executed = (number[FIELD_FLAGS] & FORKED_NO_EXEC) == 0;
    stat->threads = (int)number[FIELD_THREADS];
    stat->start = number[FIELD_START] - proc_boot_offset() / (ns_per_s / sysconf(_SC_CLK_TCK));
    return at != NULL;
}

static bool is_zombie(const struct proc_stat *stat)
{
    return stat->state == 'X' || stat->state == 'Z';
}

/* A process has ended only if all its threads have. The first thread, once it has ended, stays a
 * zombie as long as other threads run. Other threads become zombies if a debugger does not reap
 * them. */
bool proc_is_dead(pid_t pid, const struct proc_stat *stat)
{
    struct pids threads = {0};
    struct proc_stat thread;

    if (!is_zombie(stat) || stat->threads <= 1)
        return is_zombie(stat);
    bool dead = list_threads(pid, &threads) && !threads.short_of_memory;
    for (size_t i = 0; dead && i < threads.count; i++)
        dead = !proc_stat_read(threads.list[i], &thread) || is_zombie(&thread);
    free(threads.list);
    return dead;
}

/* kill(2) comes last, so a process that ends during the other checks counts as ended. */
enum process_life proc_life(struct process_id id)
{
    struct proc_stat stat;
    if (proc_is_ours() && proc_stat_read(id.pid, &stat))
        return stat.start == id.start && !proc_is_dead(id.pid, &stat) ? PROCESS_LIVES
                                                                      : PROCESS_ENDED;
    return kill(id.pid, 0) != 0 && errno == ESRCH ? PROCESS_ENDED : PROCESS_HIDDEN;
}

bool proc_next_ancestor(struct proc_ancestry *at)
{
    enum { ANCESTORS_MOST = 1024 };

    if ((at->count == 0 && !proc_is_ours()) || at->count >= ANCESTORS_MOST || at->next <= 0 ||
        !proc_stat_read(at->next, &at->stat))
        return false;
    at->count++;
    at->pid = at->next;
    at->next = at->stat.parent;
    return true;
}

bool proc_list_ancestors(pid_t pid, struct pids *all)
{
    struct proc_ancestry at = {.next = pid};

    while (proc_next_ancestor(&at) && pids_add(all, at.pid))
        continue;
    return at.next == 0 && !all->short_of_memory;
}

bool proc_descends_from(pid_t pid, struct process_id id)
{
    struct proc_ancestry at = {.next = pid};

    while (proc_next_ancestor(&at))
        if (at.pid == id.pid && at.stat.start == id.start)
            return true;
    return false;
}

bool proc_environ_has(pid_t pid, const char *name, const char *lines)
{
    char path[64];
    char *entry = NULL;
    size_t size = 0;
    size_t name_length = strlen(name);
    size_t length = strlen(lines);
    bool has = false;

    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (!has && getdelim(&entry, &size, '\0', file) > 0) {
        const char *value = entry + name_length + 1;
        has = strncmp(entry, name, name_length) == 0 && entry[name_length] == '=' &&
              strncmp(value, lines, length) == 0 &&
              (value[length] == '\0' || value[length] == '\n');
    }
    free(entry);
    fclose(file);
    return has;
}

/* Reads the file up to the delimiter or the end of the file. The caller frees the text. NULL if
 * there is no such file, or if memory is short. */
static char *read_until(const char *path, int delimiter)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size = 0;

    if (file == NULL)
        return NULL;
    if (getdelim(&text, &size, delimiter, file) < 0 && text != NULL)
        text[0] = '\0';
    fclose(file);
    return text;
}

bool proc_fdinfo_number(int fd, const char *word, int base, uint64_t *number)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    char *text = read_until(path, '\0');
    const char *at = text != NULL ? strstr(text, word) : NULL;
    bool found = at != NULL;
    if (found)
        *number = strtoull(at + strlen(word), NULL, base);
    free(text);
    return found;
}

/* A container manager may mount its own file over the kernel's boot_id. Such a file is not on the
 * proc file system, and its id gets a '~' before it. */
void proc_boot_id(char *text, size_t size)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    struct statfs status;
    text[0] = '\0';
    if (statfs(path, &status) != 0)
        return;
    bool shadowed = status.f_type != PROC_SUPER_MAGIC;
    text[0] = '~';
    if (!read_file(path, text + shadowed, size - shadowed))
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* The number of the namespace that a link such as pid:[4026531836] names, or 0 if it is unknown.
 * stat(2) returns the same number, but takes three times as long. */
static int64_t namespace_number(const char *path)
{
    char target[64];
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    const char *number = strchr(target, '[');
    return number != NULL ? strtoll(number + 1, NULL, 10) : 0;
}

/* Source: time_namespaces(7). timens_offsets describes the time namespace of future children, so it
 * must not be used if this process itself is still in the system's first time namespace. */
static int64_t read_boot_offset(void)
{
    static const int64_t first_space = 0xEFFFFFFA; /* PROC_TIME_INIT_INO */
    char text[256], *end = NULL;
    int64_t space = namespace_number("/proc/self/ns/time");
    if (space == 0 || space == first_space ||
        !read_file("/proc/self/timens_offsets", text, sizeof text))
        return 0;
    const char *at = strstr(text, "boottime");
    if (at == NULL)
        return 0;
    int64_t seconds = strtoll(at + strlen("boottime"), &end, 10);
    int64_t ns = strtoll(end, NULL, 10);
    return seconds * 1000000000 + ns;
}

int64_t proc_boot_offset(void)
{
    static _Atomic int64_t known = INT64_MIN; /* the offset never changes while a process runs */
    int64_t offset = atomic_load(&known);
    if (offset == INT64_MIN) {
        offset = read_boot_offset();
        atomic_store(&known, offset);
    }
    return offset;
}

bool proc_is_ours(void)
{
    char target[32];
    ssize_t length = readlink("/proc/self", target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return strtol(target, NULL, 10) == (long)getpid();
}

int64_t proc_pid_space(void)
{
    return namespace_number("/proc/self/ns/pid");
}

/* The number is PID_NS_INIT_INO of <linux/nsfs.h>, which is the same in all kernels since 3.8. */
bool proc_pid_space_is_first(void)
{
    return proc_pid_space() == 0xEFFFFFFC;
}

/* --- children ------------------------------------------------------------ */

/* Adds the children that one thread of `pid` forked. False if /proc has no such list. */
static bool list_children_of(pid_t pid, pid_t thread, struct pids *children)
{
    char path[64];
    char *end;

    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)pid, (long)thread);
    char *line = read_until(path, '\n');
    bool listed = line != NULL;
    for (const char *at = line; at != NULL; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at || child <= 0)
            break;
        (void)pids_add(children, (pid_t)child);
    }
    free(line);
    return listed;
}

/* Adds all processes whose parent is `pid`. */
static void search_children(pid_t pid, struct pids *children)
{
    struct pids all = {0};
    struct proc_stat stat;

    (void)proc_list("/proc", &all);
    for (size_t i = 0; i < all.count; i++)
        if (proc_stat_read(all.list[i], &stat) && stat.parent == pid)
            (void)pids_add(children, all.list[i]);
    children->short_of_memory |= all.short_of_memory;
    free(all.list);
}

/* Some kernels list no children (no CONFIG_PROC_CHILDREN; gVisor). On the others, this process's
 * own list always exists. So if that list is missing, all processes are searched for children. */
void proc_children_list(pid_t pid, int threads, struct pids *children)
{
    struct pids all = {0};
    char own[64];
    bool listed = false;

    if (threads == 1)
        (void)pids_add(&all, pid);
    else
        (void)list_threads(pid, &all);
    for (size_t i = 0; i < all.count; i++)
        listed |= list_children_of(pid, all.list[i], children);
    children->short_of_memory |= all.short_of_memory;
    free(all.list);

    snprintf(own, sizeof own, "/proc/self/task/%ld/children", (long)getpid());
    if (!listed && access(own, F_OK) != 0)
        search_children(pid, children);
}
