#include "store/file/doctor.h"

#include "util/user_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A lock needs a few hundred bytes, the table of an own directory a few hundred
 * thousand. */
enum { FREE_LEAST_KB = 1024, INODES_LEAST = 100 };

enum kind { LOCAL, MEMORY, CONTAINER, NETWORK };

/* By statfs(2) and linux/magic.h. */
static const struct {
    const char *name;
    uint32_t type;
    enum kind kind;
} systems[] = {
    {"ext4", 0xEF53, LOCAL},        {"xfs", 0x58465342, LOCAL},         {"btrfs", 0x9123683E, LOCAL},
    {"zfs", 0x2FC12FC1, LOCAL},     {"f2fs", 0xF2F52010, LOCAL},        {"tmpfs", 0x01021994, MEMORY},
    {"ramfs", 0x858458F6, MEMORY},  {"overlay", 0x794C7630, CONTAINER}, {"aufs", 0x61756673, CONTAINER},
    {"nfs", 0x6969, NETWORK},       {"cifs", 0xFF534D42, NETWORK},      {"smb2", 0xFE534D42, NETWORK},
    {"smb", 0x517B, NETWORK},       {"ceph", 0x00C36400, NETWORK},      {"fuse", 0x65735546, NETWORK},
    {"9p", 0x01021997, NETWORK},    {"afs", 0x5346414F, NETWORK},       {"gfs2", 0x01161970, NETWORK},
    {"ocfs2", 0x7461636F, NETWORK}, {"lustre", 0x0BD00BD0, NETWORK},    {"gpfs", 0x47504653, NETWORK},
};

static void add_type(struct findings *findings, const struct statfs *status)
{
    uint32_t type = (uint32_t)status->f_type;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        if (systems[i].type != type)
            continue;
        switch (systems[i].kind) {
        case LOCAL: findings_add(findings, FINDING_OK, "file system", NULL, "%s", systems[i].name); return;
        case MEMORY:
            findings_add(findings, FINDING_OK, "file system", NULL, "%s: in memory, and gone at the next boot, as locks are",
                         systems[i].name);
            return;
        case CONTAINER:
            findings_add(findings, FINDING_NOTE, "file system", "a volume that all mount, if they are to exclude each other",
                         "%s: a container's own; the host and other containers have other locks", systems[i].name);
            return;
        case NETWORK:
            findings_add(findings, FINDING_WARN, "file system",
                         "a directory on a local disk or tmpfs; Redis for several hosts",
                         "%s: what flock(2) does there depends on the server and on how it is mounted", systems[i].name);
            return;
        }
    }
    findings_add(findings, FINDING_NOTE, "file system", NULL, "of a kind (0x%" PRIX32 ") that is not known here", type);
}

static void add_space(struct findings *findings, const struct statvfs *space)
{
    uint64_t free_kb = (uint64_t)space->f_bavail * (space->f_frsize / 512) / 2;
    bool counts_inodes = space->f_files > 0; /* btrfs has as many as it likes */
    bool full = free_kb < FREE_LEAST_KB || (counts_inodes && space->f_favail < INODES_LEAST);
    char inodes[64] = "";
    if (counts_inodes)
        snprintf(inodes, sizeof inodes, ", %" PRIu64 " inodes", (uint64_t)space->f_favail);
    findings_add(findings, full ? FINDING_WARN : FINDING_OK, "free space", "a lock that cannot be written is not taken",
                 "%" PRIu64 " kB%s", free_kb, inodes);
}

/* store/file/dir.c has refused what others could spoil. */
static void add_owner(struct findings *findings, const struct stat *status)
{
    char name[USER_NAME_SIZE];
    bool shared = (status->st_mode & (S_IWGRP | S_IWOTH)) != 0;
    findings_add(findings, FINDING_OK, "owner", NULL, "%s, mode %04o", user_name(status->st_uid, name, sizeof name),
                 (unsigned)(status->st_mode & 07777));
    if (shared)
        findings_add(findings, FINDING_NOTE, "shared",
                     "a --lock-dir that nobody else can write to; --lock-file=PATH or Redis for locks of several users",
                     "who makes a file first here can refuse that lock to the others");
    else
        findings_add(findings, FINDING_NOTE, "other users", "--lock-file=PATH, a file that all of them can open, or Redis",
                     "they have another directory, and other locks of the same name");
}

static bool unusable(struct findings *findings, const char *name, int error)
{
    findings_fail(findings, error == EACCES || error == EPERM ? STATUS_NOT_PERMITTED : STATUS_CANT_CREATE, name, NULL, "%s",
                  strerror(error));
    return false;
}

static bool add_system(int fd, struct findings *findings)
{
    struct statfs type;
    struct statvfs space;
    if (fstatfs(fd, &type) != 0 || fstatvfs(fd, &space) != 0)
        return unusable(findings, "file system", errno);
    add_type(findings, &type);
    add_space(findings, &space);
    return true;
}

bool file_doctor_directory(int fd, const char *path, struct findings *findings)
{
    struct stat status;
    findings_section(findings, "files", path);
    if (fstat(fd, &status) != 0)
        return unusable(findings, "directory", errno);
    add_owner(findings, &status);
    return add_system(fd, findings);
}

bool file_doctor_exact(const char *path, struct findings *findings)
{
    struct stat status;
    char name[USER_NAME_SIZE];
    findings_section(findings, "files", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        findings_add(findings, FINDING_OK, "lock file", NULL, "not there; it is made when it is first locked");
        return false;
    }
    if (fd < 0 || fstat(fd, &status) != 0) {
        (void)unusable(findings, "lock file", errno);
    } else {
        findings_add(findings, FINDING_OK, "owner", NULL, "%s, mode %04o", user_name(status.st_uid, name, sizeof name),
                     (unsigned)(status.st_mode & 07777));
        (void)add_system(fd, findings);
    }
    if (fd >= 0)
        close(fd);
    return false;
}
