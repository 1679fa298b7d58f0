"""Crowds of waiters for tests/bench/bench_waiting.py: the peers, the processes, and one lock that all of them request.

Nobody is taken to be waiting because some time has gone by. Each peer has a way of telling how many wait, and
a crowd is released only when that says that all do.
"""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import namedtuple

from bench_common import BenchError, base_environment, http_ask, proc_text

RECORD = struct.Struct("=qqq")
HOLD_LIMIT = 20.0
WAITING_LIMIT = 30.0
END_LIMIT = 20.0
LOOK_EVERY = 0.002
CHECK_EVERY = 0.02
BURST = 50
QUIET = 0.1
SETTLED = 0.03

CRON_LOOP = r"""
sock=$1 key=$2 arrivals=$3; shift 3
token=$(cat /proc/sys/kernel/random/uuid)
until [ "$(redis-cli -s "$sock" SET "$key" "$token" NX PX 3600000)" = OK ]; do
    [ -n "$told" ] || printf . >>"$arrivals"
    told=1
    sleep 1
done
"$@"
status=$?
redis-cli -s "$sock" EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1]) end return 0' 1 "$key" "$token"
exit $status
"""

# label; leading arguments as a function of the scene; environment; whether budgets are for it; how many wait
Peer = namedtuple("Peer", "label argv env ours waiting")


# ---- how many wait ----

def by_status(look, env):
    """dlock reports this itself."""
    def waiting(scene):
        said = subprocess.run(look + ["--status", "--json", scene.name], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=HOLD_LIMIT, check=False)
        try:
            return json.loads(said.stdout)["waiters"] or 0
        except (ValueError, KeyError, TypeError):
            return 0
    return waiting


def by_kernel(scene):
    """The processes that the kernel has in a queue for an flock of this file."""
    with open("/proc/locks", encoding="ascii") as locks:
        return len(re.findall(r"-> FLOCK +\S+ +\S+ +\d+ +[0-9a-f]+:[0-9a-f]+:%d " % scene.inode, locks.read()))


def cpu_ns(pid):
    """The processor time of a process with all of its threads, in ns; None if it has ended."""
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
        return sum(int(proc_text(pid, "task/%s/schedstat" % task).split()[0]) for task in tasks)
    except (OSError, IndexError):
        return None


def by_rest(scene):
    """The processes in the kernel's queue, or otherwise asleep and idle for a while: a lock that is polled
    does not show who wants it."""
    wanted = scene.still_waiting()
    if by_kernel(scene) >= len(wanted):
        return len(wanted)
    new = {pid: scene.program(pid) for pid in wanted if pid not in scene.at_rest}
    before = {pid: cpu_ns(program) for pid, program in new.items()}
    time.sleep(SETTLED)
    for pid, program in new.items():
        asleep = re.search(r"^State:\s+S", proc_text(program, "status"), re.M)
        if asleep and before[pid] is not None and cpu_ns(program) == before[pid]:
            scene.at_rest.add(pid)
    return sum(1 for pid in wanted if pid in scene.at_rest)


def by_arrivals(scene):
    """Home-made pollers leave a byte when they first find the lock held."""
    return os.path.getsize(scene.arrivals)


def by_etcd(url):
    """etcd has one key for each holder and waiter."""
    def waiting(scene):
        def text(name):
            return base64.b64encode(name.encode()).decode()
        body = json.dumps({"key": text(scene.name + "/"), "range_end": text(scene.name + "0"), "count_only": True})
        conn = http.client.HTTPConnection(url.split("//")[1], timeout=5)
        try:
            conn.request("POST", "/v3/kv/range", body)
            return int(json.loads(conn.getresponse().read()).get("count", 0)) - 1
        except (OSError, ValueError, http.client.HTTPException):
            return 0
        finally:
            conn.close()
    return waiting


def by_consul(url):
    """Consul has one session for each holder and waiter. Some outlive their owner for a while, but those are
    older than the holder's."""
    port = int(url.rsplit(":", 1)[1])

    def waiting(scene):
        try:
            holder = json.loads(http_ask(port, "/v1/kv/%s/.lock" % scene.name))[0]["Session"]
            made = {one["ID"]: one["CreateIndex"] for one in json.loads(http_ask(port, "/v1/session/list"))}
            return sum(1 for index in made.values() if index > made[holder])
        except (ValueError, TypeError, KeyError, IndexError):
            return 0
    return waiting


