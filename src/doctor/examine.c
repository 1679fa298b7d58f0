/* The checks of a store: a lock directory, a single lock file, one Redis, or a quorum. */
#include "doctor/doctor_int.h"

#include "store/file/backend.h"
#include "store/quorum/backend.h"
#include "store/redis/backend.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* --- files --------------------------------------------------------------- */

static bool unusable(struct findings *findings, int error)
{
    findings_fail(findings,
                  error == EACCES || error == EPERM ? STATUS_NOT_PERMITTED : STATUS_CANT_CREATE,
                  NULL, "%s", strerror(error));
    return false;
}

/* Adds no row if the file system is suitable for locks. */
static bool check_file_system(int fd, struct findings *findings)
{
    struct fs_type type;
    findings->check = "file system";
    if (!fs_type_of(fd, &type))
        return unusable(findings, errno);
    if (type.kind == FS_CONTAINER)
        findings_note(
            findings,
            "use a volume that all containers mount, if their locks must exclude each other",
            "%s belongs to this container; the host and other containers have locks of their own",
            type.name);
    else if (type.kind != FS_LOCAL)
        findings_warn(
            findings, "use a directory on a local disk or tmpfs, or Redis for several hosts",
            "%s: the effect of flock(2) there depends on the server and on the mount options",
            type.name);
    return true;
}

/* Examines a lock directory. store/file/dir.c has already refused directories that others could
 * tamper with. */
static bool examine_directory(const char *path, struct findings *findings)
{
    struct stat status;
    findings_section(findings, "files", path);
    findings->check = "directory";
    int fd = file_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, &status);
    if (fd < 0)
        return unusable(findings, errno);

    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        findings->check = "shared";
        findings_note(findings,
                      "use a --lock-dir that no other user can write to, or --lock-file=PATH or "
                      "Redis for locks of several users",
                      "the first user to create a file here can deny that lock to the others");
    } else {
        findings->check = "other users";
        findings_note(findings,
                      "for locks of several users, use --lock-file=PATH, a file that all of them "
                      "can open, or Redis",
                      "other users have directories of their own, so the same name is a different "
                      "lock for them");
    }

    bool usable = check_file_system(fd, findings);
    fd_close(&fd);
    return usable;
}

/* Examines the file of --lock-file. Returns false, so that no trial follows: a trial would take the
 * user's own lock. */
static bool examine_file(const char *path, struct findings *findings)
{
    struct stat status;
    findings_section(findings, "files", path);
    findings->check = "lock file";
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    if (fd < 0 && errno == ENOENT) {
        findings_good(findings, "does not exist yet; dlock creates the file at the first lock");
    } else if (fd < 0) {
        (void)unusable(findings, errno);
    } else if (check_file_system(fd, findings)) {
        findings->check = "lock file";
        findings_good(findings, "can be opened");
    }
    fd_close(&fd);
    return false;
}

/* --- quorum -------------------------------------------------------------- */

static bool has_failed(const struct findings *findings, size_t from)
{
    for (size_t i = from; i < findings->count; i++)
        if (findings->list[i].result == FINDING_FAIL)
            return true;
    return false;
}

/* Examines one server after the other, so that the rows keep their order. If only a minority of the
 * servers fail, their failures count as warnings. */
static bool examine_quorum(struct backend *quorum, const struct lock_request *request,
                           struct findings *findings, struct bound bound)
{
    static const char advice[] = "see the rows of the servers above";
    static const char found[] = "%d of %d servers can be trusted; %d are needed";
    size_t first = findings->count;
    struct backend *member;
    int count = 0, good = 0;
    for (; (member = quorum_backend_member(quorum, count)) != NULL; count++) {
        size_t from = findings->count;
        good += doctor_redis(member, request, findings, bound) && !has_failed(findings, from);
    }

    int need = count / 2 + 1;
    findings_section(findings, "quorum", NULL);
    findings->check = "majority";
    if (good < need) {
        findings_fail(findings, FINDING_UNTRUSTED, advice, found, good, count, need);
        return false;
    }
    for (size_t i = first; i < findings->count; i++)
        if (findings->list[i].result == FINDING_FAIL)
            findings->list[i].result = FINDING_WARN;
    findings_add(findings, good < count ? FINDING_WARN : FINDING_OK, advice, found, good, count,
                 need);
    return true;
}

/* --- all of them --------------------------------------------------------- */

/* Removes what the doctor's trial lock has left in the store. Lock files leave nothing behind. */
void doctor_forget(struct backend *store, const char *key, struct bound bound)
{
    struct backend *member = quorum_backend_member(store, 0);
    if (member == NULL && strcmp(store->kind, "redis") == 0)
        redis_backend_forget(store, key, bound);
    for (int i = 0; (member = quorum_backend_member(store, i)) != NULL; i++)
        redis_backend_forget(member, key, bound);
}

bool doctor_examine(struct backend *store, const struct lock_request *request,
                    struct findings *findings, struct bound bound)
{
    if (store->lock_dir != NULL)
        return examine_directory(store->lock_dir, findings);
    if (store->lock_file != NULL)
        return examine_file(store->lock_file, findings);
    if (quorum_backend_member(store, 0) != NULL)
        return examine_quorum(store, request, findings, bound);
    return doctor_redis(store, request, findings, bound);
}
