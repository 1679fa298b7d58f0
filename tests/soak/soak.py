#!/usr/bin/env python3
"""Plays a day of cron on many hosts, compressed, and checks whether anything grows.

    python3 tests/soak/soak.py [OPTIONS] PATH-TO-DLOCK

In every slot (five minutes of the day), hosts drawn at random start the same job at about the same time,
`dlock -n -E 0 --hold-at-least`: exactly one of them runs it. There are also jobs that wait for each
other, a leader with --heartbeat whose dlock is killed now and then, scripts that attach themselves, and a few
holders, waiters and guards that live from the first slot to the last. All of this happens at once in a Redis and in a
directory. In some slots, once all of these have been started, the Redis is restarted with its data, or
hangs for a moment: then -n may report that it is unreachable (69), and everything else goes on. After each slot, the
keys, memory and clients of the server, the files, and the memory, descriptors and threads of the long-lived processes
are counted; the slope of each count over all slots is judged, not its value.
Exit status 1: something grew, was left behind, or ran twice or not at all.
"""

import argparse
import collections
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from bench_common import on_terminate, proc_field, start_server
from figures import Table, add_options, write_figures
from orphans import become_subreaper, children
from redis_client import RedisClient

DAY = 288            # slots of five minutes
WARM_UP = 0.2        # of all slots; by then everything that is allocated once has been allocated
WAIT_EVERY, ATTACH_EVERY, KILL_EVERY = 6, 3, 12
WAITERS, SESSIONS = 4, 5
UNREACHABLE = 69
HANG = 0.3           # how long a server that is frozen does not answer, in seconds
MARGIN = 0.1         # between the end of a hold and the next slot, in seconds
HISTORY_MOST = 32    # runs that a lock remembers
LIMIT = 60.0         # for anything that must happen, in seconds
# How much each figure may grow over the judged slots: only what comes and goes. Each failure of the server leaves some
# requests whose reply did not come on a list of the lock, which is cut at 40 kB (meta.lua).
ROOM = {"keys": 3, "memory": 262144, "memory of keys": 16384, "clients": 3, "files": 3, "rss": 128, "descriptors": 1,
        "threads": 1, "server descriptors": 4}

BEATING = """
import os, signal, socket, sys
print(os.environ["DLOCK_FENCE"], os.getppid(), sep=":", file=open(sys.argv[1], "a"))
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
while True:
    s.sendto(b"WATCHDOG=1", "\\0" + os.environ["NOTIFY_SOCKET"][1:])
    signal.sigtimedwait([], 0.5)
"""


