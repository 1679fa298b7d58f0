#include "lock/result.h"

#include <errno.h>

enum lock_result file_error_result(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case ELOOP: /* a link, though O_NOFOLLOW was given */ return LOCK_REFUSED;
    case EMFILE:
    case ENFILE:
    case ENOMEM: return LOCK_SYSTEM;
    default: return LOCK_CANT_CREATE;
    }
}

enum lock_result secret_error_result(int error)
{
    return error == EACCES || error == EPERM ? LOCK_REFUSED : LOCK_INVALID;
}
