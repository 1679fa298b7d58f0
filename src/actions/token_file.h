/* --owner-file: the owner token in a file, for the process that extends or
 * releases the lock later, such as the ExecStopPost= of a service. */
#ifndef DLOCK_ACTIONS_TOKEN_FILE_H
#define DLOCK_ACTIONS_TOKEN_FILE_H

#include "lock/result.h"
#include "lock/token.h"

/* A file that exists only once the lock is taken: until then it has another
 * name. */
struct token_file {
    const char *path;
    char temporary[4096];
};

/* Creates it beside `path`, readable by its owner alone. LOCK_OK: the caller
 * ends it with token_file_keep() or token_file_drop(); LOCK_REFUSED,
 * LOCK_CANT_CREATE, LOCK_SYSTEM with *why set. */
enum lock_result token_file_make(struct token_file *file, const char *path, const char *token,
                                 struct errmsg *why);

/* Gives it its name, replacing any file that had it before. As above; on
 * failure it is gone. */
enum lock_result token_file_keep(struct token_file *file, struct errmsg *why);

void token_file_drop(struct token_file *file);

/* Reads the token. LOCK_OK; LOCK_INVALID, LOCK_REFUSED with *why set. */
enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why);

#endif
