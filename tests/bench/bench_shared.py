#!/usr/bin/env python3
"""Measures what a lock costs that many share or wait for, and how many locks one Redis server carries.

    python3 tests/bench/bench_shared.py [--sizes N,...] [--live N] [--json FILE] [--svg FILE] PATH-TO-DLOCK

Most holders and waiters are made up: what one real dlock sent is sent again under other tokens, and what it wrote
into a lock file is written again, and locked. Each operation that is measured is a real dlock.
"""

import argparse
import contextlib
import fcntl
import os
import re
import resource
import shlex
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid

from bench_common import (
    BenchError, Table, base_environment, client_calls, client_usec, parse_options, missing, on_terminate,
    redis_ask, server_cpu, start_redis, tell,
)
from bench_plot import draw_sizes

TRIES, SLOTS_MOST = 7, 10000
SETTLE = 1.0
LIVE_ROUNDS = 9
PAIRS_TIMED, COLD_PAUSE = 60, 0.02
THROUGHPUT_CLIENTS, THROUGHPUT_PAIRS, THROUGHPUT_ROUNDS = 50, 20, 20
# store/file/file.c and queue.c
RECORD_SIZE, FIRST_PLACE, QUEUE, BLOCK = 16384, (1 << 60) + (1 << 32), 1 << 61, 1 << 22
F_OFD_SETLK = 37
PLAIN_RELEASE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"


# ---- running dlock ----

