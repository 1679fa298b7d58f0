"""The redis-servers of a campaign: started, killed, frozen and queried.

Each ends with the process that started it. (The kernel means the thread, so one starts them all, and stays.) It is asked
on a Unix socket, whatever becomes of its network.
"""

import concurrent.futures
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from redis_client import RedisClient, ask_once  # noqa: E402, F401 (stages_redis has the client from here)
from stage import Stage  # noqa: E402

SERVE_LIMIT = 20.0
ASK_LIMIT = 3.0
ALWAYS_KEPT = ("--appendonly", "yes", "--appendfsync", "always")

DELETE_SCRIPT = "local v = redis.pcall('GET', KEYS[1]) redis.call('DEL', KEYS[1]) return v"
# Another client's lock, for a while.
OVERWRITE_SCRIPT = "local v = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], 'foreign', 'PX', ARGV[1]); return v"
# Renames the lock's key, or renames it back over the key that has its name by then. Returns both owners.
MOVE_SCRIPT = """if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local v = redis.pcall('GET', KEYS[2]) redis.call('RENAME', KEYS[1], KEYS[2])
return redis.pcall('GET', KEYS[2]) .. ' ' .. (v or '')"""
# Changes nothing, but notifies whoever watches the key.
TOUCH_SCRIPT = "return redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]), 'LT')"

# Commands that dlock can do without, and commands that it needs.
EXTRAS = ("multi", "exec", "subscribe", "unsubscribe", "publish", "client")
NEEDED = ("evalsha", "get", "set", "del", "time", "pttl")
# Nothing listens here: a replica of this master keeps its data, and refuses writes.
NO_SERVER = ("127.0.0.1", 1)
ALLOW_ALL = ("ACL", "SETUSER", "default", "+@all")


def refusal(rng, commands):
    """As if users' permissions are edited: each change applies to existing connections, too."""
    return ("ACL", "SETUSER", "default", *("-" + one for one in rng.sample(commands, rng.choice((1, 1, 2)))))


def free_ports(count, most=32000):
    """Ports below those that the kernel gives to connections, so that none is taken when its server needs it."""
    taken = []
    while len(taken) < count:
        stream = socket.socket()
        try:
            stream.bind(("127.0.0.1", random.SystemRandom().randrange(15000, most)))
            taken.append(stream)
        except OSError:
            stream.close()
    ports = [stream.getsockname()[1] for stream in taken]
    for stream in taken:
        stream.close()
    return ports


STARTER = concurrent.futures.ThreadPoolExecutor(1)


