/* What /proc says about processes, which choose their own names: the first byte
 * tells whether the rest is such a name, or the whole file. The files are opened
 * by a function here (-Wl,--wrap). */
#include "fuzz.h"
#include "process/procfs.h"

#include <stdio.h>

static int file = -1;

static bool is_fed(const char *path)
{
    return strncmp(path, "/proc/4711/", 11) == 0;
}

/* Files are opened by these names, or with 64-bit offsets by those of glibc. */
#define REPLACE(open_name, fopen_name)                                                 \
    int __real_##open_name(const char *path, int flags, ...);                          \
    int __wrap_##open_name(const char *path, int flags, ...);                          \
    FILE *__real_##fopen_name(const char *path, const char *mode);                     \
    FILE *__wrap_##fopen_name(const char *path, const char *mode);                     \
    int __wrap_##open_name(const char *path, int flags, ...)                           \
    {                                                                                  \
        return is_fed(path) ? reopen() : __real_##open_name(path, flags);              \
    }                                                                                  \
    FILE *__wrap_##fopen_name(const char *path, const char *mode)                      \
    {                                                                                  \
        return is_fed(path) ? fdopen(reopen(), "r") : __real_##fopen_name(path, mode); \
    }

static int reopen(void)
{
    int fd = dup(file);
    fuzz_expect(fd >= 0 && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

REPLACE(open, fopen)
#ifdef __GLIBC__
REPLACE(open64, fopen64)
#endif

static void expect_name(const uint8_t *name, size_t size)
{
    char text[256];
    struct proc_stat stat;
    int length = snprintf(text, sizeof text, "4711 (");
    memcpy(text + length, name, size);
    size_t head = (size_t)length + size;
    length = snprintf(text + head, sizeof text - head,
                      ") S 17 4711 4711 0 -1 4194304 1 1 0 0 0 0 0 0 20 0 3 0 123456 1 1\n");
    file = fuzz_file(file, (const uint8_t *)text, head + (size_t)length);
    fuzz_expect(proc_stat_read(4711, &stat));
    fuzz_expect(stat.state == 'S' && stat.parent == 17 && stat.threads == 3 &&
                stat.start == 123456);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { NAME_MOST = 64 }; /* of the kernel's own threads; others have 15 */
    struct pids children = {0};
    struct proc_stat stat;
    if (size == 0)
        return 0;
    if ((data[0] & 1) != 0 && size <= NAME_MOST && memchr(data, '\0', size) == NULL)
        expect_name(data + 1, size - 1);
    file = fuzz_file(file, data + 1, size - 1);
    (void)proc_stat_read(4711, &stat);
    proc_children_list(4711, 1, &children);
    fuzz_expect(children.count <= size);
    free(children.list);
    return 0;
}