class Dlock:
    """The program with one store."""

    def __init__(self, path, work, store):
        self.argv, self.env = [path] + store, base_environment(work)

    def run(self, *args, status=0):
        """The run's CPU time in us; BenchError unless it ends with this status."""
        with open(os.devnull, "r+b") as null:
            process = subprocess.Popen(self.argv + list(args), env=self.env, stdin=null, stdout=null,
                                       stderr=subprocess.PIPE)
            said = process.stderr.read()
            _, raw, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(raw)
        process.stderr.close()
        if process.returncode != status:
            raise BenchError("dlock %s: status %d\n%s" % (" ".join(args), process.returncode, said.decode()))
        return 1e6 * (used.ru_utime + used.ru_stime)

    def hold(self, *args):
        return subprocess.Popen(self.argv + list(args), env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


# The operations. Each leaves the store as it was.
SHARED = (
    ("join and leave", ["--shared", "many", "true"], 0),
    ("refuse", ["-n", "many", "true"], 75),
)
SLOTS = (
    ("take and leave", ["--slots=10000", "many", "true"], 0),
)
WAITED_FOR = (
    ("refuse", SHARED[1][1], 75),
    ("queue, and time out", ["-w", "0.05", "many", "true"], 75),
)
EXCLUSIVE = (("take and release", ["one", "true"], 0),)


# ---- a store in Redis, filled ----

class Connection:
    """A connection for bulk writes: replies are read up to that of an ECHO."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)

    def send(self, commands):
        self.socket.sendall(b"".join(map(encoded, commands)) + encoded(["ECHO", "the-end"]))

    def await_end(self):
        """The replies, unparsed."""
        said = bytearray()
        while not said.endswith(b"the-end\r\n"):
            more = self.socket.recv(1 << 16)
            if not more:
                raise BenchError("Redis closed a connection")
            said += more
        if said.startswith(b"-"):
            raise BenchError(said[:300].decode())
        return bytes(said)

    def bulk(self, commands):
        for start in range(0, len(commands), 500):
            self.send(commands[start:start + 500])
            self.await_end()


def encoded(words):
    words = [word.encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Redis:
    """A server, and the means to fill it with holders and waiters."""

    def __init__(self, stack, work, dlock):
        self.path, _ = start_redis(stack, work, "redis-shared")
        self.dlock = Dlock(dlock, work, ["-r", "unix://" + self.path])
        self.pipe = Connection(self.path)
        for operation in (EXCLUSIVE, SHARED[:1]):  # the server has the scripts from now on
            for _, args, status in operation:
                self.dlock.run(*args, status=status)

    def sent(self, *args, status=0):
        """The commands that a run sends, except those in scripts."""
        monitor = Connection(self.path)
        monitor.socket.sendall(b"MONITOR\r\n")
        monitor.socket.recv(100)
        self.dlock.run(*args, status=status)
        self.pipe.bulk([["ECHO", "monitored"]])
        said = b""
        while b"monitored" not in said:
            said += monitor.socket.recv(1 << 16)
        monitor.socket.close()
        found = re.findall(r"^\+\S+ \[\d+ unix:[^\]]*\] (.*?)\r?$", said.decode("utf-8", "replace"), re.M)
        return [shlex.split(line) for line in found]

    def again(self, commands, word, old, count):
        """Copies of the command with this word, each under its own identity."""
        command = [one for one in commands if one[0] == word and old in " ".join(one)][0]
        return [[part.replace(old, new) for part in command] for new in (str(uuid.uuid4()) for _ in range(count))]

    def fill(self, kind, count):
        mode = "--slots=10000" if kind == "slots" else "--shared"
        old = str(uuid.uuid4())
        if kind == "waiters":
            self.dlock.run("--acquire", "--owner=holder", "many")
            commands = self.sent("-w", "0.05", "--owner=" + old, "many", "true", status=75)
            channel = [one for one in commands if one[0] == "SUBSCRIBE" and ":wake:" in one[1]][0][1]
            take = channel.split(":wake:")[1]
            asks = [one for one in commands if one[0] == "EVALSHA" and "queues" in one]
            copies = [(old, str(uuid.uuid4())) for _ in range(count)]
            ears = Connection(self.path)
            ears.socket.sendall(encoded(["SUBSCRIBE"] + [channel.replace(take, new) for _, new in copies]))
            self.pipe.bulk([[part.replace(take, new).replace(old, new) for part in asks[0]] for _, new in copies])
            return ears
        commands = self.sent("--acquire", mode, "--owner=" + old, "many")
        take = [word for one in commands if one[0] == "EVALSHA" for word in one if re.fullmatch(r"[0-9a-f-]{36}", word)]
        takes = [word for word in take if word != old]
        for one in self.again(commands, "EVALSHA", old, count - 1):
            fresh = str(uuid.uuid4())
            one[:] = [fresh if takes and word == takes[0] else word for word in one]
            self.pipe.bulk([one])
        return None

    def empty(self):
        self.pipe.bulk([["FLUSHALL"]])

    def measure(self, operations):
        """Server time in us and client calls of each operation, medians."""
        samples = {name: [] for name, _, _ in operations}
        for _ in range(TRIES):
            for name, args, status in operations:
                usec, calls = client_usec(self.path), sum(client_calls(self.path).values())
                self.dlock.run(*args, status=status)
                samples[name].append((client_usec(self.path) - usec, sum(client_calls(self.path).values()) - calls))
        return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in samples.items()}


# ---- a store in files, filled ----

class Files:
    """A lock directory, and the means to fill a lock in it with holders and waiters."""

    def __init__(self, work, dlock):
        self.directory, self.holder = os.path.join(work, "shared-locks"), None
        self.dlock = Dlock(dlock, work, ["--backend=file", "--lock-dir=" + self.directory])
        self.dlock.run("first", "true")

    def start_holder(self, fill):
        """A process that holds all the locks: in this one, each dlock that is started would have to close them."""
        ready, told = os.pipe()
        self.holder = os.fork()
        if self.holder == 0:
            fill()
            os.write(told, b"x")
            signal.pause()
            os._exit(0)
        os.close(told)
        filled = os.read(ready, 1)
        os.close(ready)
        if not filled:
            raise BenchError("the locks could not be taken")

    @staticmethod
    def lock(path, start, length):
        """As dlock does it: with an open file of its own."""
        fd = os.open(path, os.O_RDWR)
        fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        return fd

    def fill(self, kind, count):
        path = os.path.join(self.directory, "dlock:many.lock")
        if kind == "names":
            for number in range(count):
                with open(path.replace("many", "name-%d" % number), "wb"):
                    pass
            return
        self.dlock.run("--acquire", "--owner=holder", *(["many"] if kind == "waiters" else [
            "--slots=10000" if kind == "slots" else "--shared", "many"]))
        with open(path, "rb") as file:
            record = file.read(RECORD_SIZE).split(b"\nend\n")[0] + b"\nend\n"
        record = record.replace(b"\ndetached 1\n", b"\ndetached 0\n")

        def wait():
            for number in range(1, count + 1):
                self.lock(path, QUEUE + number * BLOCK, 1)

        def hold():
            for place in range(count):
                fd = self.lock(path, FIRST_PLACE + place, 1)
                fcntl.flock(fd, fcntl.LOCK_SH)
                os.pwrite(fd, record.replace(b"holder", b"hold%d" % place)
                          .replace(b"\nslot 0\n", b"\nslot %d\n" % place), place * RECORD_SIZE)
        self.start_holder(wait if kind == "waiters" else hold)

    def empty(self):
        if self.holder is not None:
            os.kill(self.holder, signal.SIGKILL)
            os.waitpid(self.holder, 0)
            self.holder = None
        for name in os.listdir(self.directory):
            if name.endswith(".lock"):
                os.unlink(os.path.join(self.directory, name))

    def measure(self, operations):
        """Processor time in us of each operation, medians."""
        samples = {name: [] for name, _, _ in operations}
        for _ in range(TRIES):
            for name, args, status in operations:
                samples[name].append(self.dlock.run(*args, status=status))
        return {name: [statistics.median(values)] for name, values in samples.items()}


# ---- tables ----

def by_size(store, plan, sizes):
    """plan: kind -> operations. Result: "operation, kind" -> [(size, values)]."""
    found = {}
    for kind, operations in plan.items():
        for size in sizes:
            print("bench: %s, %d" % (kind, size), file=sys.stderr, flush=True)
            store.empty()
            kept = store.fill(kind, size - (kind == "slots" and size == SLOTS_MOST))  # one is left to take
            for name, values in store.measure(operations).items():
                found.setdefault("%s (%s)" % (name, kind), []).append((size, values))
            del kept
    store.empty()
    return found


def size_table(title, found, alone, sizes):
    """A table of server time or CPU by size; with the calls, if they are known."""
    found = dict(found, **{"exclusive: " + name: [(1, values)] for name, values in alone.items()})
    rows = [[name] + ["%.0f" % values[0] for _, values in points] + [""] * (len(sizes) - len(points))
            for name, points in found.items()]
    counted = [[", ".join("%.0f" % call for _, values in points for call in values[1:])] for points in found.values()]
    if any(cells != [""] for cells in counted):
        rows = [row + cells for row, cells in zip(rows, counted)]
    return Table(title, ["what", *("{:,}".format(size) for size in sizes), "calls"][:len(rows[0])], rows)


def live_table(redis, sizes):
    """The server's calls while one joins and leaves a lock that real holders share, without their own checks."""
    rows, holders = [], []
    try:
        for size in sizes:
            while len(holders) < size:
                holders.append(redis.dlock.hold("--shared", "live", "sleep", "1000"))
            limit = time.monotonic() + 60
            while time.monotonic() < limit and redis_clients(redis.path) < size:
                time.sleep(0.1)
            time.sleep(2 * SETTLE)
            # Holders that were started together check together.
            counts = [[], []]
            for _ in range(LIVE_ROUNDS):
                for count, action in zip(counts, (lambda: None, lambda: redis.dlock.run("--shared", "live", "true"))):
                    before = sum(client_calls(redis.path).values())
                    action()
                    time.sleep(SETTLE)
                    count.append(sum(client_calls(redis.path).values()) - before)
            rest, joined = (statistics.median(count) for count in counts)
            rows.append(["{:,}".format(size), "%d" % (joined - rest), "20", "%d" % rest])
    finally:
        for holder in holders:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
        redis.empty()
    return Table("Redis calls while one joins and leaves a shared lock, all holders alive",
                 ["holders", "calls", "budget", "at rest in the same time"], rows)


def redis_clients(path):
    return int(re.search(r"connected_clients:(\d+)", redis_ask(path, "INFO clients")).group(1)) - 1


def server_times(redis, pair):
    """The server's time for an acquire and for a release in µs by SLOWLOG, medians: "cold, hot". Cold is after an idle pause."""
    medians = []
    for pause in (COLD_PAUSE, 0):
        redis.pipe.bulk([["CONFIG", "SET", "slowlog-max-len", "1000"], ["CONFIG", "SET", "slowlog-log-slower-than", "0"],
                         ["SLOWLOG", "RESET"]])
        for command in pair * PAIRS_TIMED:
            time.sleep(pause)
            redis.pipe.bulk([command])
        redis.pipe.send([["CONFIG", "SET", "slowlog-log-slower-than", "-1"], ["SLOWLOG", "GET", "1000"]])
        found = re.findall(rb":(\d+)\r\n\*\d+\r\n\$\d+\r\n(?:SET|EVAL|EVALSHA)\r\n", redis.pipe.await_end())
        usec = [int(one) for one in reversed(found)]
        medians.append([statistics.median(usec[start::2]) for start in (0, 1)])
    return ["%.0f, %.0f" % both for both in zip(*medians)]


def throughput_table(redis):
    """Acquires and releases one by one, as fast as the server carries them out: as dlock sends them, and with plain commands."""
    name, old = "carried-00000000", "owner-00000000"
    sent = [one for one in redis.sent("--owner=" + old, name, "true") if one[0] == "EVALSHA"]
    plain = [["SET", name, old, "NX", "PX", "3600000"], ["EVAL", PLAIN_RELEASE, "1", name, old]]
    plain_us = None
    rows, clients = [], [Connection(redis.path) for _ in range(THROUGHPUT_CLIENTS)]
    for label, pair in (("SET NX and compare-and-delete", plain), ("dlock", [sent[0], sent[-1]])):
        batches = []
        for client in range(THROUGHPUT_CLIENTS):
            batch = []
            for number in range(THROUGHPUT_PAIRS):
                one = "%08d" % (client * THROUGHPUT_PAIRS + number)
                batch += [[word.replace(name, "carried-" + one).replace(old, "owner-" + one) for word in command]
                          for command in pair]
            batches.append(batch)
        begin, cpu = time.perf_counter(), server_cpu(redis.path)
        for _ in range(THROUGHPUT_ROUNDS):
            for client, batch in zip(clients, batches):
                client.send(batch)
            for client in clients:
                client.await_end()
        seconds, cpu = time.perf_counter() - begin, server_cpu(redis.path) - cpu
        count = THROUGHPUT_CLIENTS * THROUGHPUT_PAIRS * THROUGHPUT_ROUNDS
        us = 1e6 * cpu / count
        rows.append([label, "%.1f" % us, "{:,.0f}".format(1e6 / us), "{:,.0f}".format(count / seconds),
                     "%.2f" % (us / (plain_us or us)), *server_times(redis, pair)])
        plain_us = plain_us or us
    return Table("Locks that one server carries, %d clients, distinct names, taken and released" % THROUGHPUT_CLIENTS,
                 ["what", "server CPU of one, µs", "locks a second that this allows", "a second in this run", "CPU x plain",
                  "one take, µs, cold and hot", "one release"], rows)


def measure(options, stack):
    work = tempfile.mkdtemp(prefix="dlock-shared-")
    stack.callback(subprocess.run, ["rm", "-rf", work], check=False)
    os.mkdir(os.path.join(work, "locks"), 0o700)
    load, sizes = os.getloadavg()[0], options.sizes
    tables, plots = [], []
    files = Files(work, options.dlock)
    stack.callback(files.empty)
    alone = files.measure(EXCLUSIVE)
    plan = {"sharers": SHARED, "slots": SLOTS, "waiters": WAITED_FOR}
    found = by_size(files, dict(plan, names=EXCLUSIVE), sizes)
    tables.append(size_table("Files: processor time of one dlock by the number of holders, waiters or names, µs",
                             found, alone, sizes))
    plots.append(("Files: processor time of one dlock, µs", found))
    if not missing("redis-server"):
        redis = Redis(stack, work, options.dlock)
        alone = redis.measure(EXCLUSIVE)
        found = by_size(redis, plan, sizes)
        tables.append(size_table("Redis: server time of one dlock by the number of holders or waiters, µs; and its calls",
                                 found, alone, sizes))
        plots.append(("Redis: server time of one dlock, µs", found))
        tables += [live_table(redis, [size for size in (1, 10, 100, 1000) if size <= options.live]),
                   throughput_table(redis)]
    return load, tables, plots


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure what a lock costs that many share or wait for.")
    parser.add_argument("--sizes", default="1,100,1000,10000", metavar="N,...",
                        type=lambda text: [int(word) for word in text.split(",")],
                        help="how many holders or waiters (default: 1,100,1000,10000)")
    parser.add_argument("--live", type=int, default=1000, metavar="N", help="real holders at most (default: 1000)")
    parser.add_argument("--svg", metavar="FILE", help="draw the times")
    return parse_options(parser)


def main():
    options = parse_arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with contextlib.ExitStack() as stack:
            load, tables, plots = measure(options, stack)
    except (BenchError, OSError) as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    tell(options, "Load average before: %.2f. Processors: %d." % (load, os.cpu_count()), tables)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw_sizes(plots))
    return 0


if __name__ == "__main__":
    sys.exit(main())