class Backend:
    """One store, and what lives on it for the whole soak."""

    def __init__(self, soak, name):
        self.soak, self.name = soak, name
        self.work = os.path.join(soak.work, name)
        os.mkdir(self.work)
        self.locks = os.path.join(soak.work, "locks")
        self.arguments = ["--backend=file", "--lock-dir=" + self.locks]
        self.server = None
        # label -> process; processes that are to end by themselves, and whether each tries once (-n)
        self.long, self.short = {}, []
        self.disturbed = False            # in this slot
        self.samples = collections.defaultdict(list)
        self.wrong, self.runs, self.late, self.kills, self.failures = [], 0, 0, 0, 0

    def take_each(self, times=1):
        """Uses each name: then its records exist, and the file of a killed holder or of a hold no longer does."""
        names = ["mirror", "backup", "lead"] + ["session-%d" % i for i in range(SESSIONS)]
        for _ in range(times):
            runs = {name: self.dlock("-w", "%g" % LIMIT, name, "--", "true") for name in names}
            self.wrong += ["%s is not to be had" % name for name, run in runs.items() if run.wait(2 * LIMIT) != 0]

    def begin(self):
        self.take_each(HISTORY_MOST)  # so that no history grows any more
        beat = [sys.executable, "-c", BEATING]
        self.long["leader"] = self.dlock("--heartbeat", "-t", "20s", "steady", "--", *beat, self.log("steady"))
        self.until(lambda: os.path.exists(self.log("steady")), "the leader has not begun")
        for i in range(2):
            self.long["waiter %d" % i] = self.dlock("-t", "1h", "steady", "--", "true")
        self.long["script"] = self.shell('dlock "$@" --attach -t 1h steady-script || exit; read -r line <"$0"', self.fifo("end"))
        self.follow_leader()
        self.until(lambda: self.guard() is not None, "the guard has not begun")

    def dlock(self, *arguments):
        self.runs += 1
        return subprocess.Popen([self.soak.options.dlock, *self.arguments, *arguments], env=self.soak.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.soak.said)

    def shell(self, script, *arguments):
        self.runs += 1
        return subprocess.Popen(["/bin/sh", "-c", script, *arguments, *self.arguments], env=self.soak.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.soak.said)

    def log(self, name):
        return os.path.join(self.work, name)

    def fifo(self, name):
        path = self.log(name)
        os.mkfifo(path)
        return path

    def lines(self, name):
        with contextlib.suppress(FileNotFoundError), open(self.log(name), encoding="ascii") as log:
            return log.read().split()
        return []

    def until(self, condition, what):
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError("%s: %s" % (self.name, what))
            time.sleep(0.01)

    def follow_leader(self):
        """Two candidates for the lead whose dlock is killed."""
        for label in ("candidate 0", "candidate 1"):
            process = self.long.get(label)
            if process is None or process.poll() is not None:
                beat = [sys.executable, "-c", BEATING, self.log("lead")]
                self.long[label] = self.dlock("--heartbeat", "-t", "4s", "lead", "--", *beat)

    def kill_leader(self):
        """The next one starts within its lease, long before it is killed in turn."""
        self.until(lambda: len(self.lines("lead")) > self.kills, "nobody leads")
        leader = int(self.lines("lead")[-1].split(":")[1])
        for process in self.long.values():
            if process.pid == leader:
                process.kill()
                process.wait()
                self.kills += 1

    def guard(self):
        """The guard that --attach has left for the script that lives on: it became a child of this process."""
        for pid in children():
            with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
                if b"--attach" in words and b"steady-script" in words and self.arguments[-1].encode() in words:
                    return pid
        return None

    # -- a slot --

    def start_slot(self, number, hosts):
        job = ["/bin/sh", "-c", 'echo "$1" >>"$0"', self.log("mirror"), str(number)]
        hold = "--hold-at-least=%gs" % self.soak.options.hold
        self.disturbed = False
        self.short = [(self.dlock("-n", "-E", "0", "-t", "10m", hold, "mirror", "--", *job), True) for _ in hosts]
        if number % WAIT_EVERY == 0:
            alone = ["/bin/sh", "-c", 'mkdir "$0" && rmdir "$0"', self.log("backup")]
            self.short += [(self.dlock("-w", "%g" % LIMIT, "-t", "2m", "backup", "--", *alone), False) for _ in range(WAITERS)]
        if number % ATTACH_EVERY == 0:
            self.short.append((self.shell('dlock "$@" --attach -n -t 2m "$0" || exit', "session-%d" % (number % SESSIONS)), True))
        if number % KILL_EVERY == KILL_EVERY - 1:
            self.kill_leader()
        if self.soak.options.plant == "double":
            self.short.append((self.shell('echo %d >>"$0"' % number, self.log("mirror")), False))
        self.follow_leader()

    def disturb(self):
        """The store fails, if it is one that can."""

    def end_slot(self, number, began):
        end = time.monotonic() + LIMIT
        unreachable = 0
        for process, once in self.short:
            try:
                status = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = "no end"
                process.kill()
                process.wait()
            if status == UNREACHABLE and once and self.disturbed:
                unreachable += 1
            elif status != 0:
                self.wrong.append("slot %d: exit status %s of %s" % (number, status, " ".join(process.args[1:])))
        ran = self.lines("mirror").count(str(number))
        slow = time.monotonic() - began >= self.soak.options.hold
        self.late += slow
        # A host that comes after the hold rightly runs the job again.
        if (ran == 0 and unreachable == 0) or (ran > 1 and not slow):
            self.wrong.append("slot %d: the job ran %d times" % (number, ran))

    # -- counting --

    def count(self, sample):
        steady = {label: process for label, process in self.long.items() if not label.startswith("candidate")}
        pids = {label: process.pid if process.poll() is None else None for label, process in steady.items()}
        for label, pid in {**pids, "guard": self.guard()}.items():
            if pid is None:
                raise RuntimeError("%s: the %s has ended" % (self.name, label))
            sample(label, "rss", proc_field(pid, "status", "VmRSS"))
            sample(label, "descriptors", len(os.listdir("/proc/%d/fd" % pid)))
            sample(label, "threads", len(os.listdir("/proc/%d/task" % pid)))
        self.count_store(sample)

    def count_store(self, sample):
        with contextlib.suppress(FileNotFoundError):
            sample("lock directory", "files", len(os.listdir(self.locks)))

    def plant(self, number):
        if self.soak.options.plant == "file":
            with open(os.path.join(self.locks, "left-%d" % number), "w", encoding="ascii"):
                pass

    def finish(self):
        self.until(lambda: len(self.lines("lead")) > self.kills, "nobody leads")
        for process in self.long.values():
            process.terminate()
            process.wait(LIMIT)
        fences = [int(line.split(":")[0]) for line in self.lines("lead")]
        if fences != sorted(set(fences)):
            self.wrong.append("the fences of the leaders do not rise: %s" % fences)
        self.take_each()
        self.wrong += ["left behind: %s" % name for name in self.rest()]

    def rest(self):
        return [name for name in os.listdir(self.locks) if not name.startswith(".table-")]


