#!/usr/bin/env python3
"""hold_exec.py lease|fanotify FILE: each exec of FILE hangs until FILE.go exists.

A lease on the file (fcntl(2), F_SETLEASE) holds exec in a sleep that any signal ends; a permission
event of fanotify(7), as of a virus scanner, in one that only fatal signals end. FILE.ready appears
when FILE can be executed, FILE.held when an exec hangs. Status 77: not permitted here.
"""
import ctypes
import fcntl
import os
import signal
import struct
import sys
import time

FAN_CLASS_CONTENT, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, FAN_ALLOW = 0x4, 0x1, 0x40000, 1
AT_FDCWD = -100


def appear(path):
    with open(path, "w", encoding="utf-8"):
        pass


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)


def hold_by_lease(path):
    broken = []
    signal.signal(signal.SIGIO, lambda *_: broken.append(True))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    appear(path + ".ready")
    while not broken:
        time.sleep(0.005)
    appear(path + ".held")
    wait_for(path + ".go")


def hold_by_fanotify(path):
    libc = ctypes.CDLL(None)
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    fan = libc.fanotify_init(FAN_CLASS_CONTENT, os.O_RDONLY)
    if fan < 0 or libc.fanotify_mark(fan, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, path.encode()) != 0:
        sys.exit(77)
    appear(path + ".ready")
    opened = struct.unpack_from("=IBBHQii", os.read(fan, 4096))[5]
    appear(path + ".held")
    wait_for(path + ".go")
    os.write(fan, struct.pack("=iI", opened, FAN_ALLOW))


{"lease": hold_by_lease, "fanotify": hold_by_fanotify}[sys.argv[1]](sys.argv[2])
