#!/usr/bin/env python3
"""Measures what waiting for a lock costs, with dlock and with others, in one run.

    python3 tests/bench/bench_waiting.py [--only SECTION,...] [--json FILE] [--svg FILE] PATH-TO-DLOCK

Every server is started here, in a temporary directory and on loopback, and stopped at the end; so is every waiter.
A missed budget is reported and changes nothing in the exit status; that is 1 only when something that is installed
could not be run.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter, namedtuple

from bench_common import (
    CLIENT_CALLS, BenchError, Table, all_calls, must_run, parse_options, held, on_terminate, proc_field, processor_ticks,
    reads_of_server, redis_ask, round_order, start_consul, start_etcd, start_redis, tell,
    verdict, version_line,
)
from bench_crowd import (
    Crowd, Scene, consul_peer, cpu_ns, cronlock_peer, dlock_file_peers, dlock_redis_peers, etcd_peer, flock_peer,
    redlock_peer, QUIET,
)
from bench_plot import draw

SECTIONS = ("handoff", "calls", "idle", "many", "fairness")
# The commands' length in ms: waiters at most, budgets of p50. Those of 60 ms outlast the start of the watch, and are
# for flock and dlock alone.
HANDOFF_WORK = {20: (1000, {"file": 1.03, "Redis": 1.35}), 60: (15, {"file": 1.15, "Redis": 1.4})}
BUDGET_P95 = 1.5
BUDGET_CALLS = 12
BUDGET_TRIPS = 1.0
BUDGET_RSS_KB = 2100
BUDGET_DEAD_MS = 1000
BUDGET_FAIR = 1.1
CALLS_CROWDS = (10, 100, 1000)
HANDOFFS = 20
WORK_MS = 100
PER_SECONDS = 5
CALLS_SETTLE = 30.0
REST_WINDOW = 10.0
IDLE_WINDOW = 20.0
CONTENDERS = 20
# So that all but one of the contenders wait: commands without a length would wait for processors.
FAIR_MS = 5
FIRST = 100
ROUND_LIMIT = 60.0
GATE_LIMIT = 120.0
FAIR_LIMIT = 60.0

# What this program itself asks of the server while it counts.
OUR_CALLS = {"info", "monitor", "config", "ping"}

Bench = namedtuple("Bench", "options crowd work peers redis other_redis failed results")
Count = namedtuple("Count", "time calls inside reads what")


# ---- what all sections use ----

def progress(words):
    """Progress messages; the tables go to stdout."""
    print("bench: " + words, file=sys.stderr, flush=True)


def scene_of(bench, peer):
    return Scene(bench.crowd, bench.work, bench.options.stamp, peer)


@contextlib.contextmanager
def excused(bench, peer, section):
    """A peer that cannot be run is left out of the section and named at the end; the others go on."""
    try:
        yield
    except (BenchError, OSError) as error:
        bench.failed.setdefault((section, peer.label), str(error))


def chosen(bench, *labels):
    """The installed peers with these labels, in the order of all."""
    return [peer for peer in bench.peers if peer.label in labels]


def quantile(values, share):
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]


# ---- hand-off ----

def gaps_of(records):
    """Seconds from each end to the next start, and how many started before the end of another."""
    gaps, overlaps, end = [], 0, records[0][2]
    for _, begin, until in records[1:]:
        if begin < end:
            overlaps += 1
        else:
            gaps.append((begin - end) / 1e9)
        end = max(end, until)
    return gaps, overlaps


def inversions(order):
    """The share of pairs that were served in another order than they had arrived in."""
    pairs = len(order) * (len(order) - 1) // 2
    wrong = sum(1 for place, one in enumerate(order) for later in order[place + 1:] if later < one)
    return wrong / pairs if pairs else 0.0


def handoff_crowd(bench, work):
    """How many wait while commands of this length are handed over."""
    return min(bench.options.waiters, HANDOFF_WORK[work][0])


def handoff_round(bench, peer, work):
    """One crowd, started one by one, each known to wait before the next starts: what has run when all have."""
    waiters = handoff_crowd(bench, work)
    with scene_of(bench, peer) as scene:
        gate = scene.hold()
        for ident in range(1, waiters + 1):
            scene.add(ident, "ms=%d@0" % work)
            scene.await_waiting(ident)
        time.sleep(QUIET)  # the last check has cost something too
        gate.release()
        if scene.await_records(waiters + 1, ROUND_LIMIT):
            scene.finish()
        return scene.records()


def handoff_rounds(bench, peers, work):
    """The records of each round by peer. The rounds take turns, so that noise affects all alike."""
    rounds = {peer.label: [] for peer in peers}
    for number in range(bench.options.rounds):
        progress("hand-off, commands of %d ms, round %d of %d" % (work, number + 1, bench.options.rounds))
        for index in round_order(len(peers), number):
            peer = peers[index]
            if ("handoff", peer.label) not in bench.failed:
                with excused(bench, peer, "handoff"):
                    rounds[peer.label].append(handoff_round(bench, peer, work))
    return rounds


def handoff_line(bench, peer, work, rounds, flock):
    """One line of the table, from the rounds of the peer and those of flock."""
    each = [gaps_of(records) for records in rounds]
    gaps = [gap for some, _ in each for gap in some]
    reference = [gap for records in flock for gap in gaps_of(records)[0]]
    p50, p95 = quantile(gaps, 0.5), quantile(gaps, 0.95)
    x50, x95 = p50 / quantile(reference, 0.5), p95 / quantile(reference, 0.95)
    single = [quantile(some, 0.5) / quantile(gaps_of(other)[0], 0.5) for (some, _), other in zip(each, flock) if some]
    orders = [inversions([ident for ident, _, _ in records[1:]]) for records in rounds]
    ran, due = sum(len(records) - 1 for records in rounds), len(rounds) * handoff_crowd(bench, work)
    budget = HANDOFF_WORK[work][1]["Redis" if "Redis" in peer.label else "file"]
    if work == min(HANDOFF_WORK):
        bench.results.setdefault("handoff", []).append((peer.label, 1e3 * p50, 1e3 * p95, peer.ours))
    return [peer.label, "%d ms" % work, "%.2f" % (1e3 * p50), "%.2f" % (1e3 * p95), "%.2f" % (1e3 * max(gaps)),
            "%.2f" % x50, "%.2f..%.2f" % (min(single), max(single))] + held(x50, budget, peer.ours) + [
                "%.2f" % x95] + held(x95, BUDGET_P95, peer.ours) + [
                    "%d" % sum(overlaps for _, overlaps in each), "%.0f %%" % (100 * statistics.mean(orders)),
                    "%d of %d" % (ran, due)]


def handoff(bench):
    lines = []
    for work in HANDOFF_WORK:
        peers = bench.peers if work == min(HANDOFF_WORK) else [
            peer for peer in bench.peers if peer.ours or peer.label == "flock"]
        rounds = handoff_rounds(bench, peers, work)
        flock = rounds["flock"]
        lines += [handoff_line(bench, peer, work, rounds[peer.label], flock) for peer in peers
                  if flock and any(len(records) > 2 for records in rounds[peer.label])]
    crowds = " and ".join("%d" % handoff_crowd(bench, work) for work in HANDOFF_WORK)
    return [Table("Hand-off with %s waiters, ms from the end of one command to the start of the next, %d rounds"
                  % (crowds, bench.options.rounds),
                  ["what", "command", "p50", "p95", "max", "p50 x flock", "rounds", "budget", "", "p95 x flock",
                   "budget", "", "overlaps", "out of order", "ran"], lines)]


# ---- calls for a hand-off ----

class Monitor:
    """The clients' requests to a server, one by one with their address, as MONITOR shows them."""

    def __init__(self, path):
        self.conn = socket.socket(socket.AF_UNIX)
        self.conn.settimeout(5)
        self.conn.connect(path)
        self.conn.sendall(b"MONITOR\r\n")
        self.conn.recv(64)

    def close(self):
        self.conn.close()

    def askers(self):
        """How many commands outside scripts came from each address since the start, except this program's."""
        mark = os.urandom(8).hex().encode()
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
            other.connect(self.conn.getpeername())
            other.sendall(b"PING %s\r\n" % mark)
            other.recv(64)
        said = bytearray()
        while said.find(mark, max(len(said) - (2 << 20), 0)) < 0:
            more = self.conn.recv(1 << 20)
            if not more:
                raise BenchError("MONITOR has ended")
            said += more
        found = re.findall(rb'^\+[\d.]+ \[\d+ (?!lua\])([^]]*)\] "([^"]+)"', said, re.M)
        return Counter(address.decode() for address, name in found if name.decode().lower() not in OUR_CALLS)