class RedisBackend(Backend):
    def __init__(self, soak, name):
        super().__init__(soak, name)
        # An attachment is recorded in a file, wherever its lock is.
        self.locks = soak.env["DLOCK_LOCK_DIR"] = os.path.join(self.work, "locks")
        self.socket = self.log("redis.sock")
        self.arguments = ["--backend=redis", "--redis=unix://" + self.socket]
        self.start()
        self.planted = []

    def start(self):
        # The server's slow log uses memory too, on a slow machine.
        argv = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.work, "--save", "", "--appendonly", "no",
                "--slowlog-max-len", "0"]
        start_server(self.soak.stack, self.work, "server", argv, lambda: os.path.exists(self.socket))
        self.client = RedisClient(self.socket, LIMIT)
        self.server = int(self.info("process_id"))

    def disturb(self):
        """It is restarted with its data, and hangs, in turns."""
        self.disturbed = True
        self.failures += 1
        if self.failures % 2 == 1:
            self.client.send("SHUTDOWN", "SAVE")
            os.waitpid(self.server, 0)
            self.client.close()
            self.start()
        else:
            os.kill(self.server, signal.SIGSTOP)
            time.sleep(HANG)
            os.kill(self.server, signal.SIGCONT)

    def info(self, field):
        text = self.client.ask("INFO")
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)[field]

    def count_store(self, sample):
        super().count_store(sample)
        sample("server", "keys", self.client.ask("DBSIZE"))
        sample("server", "memory", int(self.info("used_memory")))
        used = [self.client.ask("MEMORY", "USAGE", key, "SAMPLES", "0") or 0 for key in self.client.ask("KEYS", "*")]
        sample("server", "memory of keys", sum(used))
        sample("server", "clients", int(self.info("connected_clients")))
        sample("server", "server descriptors", len(os.listdir("/proc/%d/fd" % self.server)))

    def plant(self, number):
        plant = self.soak.options.plant
        if plant == "key":
            self.client.ask("SET", "dlock:left-%d" % number, "x", "PX", 3600000)
        elif plant == "memory":
            self.client.ask("APPEND", "{dlock:mirror}:left", "x" * 65536)
        elif plant == "client":
            self.planted.append(RedisClient(self.socket, LIMIT))
        super().plant(number)

    def rest(self):
        kept = (":meta", ":counts") # of each name, however often it is locked
        return super().rest() + [key for key in self.client.ask("KEYS", "*") if not key.endswith(kept)]


