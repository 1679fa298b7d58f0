#!/usr/bin/env python3
"""Starts dlock and interrupts it while it waits, as Ctrl-C does: it must die of that within 20 s.

    ctrl_c.py asleep|threads ARGUMENT...

`asleep`: when it has signals blocked or sleeps in poll; `threads`: when it has a second thread.
"""

import os
import signal
import subprocess
import sys
import time


def asleep(pid):
    with open(f"/proc/{pid}/wchan") as wchan, open(f"/proc/{pid}/status") as status:
        blocked = int(status.read().split("SigBlk:")[1].split()[0], 16)
        return "poll" in wchan.read() or blocked & 1 << signal.SIGINT - 1


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task")) > 1


# bats ignores it in what it starts in the background.
signal.signal(signal.SIGINT, signal.SIG_DFL)
is_there = {"asleep": asleep, "threads": threads}[sys.argv[1]]
dlock = subprocess.Popen(["dlock"] + sys.argv[2:])
while dlock.poll() is None and not is_there(dlock.pid):
    time.sleep(0.01)
dlock.send_signal(signal.SIGINT)
try:
    assert dlock.wait(20) == -signal.SIGINT, dlock.returncode
finally:
    dlock.kill()