def spawn(words, **options):
    """Starts a process that ends with this one; options as for Popen."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return STARTER.submit(subprocess.Popen, ["setpriv", "--pdeathsig", "KILL", "--"] + words, start_new_session=True,
                          **dict(streams, **options)).result()


def wait_until(condition, seconds=SERVE_LIMIT, what="it"):
    """Waits until condition() is true; an exception counts as false."""
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (OSError, RuntimeError, ValueError):
            pass
        if time.monotonic() > end:
            raise RuntimeError("not within %g s: %s" % (seconds, what))
        time.sleep(0.02)


# A server sleeps this long while its clock is set.
ASLEEP = 0.4


def env_of_clock(directory):
    """For a server whose clock can be set."""
    return dict(os.environ, T=directory, LD_PRELOAD=os.environ["TORTURE_WALL_CLOCK"])


def write_clock(directory, ahead):
    path = os.path.join(directory, "wall_clock")
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write("%d\n" % ahead)
    os.rename(path + ".new", path)


def set_clock(socket_path, directory, ahead):
    """The clock is this far ahead from now on. If it were set back to its old value, the server would forget later locks.

    It is set while the server sleeps. In the middle of a script, a key that is just set would have ended by the time
    at which the script began: a moment that is short in life, but not where each look at the clock reads a file.
    Returns whether it may have been in the middle all the same."""
    client = RedisClient(socket_path, ASK_LIMIT)
    try:
        client.stream.settimeout(ASK_LIMIT + ASLEEP)
        client.send("DEBUG", "SLEEP", ASLEEP)
        time.sleep(ASLEEP / 2)
        write_clock(directory, ahead)
        written = time.monotonic()
        client.reply()
        return time.monotonic() - written > ASLEEP  # it may not have slept yet
    finally:
        client.close()


class KeyStage(Stage):
    """A stage on which a lock is a key of one server. ask_about(lock) returns the function that asks that server."""

    def ask_about(self, lock):
        raise NotImplementedError

    def remove(self, lock):
        return self.ask_about(lock)("EVAL", DELETE_SCRIPT, 1, "dlock:" + lock)

    def overwrite(self, lock):
        return self.ask_about(lock)("EVAL", OVERWRITE_SCRIPT, 1, "dlock:" + lock, 300)

    def move(self, lock, seconds):
        names = ["dlock:" + lock, "{dlock:%s}:moved" % lock]
        tokens = self.ask_about(lock)("EVAL", MOVE_SCRIPT, 2, *names)
        if tokens is None:
            return None
        time.sleep(seconds)
        tokens += " " + (self.ask_about(lock)("EVAL", MOVE_SCRIPT, 2, *reversed(names)) or "")
        return sorted(set(tokens.split()))

    def touch(self, lock):
        self.ask_about(lock)("EVAL", TOUCH_SCRIPT, 1, "dlock:" + lock)


class Server:
    # Its clock is this many seconds ahead; None: it is the host's clock.
    ahead = None

    def __init__(self, work_dir, name, arguments=(), port=0, within=()):
        """`within`: the words before the command that run it on another host (network.py)."""
        for program in ("redis-server", "setpriv"):
            if shutil.which(program) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        self.name, self.port, self.within = name, port, list(within)
        self.directory = os.path.join(work_dir, name)
        self.arguments = list(arguments)
        self.configuration = None
        self.process = None
        self.frozen = False
        os.makedirs(self.directory, exist_ok=True)

    @property
    def socket_path(self):
        return os.path.join(self.directory, "sock")

    def configure(self, name, lines):
        """From then on it takes its settings from this file, which it may write, and its other arguments."""
        self.configuration = os.path.join(self.directory, name)
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write("\n".join(["port %d" % self.port, "unixsocket %s" % self.socket_path, "dir %s" % self.directory,
                                  "logfile %s" % os.path.join(self.directory, "log")] + lines) + "\n")

    def command(self):
        if self.configuration is not None:
            return ["redis-server", self.configuration] + self.arguments
        return ["redis-server", "--port", str(self.port), "--unixsocket", self.socket_path, "--daemonize", "no",
                "--dir", self.directory, "--logfile", os.path.join(self.directory, "log"), "--save", ""] + self.arguments

    def start(self):
        if self.is_up():
            return
        if self.ahead is None:
            self.process = spawn(self.within + self.command())
        else:
            write_clock(self.directory, self.ahead)
            self.process = spawn(self.within + self.command() + ["--enable-debug-command", "yes"],
                                 env=env_of_clock(self.directory))
        self.frozen = False

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def wait_ready(self):
        wait_until(lambda: self.ask("PING") == "PONG", what="%s answers" % self.name)

    def signal(self, number):
        if self.is_up():
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self.frozen = False

    def freeze(self):
        self.signal(signal.SIGSTOP)
        self.frozen = self.is_up()

    def step(self, seconds):
        """Sets its clock."""
        self.ahead += seconds
        set_clock(self.socket_path, self.directory, self.ahead)

    def thaw(self):
        self.signal(signal.SIGCONT)
        self.frozen = False

    def forget(self):
        """What it has on disk."""
        for entry in os.listdir(self.directory):
            path = os.path.join(self.directory, entry)
            if entry.startswith("appendonly"):
                shutil.rmtree(path)
            elif entry.endswith((".rdb", ".aof")):
                os.unlink(path)

    def ask(self, *words):
        """One command, on its own connection; raises if there is no reply in time."""
        return ask_once(self.socket_path, *words, connect=0, answer=ASK_LIMIT)

    def info(self, section):
        lines = (line.partition(":") for line in self.ask("INFO", section).split("\r\n"))
        return {name: value for name, colon, value in lines if colon}

    def locks(self, prefix="dlock:"):
        """The locks there; other keys of dlock start with a brace."""
        return [key[len(prefix):] for key in self.ask("KEYS", prefix + "*")]

    def refuse(self, rng, commands):
        self.ask(*refusal(rng, commands))

    def allow_all(self):
        self.ask(*ALLOW_ALL)

    def kill_clients(self):
        return self.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