class Soak:
    def __init__(self, options, work, stack):
        self.options, self.work, self.stack = options, work, stack
        os.mkdir(os.path.join(work, "bin"))
        os.symlink(options.dlock, os.path.join(work, "bin", "dlock"))
        self.env = {"HOME": work, "LC_ALL": "C", "PATH": os.path.join(work, "bin") + ":" + os.environ["PATH"]}
        self.said_path = os.path.join(work, "said")
        self.said = stack.enter_context(open(self.said_path, "wb"))
        kinds = {"redis": RedisBackend, "file": Backend}
        self.backends = [kinds[name](self, name) for name in options.backend.split(",")]
        self.samples = collections.defaultdict(list)
        self.draw = random.Random(options.seed)
        self.slots_done = 0

    def play(self):
        options = self.options
        hosts = range(options.hosts)
        for backend in self.backends:
            backend.begin()
        end = time.monotonic() + (options.seconds or float("inf"))
        for number in range(options.slots):
            began = time.monotonic()
            if began > end:
                break
            for backend in self.backends:
                backend.start_slot(number, self.draw.sample(hosts, options.draw))
            if options.fail_every and number % options.fail_every == options.fail_every // 2:
                for backend in self.backends:
                    backend.disturb()
            for backend in self.backends:
                backend.end_slot(number, began)
                backend.plant(number)
            if options.plant == "process":
                subprocess.Popen(["sleep", "1000"], start_new_session=True)
            self.wait_for_hold()
            for backend in self.backends:
                backend.count(lambda who, what, value, name=backend.name: self.samples[name, who, what].append(value))
            self.slots_done += 1
        for backend in self.backends:
            backend.finish()
        self.reap()

    def wait_for_hold(self):
        """The log was written after the lock was acquired; a release that the server has not read yet holds it longer."""
        last = max(os.stat(backend.log("mirror")).st_mtime + HANG * backend.disturbed for backend in self.backends)
        time.sleep(max(0.0, last + self.options.hold + MARGIN - time.time()))

    def reap(self):
        """Any process that is still a child now, except the servers, was left behind."""
        servers = [backend.server for backend in self.backends]
        end = time.monotonic() + 10
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] > 0:
                    pass
            left = [pid for pid in children() if pid not in servers]
            if not left:
                return
            if time.monotonic() > end:
                self.backends[0].wrong.append("%d processes left behind" % len(left))
                return
            time.sleep(0.02)

    def stop_all(self):
        servers = [backend.server for backend in self.backends]
        for _ in range(1000):
            pids = [pid for pid in children() if pid not in servers]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    # -- the verdict --

    def judge(self):
        good, rows, grew = True, [], []
        for backend in self.backends:
            said = "%s: %d slots, %d runs, %d kills of leaders, %d failures of the server, %d slots too slow to be judged" % (
                backend.name, self.slots_done, backend.runs, backend.kills, backend.failures, backend.late)
            if backend.late > self.options.slow_most * self.slots_done:
                backend.wrong.append("the machine is too slow for --hold=%g and --draw=%d" % (self.options.hold, self.options.draw))
            for (name, who, what), values in sorted(self.samples.items()):
                if name != backend.name:
                    continue
                grown, values = growth(values)
                if grown > ROOM[what]:
                    backend.wrong.append("%s of the %s grew by %.0f over %d slots, from %s to %s" % (
                        what, who, grown, len(values), values[0], values[-1]))
                if min(values) != max(values):
                    grew.append([name, who, what, str(min(values)), str(max(values)), "%+.1f" % grown])
                if grown <= ROOM[what] and self.options.table:
                    print("  %-5s %-14s %-18s %9s %9s  %+.1f" % (name, who, what, min(values), max(values), grown))
            for wrong in backend.wrong[:20]:
                print("%s: WRONG: %s" % (backend.name, wrong))
            good = good and not backend.wrong
            rows.append([backend.name, *("{:,}".format(number) for number in (
                self.slots_done, backend.runs, backend.kills, backend.failures, backend.late, len(backend.wrong)))])
            print("%s, %d wrong" % (said, len(backend.wrong)), flush=True)
        write_figures(self.options.json, [
            Table("", ["store", "slots", "runs", "leaders killed", "failures of the server", "slots too slow to be judged", "wrong"], rows),
            Table("", ["store", "of", "what", "least", "most", "growth"], grew)])
        if not good:
            with open(self.said_path, encoding="utf-8", errors="replace") as file:
                print(file.read()[-2000:])
        return good


