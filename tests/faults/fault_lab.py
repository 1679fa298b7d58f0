"""The place where tests/faults/fault_walk.py runs scenarios: a directory, servers as they need them, and the command.

The command that dlock runs uses two named pipes: it reports that it has started, and waits until this program has
checked in the store itself that its lock is really held; then it ends. A command that dlock must stop is left waiting.
"""

import ctypes
import errno
import fcntl
import os
import sys
import select
import shutil
import signal
import struct
import subprocess
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from redis_client import RedisClient

PR_SET_CHILD_SUBREAPER = 36
PLACES = (1 << 60) + (1 << 32)  # src/store/file/file.c: the bytes that holders have locked
HANG_LIMIT, LEFT_LIMIT = 15.0, 8.0
COMMAND_STATUS = 7

COMMAND = """#!/bin/sh
echo "start $$ $DLOCK_HELD_OWNER $NOTIFY_SOCKET" >"$WALK/up"
read -r go <"$WALK/down"
echo "end $go" >"$WALK/up"
exit %d
""" % COMMAND_STATUS
SCRIPT = """#!/bin/sh
%(dlock)s || exit
""" + COMMAND.partition("\n")[2]
HOLDER = """#!/bin/sh
echo >"$WALK/held"
read -r go <"$WALK/held_until"
"""


class Failure:
    """The at-th call of a function fails in the way of kind and number; kind "limit" is a resource limit."""

    def __init__(self, function, at, kind, number):
        self.function, self.at, self.kind, self.number = function, at, kind, number

    def text(self):
        return "%s:%d:%s:%d" % (self.function, self.at, self.kind, self.number)

    @classmethod
    def parse(cls, text):
        function, at, kind, number = text.split(":")
        return cls(function, int(at), kind, int(number))

    @property
    def changes_nothing(self):
        return self.kind == "short" or (self.kind == "error" and self.number == errno.EINTR)


class Scenario:
    """A scenario, and what happens in it if nothing fails.

    words: dlock's arguments, with %(...)s of Lab.names(); redis: the number of servers; run: whether there is a command;
    status: dlock's exit status; go: seconds after which the command may end, None: never; most: the most calls of a
    function that are walked, if a run takes long.
    """

    def __init__(self, name, words, redis=0, run=True, status=COMMAND_STATUS, go=0.0, most=10000, **more):
        self.name, self.words, self.redis, self.run, self.status, self.go, self.most = name, words, redis, run, status, go, most
        self.fresh = more.pop("fresh", False)  # the lock directory does not exist yet
        self.holder = more.pop("holder", False)  # another process holds the lock for a moment
        self.before = more.pop("before", None)  # whether token0 holds the lock
        self.place = more.pop("place", "")  # the options that select the store
        self.before_words = more.pop("before_words", "")
        self.first = more.pop("first", "")  # dlock runs before with these arguments
        self.meanwhile = more.pop("meanwhile", None)  # called with lab and the command's words before the command may end
        self.judge = more.pop("judge", None)  # called with lab, failure and run: returns what is wrong
        self.stays = more.pop("stays", False)  # the lock may exist at the end
        self.file = more.pop("file", "locks/dlock:job.lock")
        self.script = more.pop("script", False)
        self.statuses = more.pop("statuses", ())  # statuses that are right as well if something failed
        self.as_nobody = more.pop("as_nobody", False)  # another user may run it, to whom limits on processes apply
        assert not more, more


