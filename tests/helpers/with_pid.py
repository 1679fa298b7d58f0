#!/usr/bin/env python3
"""with_pid.py PID COMMAND...: runs it in a process that has just that pid (clone3(2), set_tid),
and exits as it did; 126 where the kernel or the machine's owner does not let us choose."""

import ctypes
import errno
import os
import signal
import sys
import time

CLONE3 = 435  # the same on all architectures
WORDS = 11  # of struct clone_args up to cgroup
EXIT_SIGNAL, SET_TID, SET_TID_SIZE = 4, 8, 9
PATIENCE = 10


def fork_as(pid):
    """Like fork(2); the child has this pid. If another process has it now, waits for its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = ctypes.c_int(pid)
    args = (ctypes.c_uint64 * WORDS)()
    args[EXIT_SIGNAL] = signal.SIGCHLD
    args[SET_TID] = ctypes.addressof(wanted)
    args[SET_TID_SIZE] = 1
    until = time.monotonic() + PATIENCE
    while True:
        child = libc.syscall(CLONE3, args, ctypes.sizeof(args))
        if child >= 0:
            return child
        if ctypes.get_errno() != errno.EEXIST or time.monotonic() > until:
            sys.stderr.write(f"pid {pid}: {os.strerror(ctypes.get_errno())}\n")
            sys.exit(126)
        time.sleep(0.01)


def main():
    child = fork_as(int(sys.argv[1]))
    if child == 0:
        os.execvp(sys.argv[2], sys.argv[2:])
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


main()
