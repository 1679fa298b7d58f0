#include "actions/token_file.h"

#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum lock_result cannot(const char *path, int error, struct errmsg *why)
{
    errmsg_set(why, "cannot write the owner file %s: %s", path, strerror(error));
    return file_error_result(error);
}

enum lock_result token_file_make(struct token_file *file, const char *path, const char *token,
                                 struct errmsg *why)
{
    char line[TOKEN_SIZE + 1];
    struct stat status;
    *file = (struct token_file){.path = path};
    /* A device, a pipe, or a link to one, would be gone once the file takes its place. */
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        errmsg_set(why, "cannot write the owner file %s: it is not a regular file", path);
        return LOCK_CANT_CREATE;
    }
    if ((size_t)snprintf(file->temporary, sizeof file->temporary, "%s.XXXXXX", path) >=
        sizeof file->temporary)
        return cannot(path, ENAMETOOLONG, why);
    int fd = mkostemp(file->temporary, O_CLOEXEC);
    if (fd < 0)
        return cannot(path, errno, why);
    (void)fchmod(fd, 0600); /* whatever the umask */
    int length = snprintf(line, sizeof line, "%s\n", token);
    ssize_t written = write(fd, line, (size_t)length);
    int error = written == length ? 0 : written < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        return LOCK_OK;
    token_file_drop(file);
    return cannot(path, error, why);
}

enum lock_result token_file_keep(struct token_file *file, struct errmsg *why)
{
    if (rename(file->temporary, file->path) == 0)
        return LOCK_OK;
    int error = errno;
    token_file_drop(file);
    return cannot(file->path, error, why);
}

void token_file_drop(struct token_file *file)
{
    (void)!unlink(file->temporary);
}

enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why)
{
    char line[TOKEN_SIZE + 2];
    struct stat status;
    struct errmsg reason = {""};
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    ssize_t length = fd < 0 || !S_ISREG(status.st_mode) ? -1 : read(fd, line, sizeof line - 1);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (fd < 0 || length < 0) {
        errmsg_set(why, "cannot read the owner file %s: %s", path,
                   fd < 0 ? strerror(error) : "it is not a regular file");
        return fd < 0 && error == EACCES ? LOCK_REFUSED : LOCK_INVALID;
    }
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (!token_valid(line, &reason)) {
        errmsg_set(why, "the owner file %s has no token in its first line: %s", path, reason.text);
        return LOCK_INVALID;
    }
    snprintf(token, TOKEN_SIZE, "%.*s", TOKEN_SIZE - 1, line);
    return LOCK_OK;
}
