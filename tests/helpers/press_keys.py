"""An interactive shell on a terminal of its own, for the tests to press keys in.

Usage: press_keys.py FOLDER SHELL [ARGUMENT...]

Each time that keys are written into the fifo FOLDER/ask they are typed, and the line that is there
then comes out of the fifo FOLDER/answer; the next ones begin with an empty line. The shell's own
start-up file has to make FOLDER/ready once it reads keys, and to bind Ctrl-T to a function that
writes the line to FOLDER/line.new and renames that to FOLDER/line, and Ctrl-U to one that clears
it. What the terminal showed is in FOLDER/screen.
"""

import os
import pty
import select
import sys
import time

SECONDS = 30

folder, argv = sys.argv[1], sys.argv[2:]
ready, line, ask, answer, screen = (os.path.join(folder, name) for name in ("ready", "line", "ask", "answer", "screen"))
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(argv[0], argv)


def until_there(path):
    """Waits until it exists; returns what the shell shows meanwhile, so that the shell never blocks."""
    shown, end = b"", time.monotonic() + SECONDS
    while not os.path.exists(path):
        if time.monotonic() > end:
            sys.exit(f"not in time: {path}; the terminal shows {shown!r}")
        if select.select([terminal], [], [], 0.005)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                sys.exit(f"the shell has ended; the terminal shows {shown!r}")
    return shown


until_there(ready)
while True:
    with open(ask, "rb") as file:
        keys = file.read()
    os.write(terminal, keys + b"\x14")
    shown = until_there(line)
    with open(line, "rb") as file:
        result = file.read()
    os.unlink(line)
    os.write(terminal, b"\x15")
    with open(screen, "wb") as file:
        file.write(shown)
    with open(answer, "wb") as file:
        file.write(result)
