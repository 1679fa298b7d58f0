/* Detects whether this process has rights that its caller does not have: set-user-ID,
 * set-group-ID, capabilities of the program's file. dlock runs any command,
 * reads configuration and writes files that its environment names: with such
 * rights it would hand them to every user of the host. */
#ifndef DLOCK_PROCESS_SETUID_CHECK_H
#define DLOCK_PROCESS_SETUID_CHECK_H

#include "util/errmsg.h"

#include <stdbool.h>

/* True with *why set if it has such rights, or if that cannot be found out. */
bool setuid_check_borrowed(struct errmsg *why);

#endif