def address_of(pid):
    """The address of a process's TCP connection on loopback."""
    fds = "/proc/%d/fd" % pid
    inodes = {os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds)}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if "socket:[%s]" % fields[9] in inodes:
                return "127.0.0.1:%d" % int(fields[1].split(":")[1], 16)
    raise BenchError("the holder has no connection")


def resting(path, name):
    """The addresses of those that still wait: all but the present holder's."""
    listed = redis_ask(path, "CLIENT LIST") or ""
    holder = int(re.search(r"^pid (\d+)$", redis_ask(path, "HGET {dlock:%s}:meta record" % name), re.M).group(1))
    return set(re.findall(r"addr=(\S+)", listed)) - {address_of(holder)}


def count_calls(path):
    calls = all_calls(path)
    outside = {name: count for name, count in calls.items() if name.split("|")[0] in CLIENT_CALLS}
    ours = sum(count for name, count in calls.items() if name.split("|")[0] in OUR_CALLS)
    total = sum(outside.values())
    return Count(time.monotonic(), total, sum(calls.values()) - total - ours, reads_of_server(path), outside)


def between(old, new, nothing):
    """The requests between two counts; the server reads the requests that count, too."""
    made = {name: count - old.what.get(name, 0) for name, count in new.what.items() if count > old.what.get(name, 0)}
    reads = None if old.reads is None else new.reads - old.reads - nothing
    return Count(new.time - old.time, new.calls - old.calls, new.inside - old.inside, reads, made)


