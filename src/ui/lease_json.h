/* A lease as --json shows it. */
#ifndef DLOCK_UI_LEASE_JSON_H
#define DLOCK_UI_LEASE_JSON_H

#include "lock/lease.h"

/* Prints the object of --acquire and --attach to stdout, in one line: key,
 * full_key, acquired, owner, scope (may be NULL), fence, acquired_at,
 * expires_at, mode, and slot where there is one. What is not known of the lease
 * (token "", fence 0, times 0) is null. */
void lease_json_print(const struct lease *lease, const char *scope);

#endif
