#include "process/setuid_check.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/xattr.h>
#include <unistd.h>

/* AT_SECURE alone is not enough: SELinux also sets it if a service begins in a
 * domain of its own, which gives it no right that it should not have. With it,
 * a file whose capabilities cannot be determined (no /proc) may have some. */
static bool may_have_file_capabilities(void)
{
    return getauxval(AT_SECURE) != 0 &&
           (getxattr("/proc/self/exe", "security.capability", NULL, 0) > 0 ||
            (errno != ENODATA && errno != ENOTSUP));
}

bool setuid_check_borrowed(struct errmsg *why)
{
    uid_t user, effective_user, saved_user;
    gid_t group, effective_group, saved_group;
    if (getresuid(&user, &effective_user, &saved_user) != 0 ||
        getresgid(&group, &effective_group, &saved_group) != 0) {
        errmsg_set(why, "cannot find out its own rights: %s", strerror(errno));
        return true;
    }
    if (user == effective_user && user == saved_user && group == effective_group &&
        group == saved_group && !may_have_file_capabilities())
        return false;
    errmsg_set(why, "it has more rights than its caller (set-user-ID, set-group-ID or file "
                    "capabilities), and would pass them to any command; nothing was done. Use "
                    "chmod ug-s or setcap -r on its file; sudo(8) is for commands of another user");
    return true;
}
