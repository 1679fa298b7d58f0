#include "util/user_name.h"

#include <pwd.h>
#include <stdio.h>

const char *user_name(uid_t uid, char *text, size_t size)
{
    const struct passwd *user = getpwuid(uid);
    if (user != NULL)
        snprintf(text, size, "%s", user->pw_name);
    else
        snprintf(text, size, "%lu", (unsigned long)uid);
    return text;
}
