#include "lock/format.h"

#include "config.h"

#include <inttypes.h>

void format_newer(struct errmsg *why, int64_t format)
{
    errmsg_set(why,
               "it is kept in format %" PRId64 " by a newer dlock, and dlock " PACKAGE_VERSION
               " knows no format above %d: upgrade dlock on this host",
               format, STORE_FORMAT);
}
