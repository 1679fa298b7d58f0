/* Whether this process has rights that whoever started it has not: set-user-ID,
 * set-group-ID, capabilities of the program's file. dlock runs any command that it is
 * told, reads configuration and writes files that its environment names: with such
 * rights it would hand them to every user of the host. */
#ifndef DLOCK_PROCESS_SETUID_CHECK_H
#define DLOCK_PROCESS_SETUID_CHECK_H

#include "util/errmsg.h"

#include <stdbool.h>

/* True with *why set where it has, or where that cannot be found out. */
bool setuid_check_borrowed(struct errmsg *why);

#endif