def growth(values):
    """The total rise of the line through them: its slope is the median of the slopes between any two (Theil and Sen)."""
    values = values[int(len(values) * WARM_UP):]
    pairs = range(len(values))
    slopes = [(values[b] - values[a]) / (b - a) for a in pairs for b in pairs if a < b]
    return (statistics.median(slopes) if slopes else 0.0) * (len(values) - 1), values


def soak(options):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    become_subreaper()
    print("seed %s: %d slots, %d of %d hosts in each, every slot %g s" % (
        options.seed, options.slots, options.draw, options.hosts, options.hold + MARGIN), flush=True)
    with contextlib.ExitStack() as stack:
        work = tempfile.mkdtemp(prefix="dlock-soak-")
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        play = Soak(options, work, stack)
        stack.callback(play.stop_all)
        begun = time.monotonic()
        try:
            play.play()
        except RuntimeError as error:
            print("WRONG: %s" % error)
            play.judge()
            return False
        except SystemExit:
            print("told to end after %d slots, %.0f s" % (play.slots_done, time.monotonic() - begun))
            raise
        return play.judge()


def main():
    parser = argparse.ArgumentParser(description="Play a day of cron on many hosts, compressed; see whether anything grows.")
    parser.add_argument("--slots", type=int, default=DAY, metavar="N", help="slots of five minutes (default: %d, a day)" % DAY)
    parser.add_argument("--hosts", type=int, default=200, metavar="N", help="hosts of the fleet (default: 200)")
    parser.add_argument("--draw", type=int, default=25, metavar="N",
                        help="how many of them, drawn anew, come in each slot on each backend (default: 25; all of them make "
                        "57,600 runs a day)")
    parser.add_argument("--hold", type=float, default=1.2, metavar="SECONDS",
                        help="--hold-at-least of the job, about the length of a slot (default: 1.2)")
    parser.add_argument("--slow-most", type=float, default=0.2, metavar="PART",
                        help="how many slots may take longer than the hold, and are not judged, as on a busy machine (default: 0.2)")
    parser.add_argument("--fail-every", type=int, default=12, metavar="N",
                        help="how often the server is restarted, or hangs, in slots; 0: never (default: 12)")
    parser.add_argument("--backend", default="redis,file", metavar="LIST", help="default: redis,file")
    add_options(parser, seconds=0)
    parser.add_argument("--table", action="store_true", help="show what was counted: least, most, growth")
    parser.add_argument("--plant", choices=["key", "memory", "client", "file", "process", "double"],
                        help="leave one behind in every slot: must be found")
    parser.add_argument("dlock", metavar="PATH-TO-DLOCK")
    options = parser.parse_args()
    options.dlock = os.path.abspath(options.dlock)
    options.seed = options.seed or str(random.SystemRandom().randrange(10 ** 6))
    return 0 if soak(options) else 1


if __name__ == "__main__":
    sys.exit(main())