def cost_of_count(path):
    """How many reads of the server one count causes by itself."""
    first, second = count_calls(path), count_calls(path)
    return 0 if first.reads is None else second.reads - first.reads


def window(path, nothing, action):
    """The requests to the server while the action runs."""
    old = count_calls(path)
    action()
    return between(old, count_calls(path), nothing)


def pass_on(scene, released, reached):
    """From the release at one gate to the next gate."""
    released.release()
    if not reached.reached(GATE_LIMIT):
        scene.fail("%d hand-offs took more than %d s" % (HANDOFFS, GATE_LIMIT))
    time.sleep(QUIET)  # a waiter that was at the gate before sends requests at its end


def calls_scene(bench, peer, waiters):
    """Windows of a crowd whose size stays the same: at rest, hand-offs of commands of 0 ms, and of WORK_MS."""
    path, _ = bench.redis
    with scene_of(bench, peer) as scene:
        first = scene.hold()
        second, stop_at_second = scene.gate(HANDOFFS)
        third, stop_at_third = scene.gate(2 * HANDOFFS)
        scene.add_many(1, waiters + 2 * HANDOFFS, stop_at_second, stop_at_third, "ms=%d@%d" % (WORK_MS, HANDOFFS))
        time.sleep(CALLS_SETTLE)
        nothing = cost_of_count(path)
        rest = window(path, nothing, lambda: time.sleep(REST_WINDOW))
        found = []
        for work, released, reached in ((0, first, second), (WORK_MS, second, third)):
            with contextlib.closing(Monitor(path)) as monitor:
                made = window(path, nothing, lambda one=released, other=reached: pass_on(scene, one, other))
                at_rest = resting(path, scene.name)
                asked = sum(count for address, count in monitor.askers().items() if address not in at_rest)
                found.append((work, made, asked))
        scene.crowd.signal(scene.waiters, signal.SIGTERM)
        scene.crowd.reap(scene.waiters, ROUND_LIMIT)
        return rest, found


def named(count, share):
    """Calls by name, multiplied by a share. A subcommand's name has a bar in it, which would end the cell."""
    return ", ".join("%s %.2f" % (name.replace("|", " "), share * calls_made)
                     for name, calls_made in sorted(count.what.items()))


