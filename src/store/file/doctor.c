#include "store/file/doctor.h"

#include "store/file/fs_type.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* store/file/dir.c has refused directories that others could tamper with. */
static void file_doctor_add_owner(struct diagnostics *findings, const struct stat *status)
{
    if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        diagnostics_add(
            findings, FINDING_NOTE, "shared",
            "a --lock-dir that no other user can write to; --lock-file=PATH or Redis for "
            "locks of several users",
            "the first user to create a file here can deny that lock to the others");
    else
        diagnostics_add(findings, FINDING_NOTE, "other users",
                        "--lock-file=PATH, a file that all of them can open, or Redis",
                        "they have another directory, and other locks of the same name");
}

static bool file_doctor_unusable(struct diagnostics *findings, const char *name, int error)
{
    diagnostics_fail(findings,
                     error == EACCES || error == EPERM ? STATUS_NOT_PERMITTED : STATUS_CANT_CREATE,
                     name, NULL, "%s", strerror(error));
    return false;
}

/* Only the doubtful ones need a row. */
static bool add_file_system(int fd, struct diagnostics *findings)
{
    struct fs_type type;
    if (!fs_type_of(fd, &type))
        return file_doctor_unusable(findings, "file system", errno);
    if (type.kind == FS_CONTAINER)
        diagnostics_add(findings, FINDING_NOTE, "file system",
                        "a volume that all mount, if they are to exclude each other",
                        "%s: a container's own; the host and other containers have other locks",
                        type.name);
    else if (type.kind != FS_LOCAL)
        diagnostics_add(
            findings, FINDING_WARN, "file system",
            "a directory on a local disk or tmpfs; Redis for several hosts",
            "%s: what flock(2) does there depends on the server and on how it is mounted",
            type.name);
    return true;
}

bool file_doctor_directory(int fd, const char *path, struct diagnostics *findings)
{
    struct stat status;
    diagnostics_section(findings, "files", path);
    if (fstat(fd, &status) != 0)
        return file_doctor_unusable(findings, "directory", errno);
    file_doctor_add_owner(findings, &status);
    return add_file_system(fd, findings);
}

void file_doctor_exact(const char *path, struct diagnostics *findings)
{
    diagnostics_section(findings, "files", path);
    struct stat status;
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    if (fd < 0 && errno == ENOENT)
        diagnostics_add(findings, FINDING_OK, "lock file", NULL,
                        "does not exist; created when first locked");
    else if (fd < 0)
        (void)file_doctor_unusable(findings, "lock file", errno);
    else if (add_file_system(fd, findings))
        diagnostics_add(findings, FINDING_OK, "lock file", NULL, "can be opened");
    fd_close(&fd);
}
