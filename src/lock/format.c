#include "lock/format.h"

#include "config.h"

#include <inttypes.h>

enum lock_result format_newer(struct errmsg *why, int64_t format)
{
    return errmsg_fail(why, LOCK_INVALID,
                       "it is kept in format %" PRId64
                       " by a newer dlock, and dlock " PACKAGE_VERSION
                       " knows no format above %d: upgrade dlock on this host",
                       format, STORE_FORMAT);
}