def calls_line(waiters, work, rest, made, asked):
    net = asked / HANDOFFS
    what = named(made, 1 / HANDOFFS)
    return net, ["{:,}".format(waiters), "%d ms" % work, "%.1f" % net, "%d" % BUDGET_CALLS, verdict(net, BUDGET_CALLS),
                 "%.1f" % (made.calls / HANDOFFS), "%.2f" % (rest.calls / rest.time),
                 "%.1f" % (made.inside / HANDOFFS), what]


def calls(bench):
    rows, series = [], {}
    for waiters in sorted({min(crowd, bench.options.many) for crowd in CALLS_CROWDS}):
        for peer in chosen(bench, "dlock, Redis on loopback TCP"):
            progress("calls for a hand-off, %d waiters" % waiters)
            with excused(bench, peer, "calls"):
                rest, found = calls_scene(bench, peer, waiters)
                for work, made, asked in found:
                    net, cells = calls_line(waiters, work, rest, made, asked)
                    rows.append(cells)
                    series.setdefault("commands of %d ms" % work, []).append((waiters, net))
    bench.results["calls"] = series
    return [Table("Redis calls for one hand-off, dlock on loopback TCP, over %d hand-offs" % HANDOFFS,
                  ["waiters", "command", "calls by those who have the lock", "budget", "", "all calls",
                   "at rest, calls a second", "commands in scripts", "all calls by name"], rows)]


# ---- idle waiters ----

def idle_scenes(bench, stack, peers):
    """A crowd of idle waiters for each of the peers, all at once."""
    scenes = []
    for peer in peers:
        with excused(bench, peer, "idle"):
            scene = stack.enter_context(scene_of(bench, peer))
            scene.hold()
            scene.add_many(1, bench.options.waiters)
            scenes.append(scene)
    return scenes


def server_of(bench, peer):
    """The socket of the server that a peer asks, None for files."""
    if "polling" in peer.label:
        return bench.other_redis[0]
    return bench.redis[0] if "Redis" in peer.label else None


def idle_line(bench, scene, seconds, used, asked):
    """One line: the processor time and the requests of a waiter."""
    count = len(scene.waiters)
    cells = [scene.peer.label, "%d" % count, "%.2f" % (sum(used) / 1e6 / count * 60 / seconds)]
    if asked is None:
        return cells + ["", "", "", ""]
    per = PER_SECONDS / asked.time / count
    what = named(asked, per)
    if scene.peer.ours and asked.reads is not None:
        return cells + ["%.2f" % (asked.reads * per)] + held(asked.reads * per, BUDGET_TRIPS, True) + [what]
    return cells + ["" if asked.reads is None else "%.2f" % (asked.reads * per), "", "", what]


def idle(bench):
    peers = chosen(bench, "flock", "dlock, file", "dlock --lock-file", "dlock, Redis on a Unix socket",
                   "redlock-style polling")
    with contextlib.ExitStack() as stack:
        progress("idle waiters")
        scenes = idle_scenes(bench, stack, peers)
        time.sleep(bench.options.settle)
        paths = {server_of(bench, scene.peer) for scene in scenes} - {None}
        nothing = {path: cost_of_count(path) for path in paths}
        begin = time.monotonic()
        old = {path: count_calls(path) for path in paths}
        before = [[cpu_ns(pid) or 0 for pid in scene.waiters] for scene in scenes]
        time.sleep(IDLE_WINDOW)
        used = [[(cpu_ns(pid) or was) - was for pid, was in zip(scene.waiters, cpu)]
                for scene, cpu in zip(scenes, before)]
        asked = {path: between(old[path], count_calls(path), nothing[path]) for path in paths}
        seconds = time.monotonic() - begin
        rows = [idle_line(bench, scene, seconds, cpu, asked.get(server_of(bench, scene.peer)))
                for scene, cpu in zip(scenes, used)]
    return [Table("Waiters at rest, %.0f s after they have come, for %.0f s" % (bench.options.settle, IDLE_WINDOW),
                  ["what", "waiters", "CPU, ms a minute", "round trips in %d s" % PER_SECONDS, "budget", "",
                   "commands in %d s" % PER_SECONDS], rows)]


# ---- many ----

