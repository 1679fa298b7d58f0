/* --doctor: the findings about a place for file locks. */
#ifndef DLOCK_STORE_FILE_DOCTOR_H
#define DLOCK_STORE_FILE_DOCTOR_H

#include "store/diagnostics.h"

#include <stdbool.h>

/* Adds the section "files" for the lock directory `path`, which is open as `fd`. True if
 * a lock can be tried there. */
bool file_doctor_directory(int fd, const char *path, struct diagnostics *findings);

/* The same for exactly this file of --lock-file. It is not tried, since that would be the
 * user's own lock. */
void file_doctor_exact(const char *path, struct diagnostics *findings);

#endif
