#include "store/file/doctor.h"

#include "store/file/fs_type.h"
#include "util/text.h"
#include "util/user_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A lock needs a few hundred bytes, the table of an own directory a few hundred
 * thousand. */
enum { FREE_LEAST_KB = 1024, INODES_LEAST = 100 };

static void add_type(struct diagnostics *findings, const struct fs_type *type)
{
    switch (type->kind) {
    case FS_LOCAL:
        diagnostics_add(findings, FINDING_OK, "file system", NULL, "%s", type->name);
        break;
    case FS_MEMORY:
        diagnostics_add(findings, FINDING_OK, "file system", NULL,
                        "%s: in memory, and gone at the next boot, as locks are", type->name);
        break;
    case FS_CONTAINER:
        diagnostics_add(findings, FINDING_NOTE, "file system",
                        "a volume that all mount, if they are to exclude each other",
                        "%s: a container's own; the host and other containers have other locks",
                        type->name);
        break;
    case FS_NETWORK:
    case FS_WHOLE_FILE:
        diagnostics_add(
            findings, FINDING_WARN, "file system",
            "a directory on a local disk or tmpfs; Redis for several hosts",
            "%s: what flock(2) does there depends on the server and on how it is mounted",
            type->name);
        break;
    case FS_UNKNOWN:
        diagnostics_add(findings, FINDING_NOTE, "file system", NULL,
                        "of a kind (0x%" PRIX32 ") that is not known here", type->magic);
        break;
    }
}

static void add_space(struct diagnostics *findings, const struct statvfs *space)
{
    uint64_t free_kb = (uint64_t)space->f_bavail * (space->f_frsize / 512) / 2;
    bool counts_inodes = space->f_files > 0; /* btrfs has no fixed number of inodes */
    bool full = free_kb < FREE_LEAST_KB || (counts_inodes && space->f_favail < INODES_LEAST);
    char inodes[64] = "", size[SIZE_TEXT_SIZE];
    if (counts_inodes)
        snprintf(inodes, sizeof inodes, ", %" PRIu64 " inodes", (uint64_t)space->f_favail);
    diagnostics_add(findings, full ? FINDING_WARN : FINDING_OK, "free space",
                    "a lock that cannot be written is not taken", "%s%s",
                    size_rounded(free_kb * 1024, size), inodes);
}

/* store/file/dir.c has refused directories that others could tamper with. */
static void add_owner(struct diagnostics *findings, const struct stat *status)
{
    char name[USER_NAME_SIZE];
    bool shared = (status->st_mode & (S_IWGRP | S_IWOTH)) != 0;
    diagnostics_add(findings, FINDING_OK, "owner", NULL, "%s, mode %04o",
                    user_name(status->st_uid, name, sizeof name),
                    (unsigned)(status->st_mode & 07777));
    if (shared)
        diagnostics_add(findings, FINDING_NOTE, "shared",
                        "a --lock-dir that nobody else can write to; --lock-file=PATH or Redis for "
                        "locks of several users",
                        "who makes a file first here can refuse that lock to the others");
    else
        diagnostics_add(findings, FINDING_NOTE, "other users",
                        "--lock-file=PATH, a file that all of them can open, or Redis",
                        "they have another directory, and other locks of the same name");
}

static bool unusable(struct diagnostics *findings, const char *name, int error)
{
    diagnostics_fail(findings,
                     error == EACCES || error == EPERM ? STATUS_NOT_PERMITTED : STATUS_CANT_CREATE,
                     name, NULL, "%s", strerror(error));
    return false;
}

static bool add_system(int fd, struct diagnostics *findings)
{
    struct fs_type type;
    struct statvfs space;
    if (!fs_type_of(fd, &type) || fstatvfs(fd, &space) != 0)
        return unusable(findings, "file system", errno);
    add_type(findings, &type);
    add_space(findings, &space);
    return true;
}

bool file_doctor_directory(int fd, const char *path, struct diagnostics *findings)
{
    struct stat status;
    diagnostics_section(findings, "files", path);
    if (fstat(fd, &status) != 0)
        return unusable(findings, "directory", errno);
    add_owner(findings, &status);
    return add_system(fd, findings);
}

bool file_doctor_exact(const char *path, struct diagnostics *findings)
{
    struct stat status;
    char name[USER_NAME_SIZE];
    diagnostics_section(findings, "files", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        diagnostics_add(findings, FINDING_OK, "lock file", NULL,
                        "not there; it is made when it is first locked");
        return false;
    }
    if (fd < 0 || fstat(fd, &status) != 0) {
        (void)unusable(findings, "lock file", errno);
    } else {
        diagnostics_add(findings, FINDING_OK, "owner", NULL, "%s, mode %04o",
                        user_name(status.st_uid, name, sizeof name),
                        (unsigned)(status.st_mode & 07777));
        (void)add_system(fd, findings);
    }
    if (fd >= 0)
        close(fd);
    return false;
}