# ---- the peers ----

def flock_peer(work):
    argv = [shutil.which("flock")]
    return Peer("flock", lambda scene: argv + [scene.path], base_environment(work), False, by_kernel)


def dlock_file_peers(work, dlock):
    env = base_environment(work)
    file = [dlock, "--backend=file"]
    return [
        Peer("dlock, file", lambda scene: file + [scene.name], env, True, by_status(file, env)),
        Peer("dlock --lock-file", lambda scene: [dlock, "--lock-file=" + scene.path], env, True, by_rest),
    ]


def dlock_redis_peers(work, dlock, redis):
    env = base_environment(work)
    path, port = redis
    unix, tcp = [dlock, "-r", "unix://" + path], [dlock, "-r", "redis://127.0.0.1:%d" % port]
    return [
        Peer("dlock, Redis on a Unix socket", lambda scene: unix + [scene.name], env, True, by_status(unix, env)),
        Peer("dlock, Redis on loopback TCP", lambda scene: tcp + [scene.name], env, True, by_status(unix, env)),
    ]


def etcd_peer(work, url):
    env = dict(base_environment(work), ETCDCTL_API="3", ETCDCTL_ENDPOINTS=url)
    argv = [shutil.which("etcdctl"), "lock"]
    return Peer("etcdctl lock", lambda scene: argv + [scene.name], env, False, by_etcd(url))


def consul_peer(work, url):
    env = dict(base_environment(work), CONSUL_HTTP_ADDR=url)
    argv = [shutil.which("consul"), "lock", "-child-exit-code"]
    return Peer("consul lock", lambda scene: argv + [scene.name], env, False, by_consul(url))


def redlock_peer(work, path):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "helpers", "redlock_poll.py")
    argv = [sys.executable, "-I", "-S", script, path]
    return Peer("redlock-style polling", lambda scene: argv + [scene.name, scene.arrivals], base_environment(work),
                False, by_arrivals)


def cronlock_peer(work, path):
    argv = [shutil.which("sh"), "-c", CRON_LOOP, "sh", path]
    return Peer("cron-style polling", lambda scene: argv + [scene.name, scene.arrivals], base_environment(work),
                False, by_arrivals)


# ---- processes ----

