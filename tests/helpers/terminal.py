"""A terminal for the tests: a program on a pty of its own, and the screen that it leaves.

It knows what dlock sends (CR, LF, EL, ED, DECAWM) and stops at anything else.
With `reflow` a line that is too long after a resize is wrapped, as VTE and tmux
do; without, it is cut off, as xterm does.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unicodedata

WRAP_OFF = "\x1b[?7l"
SEQUENCE = re.compile(r"\x1b\[(\?7[lh]|K|J|\?2004[lh])")


def width_of(character):
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def columns_of(text):
    return sum(map(width_of, text))


class Terminal:
    def __init__(self, argv, columns=80, reflow=True, **environment):
        self.columns, self.reflow = columns, reflow
        self.rows, self.row, self.column = [[]], 0, 0  # cells: a character and what combines with it; "" after a wide one
        self.drawing = False
        self.draws = []  # (when, text) of each live line
        self.text = self.unread = ""  # all received text; an incomplete sequence at its end
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # strict
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # A shell or bats ignores them for background programs, and timeout(1) passes that on since coreutils 9.10.
            for number in signal.SIGINT, signal.SIGQUIT:
                signal.signal(number, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm-256color", **environment})

    # --- what the program sends

    def put(self, character):
        width = width_of(character)
        row = self.rows[self.row]
        if width == 0:
            if 0 < self.column <= len(row):
                row[self.column - 1] += character
            return
        assert not self.drawing or self.column + width < self.columns, f"too wide: {character!r} after {self.last()!r}"
        if self.column + width > self.columns:
            self.newline()
            self.column = 0
            row = self.rows[self.row]
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + width] = [character] + [""] * (width - 1)
        self.column += width

    def newline(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def sequence(self, name):
        if name in "KJ":
            del self.rows[self.row][self.column :]
        if name == "J":
            del self.rows[self.row + 1 :]

    def feed(self, text):
        self.text += text
        text, self.unread = self.unread + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = SEQUENCE.match(text, at)
                if match is None:
                    assert len(text) - at < 8, f"unknown to this terminal: {text[at:at + 20]!r}"
                    self.unread = text[at:]
                    return
                self.sequence(match[1])
                if match[0] == WRAP_OFF:
                    self.draws.append((time.monotonic(), ""))
                self.drawing = match[0] == WRAP_OFF
                at = match.end()
                continue
            if text[at] == "\r":
                self.column = 0
            elif text[at] == "\n":
                self.newline()
            elif text[at] != "\a":
                assert unicodedata.category(text[at]) != "Cc", f"{text[at]!r}"
                self.put(text[at])
                if self.drawing:
                    when, drawn = self.draws[-1]
                    self.draws[-1] = (when, drawn + text[at])
            at += 1

    def screen(self):
        lines = ["".join(row).rstrip() for row in self.rows]
        while lines and lines[-1] == "":
            lines.pop()
        return lines

    def pump(self, seconds):
        """Reads what arrives within so many seconds; False at the end of the output."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        if not data:
            return False
        self.feed(self.decoder.decode(data))
        return True

    # --- what a test does

    def until(self, condition, seconds=20):
        """Waits until the condition holds; otherwise the test has failed."""
        end = time.monotonic() + seconds
        while not condition(self):
            alive = self.pump(0.05)
            assert condition(self) or (alive and time.monotonic() < end), f"not in time; screen {self.screen()!r}, sent {self.text[-400:]!r}"

    def until_draws(self, count, seconds=20):
        self.until(lambda t: len(t.draws) >= count, seconds)

    def last(self):
        return self.draws[-1][1]

    def look(self, seconds):
        """Watches for this long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.pump(max(0, end - time.monotonic())):
            pass

    def type(self, keys):
        os.write(self.fd, keys)

    def resize(self, columns):
        rows, row, column = [], None, None
        for number, cells in enumerate(self.rows):
            pieces = [cells[at : at + columns] for at in range(0, max(len(cells), 1), columns)]
            if not self.reflow:
                del pieces[1:]
            if number == self.row:
                piece = min(self.column // columns, len(pieces) - 1)
                row, column = len(rows) + piece, min(self.column - piece * columns, columns - 1)
            rows += pieces
        self.rows, self.row, self.column, self.columns = rows, row, column, columns
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def end(self, seconds=20):
        """Reads to the end, and returns the exit status (-N: by signal N)."""
        end = time.monotonic() + seconds
        while self.pump(0.05) and time.monotonic() < end:
            pass
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            time.sleep(0.01)
        raise AssertionError(f"has not ended; screen {self.screen()!r}")
