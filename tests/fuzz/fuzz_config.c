/* A configuration file, as a run reads its options from it. */
#include "config/options.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/fuzz_config.XXXXXX";
static int file = -1;

static void remove_folder(void)
{
    char path[sizeof folder + sizeof "/dlock/dlock.conf"];
    snprintf(path, sizeof path, "%s/dlock/dlock.conf", folder);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/dlock", folder);
    (void)rmdir(path);
    (void)rmdir(folder);
}

/* The user's configuration file is a link to one in memory. */
static void prepare(void)
{
    char path[sizeof folder + sizeof "/dlock/dlock.conf"], target[64];
    file = memfd_create("dlock.conf", MFD_CLOEXEC);
    if (file < 0 || mkdtemp(folder) == NULL || setenv("XDG_CONFIG_HOME", folder, 1) != 0)
        abort();
    (void)atexit(remove_folder);
    snprintf(path, sizeof path, "%s/dlock", folder);
    if (mkdir(path, 0700) != 0)
        abort();
    snprintf(path, sizeof path, "%s/dlock/dlock.conf", folder);
    snprintf(target, sizeof target, "/proc/self/fd/%d", file);
    if (symlink(target, path) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char program[] = "dlock", name[] = "cron:job", command[] = "true";
    char *argv[] = {program, name, command, NULL};
    struct options options;
    struct errmsg why = {""};
    if (file < 0)
        prepare();
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    if (options_read(&options, 3, argv, &why) != SETTINGS_OK && why.text[0] == '\0')
        abort();
    options_free(&options);
    return 0;
}
