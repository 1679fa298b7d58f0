"""For programs that run dlock: orphans below them become their children, so that none is missed."""

import contextlib
import ctypes
import os
import threading

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """The children of this process's first thread, and the orphans of those. Not what other threads started."""
    main = threading.main_thread().native_id
    with open("/proc/self/task/%d/children" % main, encoding="ascii") as file:
        return [int(word) for word in file.read().split()]

def family(pid):
    """All visible descendants of a process."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as file:
                for child in file.read().split():
                    found += [int(child)] + family(int(child))
    return found


def command_of(pid):
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as file:
        return file.read().replace("\0", "_").replace(" ", "_")
    return ""