class Run:
    """What has happened."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.status, self.stdout, self.stderr = None, "", ""
        self.events, self.hung, self.left, self.lock_left = [], False, [], ""
        self.held = None  # whether the lock was held when the command had started
        self.held_at_end = None


class Lab:
    def __init__(self, directory, dlock, library):
        self.directory, self.dlock, self.library = directory, dlock, library
        self.servers, self.clients = [], []
        self.up = self.down = self.held_until = None
        self.paused = False  # while the command ran
        self.anothers = False  # the lock directory is another user's

    def path(self, name):
        return os.path.join(self.directory, name)

    def names(self):
        return {"dir": self.directory, "command": self.path("command"), "dlock": self.dlock,
                **{"redis%d" % i: "unix://%s/redis%d.sock" % (self.directory, i) for i in range(3)}}

    def open(self, scenarios):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.umask(0o022)
        for pipe in ("up", "down", "held", "held_until"):
            os.mkfifo(self.path(pipe))
        self.up, self.down, self.held, self.held_until = (
            os.open(self.path(pipe), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for pipe in ("up", "down", "held", "held_until"))
        os.chmod(self.directory, 0o777)
        for pipe in ("up", "down"):
            os.chmod(self.path(pipe), 0o666)
        self.write("command", COMMAND, 0o755)
        self.write("holder", HOLDER, 0o755)
        self.write("secret", "0123456789abcdef0123456789abcdef\n", 0o600)
        os.mkdir(self.path("conf"))
        os.mkdir(self.path("conf/dlock"))
        text = "ttl = 50s\nlock-dir = %s/locks\nbackend = file\n[lock j*]\nttl = 60s\n" % self.directory
        self.write("conf/dlock/dlock.conf", text, 0o600)
        for number in range(max((s.redis for s in scenarios), default=0)):
            self.start_redis(number)

    def write(self, name, text, mode):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def start_redis(self, number):
        sock = self.path("redis%d.sock" % number)
        self.servers.append(subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", sock, "--unixsocketperm", "777", "--save", "", "--appendonly", "no",
             "--dir", self.directory],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.clients.append(RedisClient(sock, 10))

    def close(self):
        for server in self.servers:
            server.kill()
            server.wait()

    # ---- one run ----

    def environment(self, more):
        plain = {"PATH": os.environ["PATH"], "HOME": self.directory, "LC_ALL": "C.UTF-8", "WALK": self.directory, "SHELL": "/bin/sh",
                 "XDG_CONFIG_HOME": self.path("conf" if "conf" in more else "none")}
        plain.update((key, value) for key, value in os.environ.items() if key.endswith("SAN_OPTIONS"))
        plain.update((key, value) for key, value in more.items() if key != "conf")
        return plain

    def words(self, words):
        return [word % self.names() for word in words.split()]

    def plain(self, words):
        """A dlock without any failure."""
        return subprocess.run([self.dlock, *self.words(words)], env=self.environment({}), capture_output=True, text=True,
                              timeout=HANG_LIMIT, check=False)

    def reset(self, scenario):
        for pipe in (self.up, self.down, self.held, self.held_until):
            try:
                while os.read(pipe, 4096):
                    pass
            except BlockingIOError:
                pass
        for client in self.clients[: scenario.redis]:
            client.ask("FLUSHALL")
        if scenario.fresh or self.anothers:
            self.anothers = False
            shutil.rmtree(self.path("locks"), ignore_errors=True)
        for path in ("token", "report", "exact", scenario.file):
            try:
                os.unlink(self.path(path))
            except FileNotFoundError:
                pass
        if scenario.before:
            done = self.plain(scenario.place + " --acquire --owner=token0 %s job" % scenario.before_words)
            assert done.returncode == 0, done
        if scenario.first:
            done = self.plain(scenario.place + " " + scenario.first)
            assert done.returncode == 0, done

    def start_holder(self, scenario):
        words = scenario.words.replace("%(command)s", "%(dir)s/holder").replace("-n ", "")
        holder = subprocess.Popen([self.dlock, *self.words(words)],
                                  env=self.environment({}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert select.select([self.held], [], [], HANG_LIMIT)[0], "no holder"
        return holder

    def command_line(self, scenario, failure, more):
        words = [self.dlock, *self.words(scenario.words)]
        if scenario.script:
            preload = "".join("%s=%s " % pair for pair in more.items())
            self.write("script", SCRIPT % {"dlock": preload + " ".join(words)}, 0o755)
            words, more = [self.path("script")], {}
        if failure is not None and failure.kind == "limit":
            words = ["prlimit", "--%s=%d" % (failure.function.lower(), failure.at), "--", *words]
            if failure.function == "NPROC" and os.geteuid() == 0:
                self.anothers = True
                words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *words]
        return words, more

    def run(self, scenario, more, failure):
        self.reset(scenario)
        run = Run(scenario)
        words, more = self.command_line(scenario, failure, more)
        if "conf" in scenario.name:
            more = {**more, "conf": ""}
        holder = self.start_holder(scenario) if scenario.holder else None
        # Pipes, because a limit on files must not apply to the output.
        (out_end, out), (err_end, err) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        process = subprocess.Popen(words, env=self.environment(more), stdin=subprocess.DEVNULL, stdout=out, stderr=err, close_fds=False)
        os.close(out)
        os.close(err)
        self.follow(scenario, run, process, holder)
        if holder is not None:
            holder.wait(HANG_LIMIT)
        run.left = self.reap(process.pid if run.hung else None)
        run.stdout, run.stderr = drain(out_end), drain(err_end)
        self.look_for_lock(scenario, run)
        if scenario.judge is not None:
            run.judged = scenario.judge(self, failure, run)
        return run

    def follow(self, scenario, run, process, holder):
        """Waits until the process has ended."""
        ended = os.pidfd_open(process.pid)
        begin = time.monotonic()
        timers = []  # (when, what)
        if holder is not None and scenario.status != 75:
            timers.append((begin + 0.03, lambda: os.write(self.held_until, b"end\n")))
        try:
            while True:
                now = time.monotonic()
                for timer in [timer for timer in timers if timer[0] <= now]:
                    timers.remove(timer)
                    timer[1]()
                limit = min([begin + HANG_LIMIT] + [when for when, _ in timers])
                ready = select.select([self.up, ended], [], [], max(0, limit - now))[0]
                if self.up in ready:
                    self.heard(scenario, run, timers)
                elif ended in ready:
                    break
                elif now >= begin + HANG_LIMIT:
                    run.hung = True
                    run.events.append(stack_of(process.pid))
                    process.kill()
                    select.select([ended], [], [], HANG_LIMIT)
                    break
        finally:
            os.close(ended)
        run.status = process.wait()
        if holder is not None and scenario.status == 75:
            os.write(self.held_until, b"end\n")
        for _, action in timers:
            action()

    def heard(self, scenario, run, timers):
        for line in os.read(self.up, 4096).decode(errors="replace").splitlines():
            word, *rest = (line + "   ").split(" ")
            run.events.append(word)
            if word == "start":
                pid = rest.pop(0)
                # A command that its dlock has stopped meanwhile no longer runs.
                run.held = self.is_held(scenario, rest[0]) or not is_running(pid)
                if scenario.meanwhile is not None:
                    timers.append((time.monotonic() + 0.04, lambda rest=rest: scenario.meanwhile(self, rest)))
                if scenario.go is not None:
                    timers.append((time.monotonic() + scenario.go, lambda: self.let_go(scenario, run)))

    def let_go(self, scenario, run):
        """The command may end from now on."""
        run.held_at_end = self.is_held(scenario, "")
        os.write(self.down, b"go\n")

    # ---- the store itself ----

    def locks(self, scenario):
        """What each server holds, None for nothing."""
        keys = [(client, client.ask("KEYS", "dlock:*")) for client in self.clients[: scenario.redis]]
        return [client.ask("GET", found[0]) if found else None for client, found in keys]

    def is_held(self, scenario, token):
        if scenario.redis:
            right = [vote for vote in self.locks(scenario) if vote is not None and (not token or vote == token or vote.startswith("dlock:shared:"))]
            return len(right) > scenario.redis // 2
        try:
            fd = os.open(self.path(scenario.file), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            wanted = struct.pack("hhqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, PLACES, 0, 0)
            found = struct.unpack("hhqqixxxx", fcntl.fcntl(fd, 36, wanted))[0] != fcntl.F_UNLCK  # F_OFD_GETLK
            if found:
                return True
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def await_servers(self, scenario):
        """Waits until each server has read what ended processes have sent: a request that still lies in a socket may take the lock."""
        limit = time.monotonic() + LEFT_LIMIT
        for client in self.clients[: scenario.redis]:
            while "connected_clients:1\r" not in client.ask("INFO", "clients") and time.monotonic() < limit:
                time.sleep(0.001)

    def look_for_lock(self, scenario, run):
        """What is left of the lock, "" for nothing; and whether the lock can be acquired."""
        if scenario.redis:
            self.await_servers(scenario)
            left = sum(vote is not None for vote in self.locks(scenario))
            run.lock_left = "the lock" if left > scenario.redis // 2 else "a part of the lock" if left else ""
            return
        run.lock_left = "the lock file" if os.path.exists(self.path("locks/dlock:job.lock")) else ""
        if run.lock_left or scenario.file == "exact":
            if self.is_held(scenario, ""):
                run.lock_left = "the lock"

    def reap(self, hung):
        """Waits for processes that outlive dlock. Returns those that did not end by themselves."""
        limit, left = time.monotonic() + LEFT_LIMIT, []
        ours = {server.pid for server in self.servers}
        while True:
            children = [int(pid) for pid in read("/proc/self/task/%d/children" % os.getpid()).split() if int(pid) not in ours]
            if not children:
                return left
            children = [pid for pid in children if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            if hung or time.monotonic() > limit:
                for pid in children:
                    if not hung:
                        left.append(read("/proc/%d/cmdline" % pid).replace("\0", " "))
                    os.kill(pid, signal.SIGKILL)
                limit += LEFT_LIMIT
            time.sleep(0.002)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_running(pid):
    return read("/proc/%s/stat" % pid).rpartition(")")[2].strip()[:1] not in ("", "Z", "X")


def drain(fd):
    """Everything that was written to a pipe."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    except BlockingIOError:
        return ""
    finally:
        os.close(fd)


def stack_of(pid):
    """What a hanging process waits in."""
    return " ".join("%s:%s" % (task, read("/proc/%d/task/%s/wchan" % (pid, task))) for task in os.listdir("/proc/%d/task" % pid))