def room_for(bench):
    """How many waiters this machine has room for, at most as many as requested."""
    rooms = [bench.options.many]
    if os.geteuid() != 0:
        rooms.append(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/pids.max", encoding="ascii") as limit:
            rooms.append(int(limit.read()))
    if bench.redis is not None:
        # CONFIG GET answers with two strings; the second is the number.
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as conn:
            conn.connect(bench.redis[0])
            conn.sendall(b"CONFIG GET maxclients\r\n")
            rooms += [int(number) for number in re.findall(rb"^(\d+)\r$", conn.recv(256), re.M)]
    spare = 2 * FIRST + 3 * HANDOFFS
    room = min([rooms[0]] + [limit - spare for limit in rooms[1:] if limit > 0])
    if room < bench.options.many:
        progress("room for %d waiters, not %d" % (room, bench.options.many))
    return max(room, 2 * FIRST)


def memory_of(pids):
    """Memory now, average and largest peak, proportional and private, in kB, of one process."""
    def mean(file, *fields):
        return statistics.mean(sum(proc_field(pid, file, field) or 0 for field in fields) for pid in pids)
    peaks = [proc_field(pid, "status", "VmHWM") or 0 for pid in pids]
    return (mean("status", "VmRSS"), statistics.mean(peaks), max(peaks), mean("smaps_rollup", "Pss"),
            mean("smaps_rollup", "Private_Clean", "Private_Dirty"))


def memory_of_server(path):
    found = re.search(r"^used_memory:(\d+)", redis_ask(path, "INFO memory") or "", re.M)
    return int(found.group(1)) / 1024 if found else 0


def many_scene(bench, peer, waiters):
    """Memory of so many, ms to the 1st and the FIRST-th of them; then all of them dead and a live one behind them."""
    path = server_of(bench, peer)
    server = memory_of_server(path) if path else 0
    with scene_of(bench, peer) as scene:
        first = scene.hold()
        second, stop = scene.gate(FIRST + 1)
        third, stop_again = scene.gate(FIRST + 2)
        scene.add_many(1, waiters, stop, stop_again)
        memory = memory_of(scene.waiters)
        server = (memory_of_server(path) - server) / waiters if path else None
        time.sleep(QUIET)
        first.release()
        if not second.reached(GATE_LIMIT):
            scene.fail("%d did not run in %d s" % (FIRST, GATE_LIMIT))
        records = scene.records()
        dead_ms = behind_the_dead(scene, waiters, second, third, [stop, stop_again])
        return memory, server, (records[1][1] - records[0][2]) / 1e6, (records[FIRST][2] - records[0][2]) / 1e6, dead_ms


def behind_the_dead(scene, waiters, gate, last, plan):
    """ms from a release to the start of the live waiter, with so many killed ones before it."""
    done = {ident for ident, _, _ in scene.records()} | {gate.ident()}
    scene.gone.update(pid for ident, pid in enumerate(scene.waiters, 1) if ident in done)
    scene.add_many(len(scene.waiters) + 1, waiters - len(scene.still_waiting()), *plan)
    doomed = scene.still_waiting()
    living = len(scene.waiters) + 1
    scene.add(living, *plan)
    scene.await_waiting(len(doomed) + 1)
    time.sleep(QUIET)
    scene.crowd.end(doomed)
    gate.release()
    if not last.reached(GATE_LIMIT):
        scene.fail("one behind %d dead did not run in %d s" % (len(doomed), GATE_LIMIT))
    last.release()
    if not scene.await_records(FIRST + 3, ROUND_LIMIT):
        scene.fail("one behind %d dead did not end" % len(doomed))
    (_, _, end), (ident, begin, _) = scene.records()[-2:]
    if ident != living:
        scene.fail("somebody else ran than who was left")
    return (begin - end) / 1e6


def many_rows(bench, peer, waiters):
    """A line for the table of memory and one for that of times."""
    memory, server, first, hundredth, dead = many_scene(bench, peer, waiters)
    return (
        [peer.label] + ["%.0f" % value for value in memory] + held(memory[2], BUDGET_RSS_KB, peer.ours)
        + ["" if server is None else "%.1f" % server],
        [peer.label, "%.1f" % first, "%.0f" % hundredth, "%.1f" % dead] + held(dead, BUDGET_DEAD_MS, peer.ours),
    )


def many(bench):
    rows = []
    waiters = room_for(bench)
    for peer in chosen(bench, "flock", "dlock, file", "dlock --lock-file", "dlock, Redis on a Unix socket"):
        progress("%d waiters: %s" % (waiters, peer.label))
        with excused(bench, peer, "many"):
            rows.append(many_rows(bench, peer, waiters))
    number = "{:,}".format(waiters)
    return [
        Table("Memory of %s waiters, kB of one of them" % number,
              ["what", "resident", "peak", "highest peak", "Pss", "private", "budget of a peak", "",
               "of the server for one"], [memory for memory, _ in rows]),
        Table("Times with %s waiters, ms" % number,
              ["what", "release to first start", "to %d having run" % FIRST,
               "to the one behind %s dead" % number, "budget", ""], [times for _, times in rows]),
    ]


# ---- fairness ----

def fair_scene(bench, peer):
    """Runs by contender, and whether all were made in time. All wait before the first of them may start."""
    takes = bench.options.takes
    with scene_of(bench, peer) as scene:
        gate = scene.hold()
        for ident in range(1, CONTENDERS + 1):
            scene.add_loop(ident, "stop=%d" % (takes + 1), "ms=%d@0" % FAIR_MS)
        scene.await_waiting(CONTENDERS)
        gate.release()
        scene.await_records(takes + 1, FAIR_LIMIT)
        records = scene.records()[1:takes + 1]
        if not records:
            scene.fail("none of %d contenders ran in %d s" % (CONTENDERS, FAIR_LIMIT))
        seconds = (records[-1][2] - records[0][1]) / 1e9
        counts = Counter({ident: 0 for ident in range(1, CONTENDERS + 1)})
        counts.update(ident for ident, _, _ in records)
        return counts, seconds


def fair_line(peer, counts, seconds):
    most, least = max(counts.values()), min(counts.values())
    ratio = most / least if least else float("inf")
    return [peer.label, "{:,}".format(sum(counts.values())), "%.1f" % seconds, "%d" % least,
            "%.0f" % statistics.median(counts.values()), "%d" % most,
            "%.2f" % ratio if least else "somebody had none"] + held(ratio, BUDGET_FAIR, peer.ours)


def fairness(bench):
    rows = []
    for peer in chosen(bench, "flock", "dlock, file", "dlock --lock-file", "dlock, Redis on a Unix socket",
                       "redlock-style polling"):
        progress("fairness: %s" % peer.label)
        with excused(bench, peer, "fairness"):
            rows.append(fair_line(peer, *fair_scene(bench, peer)))
    return [Table("Takes of %d contenders that come back for more, commands of %d ms, %s in all or what is done in %d s"
                  % (CONTENDERS, FAIR_MS, "{:,}".format(bench.options.takes), FAIR_LIMIT),
                  ["what", "takes", "s", "least", "median", "most", "most / least", "budget", ""], rows)]


RUN = {"handoff": handoff, "calls": calls, "idle": idle, "many": many, "fairness": fairness}


# ---- what is said ----

def absent_programs():
    """One line about what is not installed and therefore not in the tables."""
    needed = (("flock", "flock"), ("redis-server", "all rows of Redis"), ("redis-cli", "cron-style polling"),
              ("etcd", "etcdctl lock"), ("etcdctl", "etcdctl lock"), ("consul", "consul lock"))
    gone = ["%s (for %s)" % pair for pair in needed if shutil.which(pair[0]) is None]
    return "Not installed, and so left out: %s." % ", ".join(gone) if gone else ""


def all_peers(options, stack, work):
    """Every installed peer, the reference first. Starts their servers; Redis for dlock has its own."""
    redis = other = None
    peers = [flock_peer(work)] + dlock_file_peers(work, options.dlock)
    if shutil.which("redis-server"):
        redis, other = start_redis(stack, work), start_redis(stack, work, "redis-others")
        peers += dlock_redis_peers(work, options.dlock, redis)
    if options.only & {"handoff"}:
        if shutil.which("etcd") and shutil.which("etcdctl"):
            peers.append(etcd_peer(work, start_etcd(stack, work)))
        if shutil.which("consul"):
            peers.append(consul_peer(work, start_consul(stack, work)))
    if other is not None:
        peers.append(redlock_peer(work, other[0]))
    if other is not None and shutil.which("redis-cli"):
        peers.append(cronlock_peer(work, other[0]))
    return peers, redis, other


def summary(results):
    """The plot in words."""
    said = ["%s: p50 %.3g ms, p95 %.3g ms." % row[:3] for row in results.get("handoff", [])]
    for label, points in results.get("calls", {}).items():
        said.append("Redis calls for one hand-off, %s: %s." % (
            label, ", ".join("%.1f with %d waiters" % (net, waiters) for waiters, net in points)))
    return " ".join(said)


def measure(options, stack):
    """The tables of the requested sections, and the data of the plot."""
    load = os.getloadavg()[0]
    work = tempfile.mkdtemp(prefix="dlock-wait-")
    stack.callback(shutil.rmtree, work, ignore_errors=True)
    os.mkdir(os.path.join(work, "locks"), 0o700)
    peers, redis, other = all_peers(options, stack, work)
    crowd = Crowd(work)
    stack.callback(crowd.stop)
    # What is done last here is done first at the end: nothing must disturb it.
    stack.callback(ignore_signals)
    bench = Bench(options, crowd, work, peers, redis, other, {}, {})
    before, tables = processor_ticks(), []
    for name in SECTIONS:
        if name in options.only:
            tables += [table for table in RUN[name](bench) if table.rows]
    idle_ticks, stolen, total = (new - old for new, old in zip(processor_ticks(), before))
    head = "%s.\nLoad average before: %.2f. Processors: %d; during the run %.0f %% idle, %.0f %% taken by the host." % (
        version_line(), load, os.cpu_count(), 100 * idle_ticks / max(total, 1), 100 * stolen / max(total, 1))
    return (head + "\n" + absent_programs()).strip(), tables, bench


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def report(options, head, tables, bench):
    """Prints what was found, draws it, and names what could not be run."""
    tell(options, head, tables, ["Not measured: %s, %s." % failed for failed in bench.failed])
    if options.svg and (bench.results.get("handoff") or bench.results.get("calls")):
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(bench.results.get("handoff"), bench.results.get("calls"), BUDGET_CALLS,
                            summary(bench.results)))
    for (section, label), why in bench.failed.items():
        print("bench: %s, %s: %s" % (section, label, why), file=sys.stderr)
    return 1 if bench.failed else 0


