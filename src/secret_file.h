/* The file with the secret of hmac-sha256. */
#ifndef DLOCK_SECRET_FILE_H
#define DLOCK_SECRET_FILE_H

#include "why.h"

#include <stdbool.h>
#include <stddef.h>

enum { SECRET_LEAST = 16, SECRET_MOST = 4096 };

struct secret {
    size_t length;
    unsigned char bytes[SECRET_MOST + 2]; /* any; with room to see that there are more */
};

/* Reads it; one newline at its end is not part of it. To be wiped with
 * secret_wipe(), also after failure. False with *why set where it cannot be read,
 * others can read it as well, or it is too short or too long. */
bool secret_read(struct secret *secret, const char *path, struct why *why);
void secret_wipe(struct secret *secret);

#endif
