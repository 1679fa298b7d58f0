"""For programs that run dlock: whatever is orphaned below them becomes theirs, so that none of it is missed."""

import ctypes
import threading

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """Of this process's first thread: what it started, and the orphans of those. Not what other threads started."""
    main = threading.main_thread().native_id
    with open("/proc/self/task/%d/children" % main, encoding="ascii") as file:
        return [int(word) for word in file.read().split()]