def at_least(least):
    def number(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError("a whole number, at least %d" % least)
        return int(text)
    return number


def section_set(text):
    names = set(text.split(","))
    if not names <= set(SECTIONS):
        raise argparse.ArgumentTypeError("some of %s" % ",".join(SECTIONS))
    return names


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure what waiting for a lock costs.")
    parser.add_argument("--only", type=section_set, default=set(SECTIONS), metavar="SECTION,...",
                        help="some of %s (default: all)" % ",".join(SECTIONS))
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N", help="rounds of hand-offs (default: 5)")
    parser.add_argument("--waiters", type=at_least(2), default=50, metavar="N",
                        help="waiters of hand-offs and at rest (default: 50)")
    parser.add_argument("--many", type=at_least(2 * FIRST), default=1000, metavar="N",
                        help="waiters where there are many (default: 1000)")
    parser.add_argument("--takes", type=at_least(CONTENDERS), default=2000, metavar="N",
                        help="takes of the contenders in all (default: 2000)")
    parser.add_argument("--settle", type=at_least(0), default=30, metavar="SECONDS",
                        help="how long waiters at rest have waited before they are looked at (default: 30)")
    parser.add_argument("--svg", metavar="FILE", help="draw hand-offs and calls")
    parser.add_argument("--stamp", metavar="FILE", help="the command (default: tests/helpers/stamp of the build)")
    options = parse_options(parser)
    beside = os.path.join(os.path.dirname(os.path.dirname(options.dlock)), "tests/helpers/stamp")
    options.stamp = os.path.abspath(options.stamp or beside)
    must_run(parser, options.stamp)
    return options


def main():
    options = parse_arguments()
    if shutil.which("flock") is None:
        print("bench: flock is not installed", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    try:
        with contextlib.ExitStack() as stack:
            head, tables, bench = measure(options, stack)
        return report(options, head, tables, bench)
    except (BenchError, OSError) as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
