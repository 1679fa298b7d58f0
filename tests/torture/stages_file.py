"""Lock files in a private directory, on a small file system if one can be mounted."""

import contextlib
import ctypes
import glob
import os
import shutil
import subprocess
import time

from stage import Fault, Stage

# Enough for the locks of a campaign, and soon full.
SIZE = "2m"
PREFIX = "dlock:"
NOREPLACE, EXCHANGE, AT_FDCWD = 1, 2, -100


def rename(one, other, flags):
    """Whether the file was renamed. EXCHANGE swaps the two names in one step."""
    return ctypes.CDLL(None).renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), flags) == 0


def put_back(one, other):
    """Renames `one` to `other`. A file that has that name by now gets the name `one`, so that it is known what was replaced."""
    while os.path.exists(one) and not rename(one, other, EXCHANGE) and not rename(one, other, NOREPLACE):
        time.sleep(0.001)


def tokens_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return sorted({word for word in text.replace("=", " ").split() if word.startswith("run-")})


class FileStage(Stage):
    name = "file"
    namespaces = True
    removal_resumes = True
    # A removed directory takes the table of fences with it.
    forgets = ("directory removed", "directory moved")
    may_give = {"disk full": (70, 71, 73), "read-only": (70, 71, 73, 77), "directory removed": (70, 71, 73),
                "directory moved": (70, 71, 73),
                "directory without permissions": (73, 77), "garbage": (69, 70, 73), "truncated": (69, 70, 73)}

    def __init__(self, work, _rng):
        self.mounted = False
        self.top = os.path.join(work, "disk")
        os.makedirs(self.top)
        self.path = os.path.join(self.top, "locks")
        self.taken = os.path.join(self.top, "taken")
        self.moved = self.path + ".moved"
        if os.geteuid() == 0:
            self.mounted = self.mount("mount", "-t", "tmpfs", "-o", "size=%s,mode=0755" % SIZE, "dlock-torture", self.top)
        os.mkdir(self.path, 0o700)
        self.broken = []

    @staticmethod
    def mount(*command):
        return subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def arguments(self):
        return ["--backend=file", "--lock-dir=" + self.path]

    def file_of(self, lock):
        return os.path.join(self.path, "%s%s.lock" % (PREFIX, lock))

    def remove(self, lock):
        # Moved away first, so that the record that is read belongs to the removed file.
        try:
            os.rename(self.file_of(lock), self.taken)
        except FileNotFoundError:
            return None
        return self.tokens_taken()

    def overwrite(self, lock):
        """Puts another file in place of the lock's, as an editor or a restored backup would."""
        with open(self.taken, "w", encoding="ascii"):
            pass
        if not rename(self.taken, self.file_of(lock), EXCHANGE):
            os.unlink(self.taken)
            return None
        return self.tokens_taken()

    def move(self, lock, seconds):
        """Renames the file for a while. New runs meanwhile create another file, which the old one replaces."""
        path, away = self.file_of(lock), self.taken + ".moved"
        if not rename(path, away, NOREPLACE):
            return None
        tokens = tokens_of(away)
        time.sleep(seconds)
        put_back(away, path)
        if os.path.exists(away):
            tokens += tokens_of(away)
            os.unlink(away)
        return tokens

    def touch(self, lock):
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.file_of(lock))

    def tokens_taken(self):
        tokens = tokens_of(self.taken)
        os.unlink(self.taken)
        return tokens

    def is_held_by(self, lock, pid):
        """According to the kernel, which shows the locks of an open file, but not those that are waited for."""
        with contextlib.suppress(OSError):
            inode = ":%d " % os.stat(self.file_of(lock)).st_ino
            for path in glob.glob("/proc/%d/fdinfo/*" % pid):
                with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
                    if any(line.startswith("lock:") and " FLOCK " in line and inode in line for line in file):
                        return True
        return False

    # -- faults --

    def faults(self):
        faults = [Fault("directory removed", True, self.remove_directory, self.make_directory),
                  Fault("directory moved", True, self.move_directory, self.make_directory),
                  Fault("truncated", True, self.truncate, self.nothing),
                  Fault("garbage", True, self.scribble, self.nothing),
                  Fault("garbage at the end", True, self.append, self.nothing)]
        if self.mounted:
            faults += [Fault("disk full", False, self.fill, self.empty),
                       Fault("read-only", False, self.make_read_only, self.make_writable)]
        return faults

    def nothing(self):
        pass

    def remove_directory(self, _rng):
        self.move_directory(_rng)
        shutil.rmtree(self.moved, ignore_errors=True)

    def move_directory(self, _rng):
        rename(self.path, self.moved, NOREPLACE)

    def make_directory(self):
        put_back(self.moved, self.path)
        shutil.rmtree(self.moved, ignore_errors=True)
        os.makedirs(self.path, 0o700, exist_ok=True)

    def some_files(self, rng):
        with contextlib.suppress(FileNotFoundError):
            names = sorted(name for name in os.listdir(self.path) if name.endswith(".lock"))
            names = rng.sample(names, min(len(names), 4))
            self.touched = [name[len(PREFIX):-len(".lock")] for name in names]
            return [os.path.join(self.path, name) for name in names]
        return []

    def truncate(self, rng):
        for path in self.some_files(rng):
            with contextlib.suppress(FileNotFoundError):
                os.truncate(path, rng.choice((0, 1, 100)))

    def scribble(self, rng):
        self.write(rng, os.O_WRONLY)

    def append(self, rng):
        self.write(rng, os.O_WRONLY | os.O_APPEND)

    def write(self, rng, flags):
        for path in self.some_files(rng):
            with contextlib.suppress(FileNotFoundError):
                file = os.open(path, flags)
                os.write(file, rng.randbytes(rng.choice((1, 30, 5000))))
                os.close(file)

    def fill(self, _rng):
        with contextlib.suppress(OSError), open(os.path.join(self.top, "filler"), "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def empty(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.top, "filler"))

    def make_read_only(self, _rng):
        # This is refused while files are open for writing; a bind mount becomes read-only all the same.
        if not self.mount("mount", "-o", "remount,ro", self.top):
            self.mount("mount", "--bind", self.top, self.top)
            self.mount("mount", "-o", "remount,bind,ro", self.top)
            self.broken.append("bind")
            return "by a bind mount"
        return None

    def make_writable(self):
        if self.broken:
            self.broken.pop()
            self.mount("umount", "-l", self.top)
        self.mount("mount", "-o", "remount,rw", self.top)

    def heal(self):
        if self.mounted:
            self.make_writable()
            self.empty()
        self.make_directory()

    def locks(self):
        with contextlib.suppress(FileNotFoundError):
            return [name for name in os.listdir(self.path) if name.endswith(".lock")]
        return []

    def close(self):
        self.heal()
        if self.mounted:
            self.mount("umount", "-l", self.top)


def make(_name, work, rng):
    return FileStage(work, rng)