class Crowd:
    """Every process of the peers. Each leads its own session, so that its command can be ended with it and no
    terminal has a say in it."""

    def __init__(self, work):
        self.running = set()
        self.errors = os.path.join(work, "stderr")
        null = os.open(os.devnull, os.O_RDWR)
        error = os.open(self.errors, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1),
                        (os.POSIX_SPAWN_DUP2, error, 2)]

    def spawn(self, argv, env):
        pid = os.posix_spawn(argv[0], argv, env, file_actions=self.actions, setsid=True)
        self.running.add(pid)
        return pid

    def reap(self, pids, limit):
        """Waits for these: returns the status of each that has ended by then."""
        ended, left, end = {}, set(pids) & self.running, time.monotonic() + limit
        while left:
            for pid in list(left):
                got, status = os.waitpid(pid, os.WNOHANG)
                if got:
                    ended[pid] = status
                    left.discard(pid)
                    self.running.discard(pid)
            if not left or time.monotonic() > end:
                break
            time.sleep(CHECK_EVERY)
        return ended

    def signal(self, pids, number):
        for pid in set(pids) & self.running:
            os.kill(pid, number)

    def end(self, pids):
        """Kill these with all that they have started. A leader that has ended is not reaped before, so its number
        is nobody else's."""
        for pid in set(pids) & self.running:
            os.killpg(pid, signal.SIGKILL)
        for pid in set(pids) & self.running:
            os.waitpid(pid, 0)
            self.running.discard(pid)

    def stop(self):
        self.end(self.running)

    def last_words(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            return file.read().strip()[-1000:]


class Gate:
    """A FIFO that a command waits at. It can be opened for writing once the command waits there, and the command
    goes on once it is closed again: also when this process is no more."""

    def __init__(self, path):
        self.path = path
        self.fd = None
        os.mkfifo(path, 0o600)

    def reached(self, limit):
        """Whether the command waits at the gate within so many seconds."""
        end = time.monotonic() + limit
        while self.fd is None and time.monotonic() < end:
            try:
                self.fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                time.sleep(LOOK_EVERY)
        return self.fd is not None

    def ident(self):
        """Which command waits at the gate."""
        with open(self.path + ".id", encoding="ascii") as file:
            return int(file.read())

    def release(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Scene:
    """One lock, its holder behind a gate, its waiters, and the log of what has run."""

    number = 0

    def __init__(self, crowd, work, stamp, peer):
        Scene.number += 1
        self.crowd, self.peer, self.stamp = crowd, peer, stamp
        self.name = "bench-%d" % Scene.number
        self.base = os.path.join(work, self.name)
        self.path, self.log, self.arrivals = self.base + ".lock", self.base + ".log", self.base + ".arrivals"
        for path in (self.path, self.log, self.arrivals):
            with open(path, "xb"):
                pass
        self.gates = []
        self.holder = None
        self.waiters = []
        self.gone = set()
        self.at_rest = set()
        self.loops = False
        self.inode = os.stat(self.path).st_ino

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.crowd.end([self.holder] + self.waiters)
        for gate in self.gates:
            gate.release()

    def gate(self, place):
        """A gate for the command that finds so many records, and the word that tells the command about it."""
        made = Gate("%s.gate%d" % (self.base, place))
        self.gates.append(made)
        return made, "gate=%s@%d" % (made.path, place)

    def argv(self, ident, plan):
        return self.peer.argv(self) + [self.stamp, self.log, str(ident)] + plan

    def hold(self):
        """Starts the holder, number 0, and waits until its command is at the gate."""
        gate, word = self.gate(0)
        self.holder = self.crowd.spawn(self.argv(0, [word]), self.peer.env)
        if not gate.reached(HOLD_LIMIT):
            self.fail("did not run its command in %d s" % HOLD_LIMIT)
        return gate

    def add(self, ident, *plan):
        pid = self.crowd.spawn(self.argv(ident, list(plan)), self.peer.env)
        self.waiters.append(pid)
        return pid

    def add_loop(self, ident, *plan):
        """A contender that comes back until the command says that it is over (status 9 of the command)."""
        loop = 'while :; do "$@"; s=$?; [ $s -eq 0 ] || break; done; [ $s -eq 9 ]'
        self.loops = True
        argv = [shutil.which("sh"), "-c", loop, "sh"] + self.argv(ident, list(plan))
        self.waiters.append(self.crowd.spawn(argv, self.peer.env))

    def add_many(self, first, count, *plan):
        """So many at once, but no more of them connecting at a time than a server accepts."""
        for ident in range(first, first + count):
            self.add(ident, *plan)
            if len(self.waiters) % BURST == 0:
                self.await_waiting(len(self.still_waiting()) - 2 * BURST)
        self.await_waiting(len(self.still_waiting()))

    def still_waiting(self):
        return [pid for pid in self.waiters if pid not in self.gone]

    def program(self, pid):
        """The process of a waiter that acquires the lock: in a loop, what the shell has started, 0 if nothing."""
        if not self.loops:
            return pid
        for name in filter(str.isdigit, os.listdir("/proc")):
            if proc_text(int(name), "stat").rpartition(")")[2].split()[1:2] == [str(pid)]:
                return int(name)
        return 0

    def await_waiting(self, count):
        end = time.monotonic() + WAITING_LIMIT
        while (known := self.peer.waiting(self)) < count:
            if time.monotonic() > end:
                self.fail("%d of %d are known to wait after %d s" % (known, count, WAITING_LIMIT))
            time.sleep(LOOK_EVERY)

    def await_records(self, count, limit):
        """Waits until so many have run, and checks rarely, because that costs them time. False if they have not."""
        end = time.monotonic() + limit
        while self.count() < count:
            if time.monotonic() > end:
                return False
            time.sleep(CHECK_EVERY)
        return True

    def finish(self):
        """All must end, and successfully."""
        ended = self.crowd.reap([self.holder] + self.waiters, END_LIMIT)
        bad = [status for status in ended.values() if status != 0]
        if bad or len(ended) <= len(self.waiters):
            self.fail("%d of %d did not end with status 0" % (
                len(bad) + 1 + len(self.waiters) - len(ended), 1 + len(self.waiters)))

    def fail(self, what):
        raise BenchError("%s: %s\n%s" % (self.peer.label, what, self.crowd.last_words()))

    def count(self):
        return os.path.getsize(self.log) // RECORD.size

    def records(self):
        """(id, begin, end) of each command that has run, by begin."""
        with open(self.log, "rb") as log:
            return sorted(RECORD.iter_unpack(log.read()), key=lambda record: record[1])
