#!/usr/bin/env python3
"""Repeat the races at the end of a lease, and count what is not as promised.

    python3 tests/stress.py [OPTIONS] PATH-TO-DLOCK PATH-TO-STRESS-WORKER
    python3 tests/stress.py --check LOG

Each of many locks, in a Redis and in a directory of our own, has a few contenders that come back for
more. Their commands (tests/helpers/stress_worker.c) end about when their lease does, are deaf, stop
themselves, leave daemons; meanwhile dlocks are killed and frozen, locks are taken away and connections
are cut. The first mode writes a history to a log and then does what the second one does: it judges the
history. Exit status 1: something was not as promised.

A line of the log is TIME EVENT KEY=VALUE..., with the seconds of CLOCK_BOOTTIME. What happens when is
drawn from the seed, which is printed; how the processes race each other is up to the machine.
"""

import argparse
import bisect
import collections
import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from redis_client import RedisClient

# Of dlock: src/lease.c, src/watch.c.
DRIFT_LEAST, CHECK_INTERVAL = 0.002, 1.0
# How late a process may be because the machine is busy, in seconds, where that is not the subject.
SLACK = 0.3
# An overlap of commands this near to the end of a lease is put down to the machine where a worker was woken late
# in the same half second. (Wake-ups are what a busy machine does soonest; forks and deaths wait longer.)
LATE_NEAR, LATE_AROUND = 0.05, 0.5
# A command that is still there so long after its lease, with a dlock that was not frozen, was not stopped.
OVERRUN_MOST = 1.0
# How long two commands may be there at once under a lease too short to be held exactly.
SHORT_OVERLAP_MOST = 0.1
DRAIN_LIMIT, SURVIVOR_LIMIT = 40.0, 8.0
TICK = 0.02

DELETE_SCRIPT = "local v = redis.call('GET', KEYS[1]); redis.call('DEL', KEYS[1]); return v"


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---- the judge ----

Removal = collections.namedtuple("Removal", "before after")
Freeze = collections.namedtuple("Freeze", "begin end")


class Run:
    """What the log says of one run of dlock."""

    def __init__(self, number, spawned, fields):
        self.number = number
        self.spawned = spawned
        self.lock, self.name = fields["lock"], fields.get("name", fields["lock"])
        self.backend = fields["backend"]
        self.ttl, self.grace = float(fields["ttl"]) / 1000, float(fields["grace"]) / 1000
        self.leaves_daemon = fields.get("daemon") == "1"
        self.fence = self.start = self.until = None
        self.end = self.end_status = self.term = self.died = None
        self.killed = self.exit = self.status = None
        self.frozen_since = None
        self.freezes, self.removals, self.said = [], [], ""

    @property
    def drift(self):
        return min(max(self.ttl / 100, DRIFT_LEAST), 1.0)

    @property
    def last_deadline(self):
        """The lease is counted from before the take, and that was before the start."""
        return self.start + self.ttl - self.drift

    @property
    def ended_by_itself(self):
        return (self.end is not None or self.died is not None) and self.term is None

    def alive_at(self, stamp):
        self.until = max(self.until or 0, stamp)

    def frozen_during(self, begin, end):
        return any(freeze.begin <= end and freeze.end >= begin for freeze in self.freezes)


class Checker:
    """Reads a log and finds what was not as promised."""

    def __init__(self, strict_ttl=0.5):
        self.strict_ttl = strict_ttl
        self.runs = {}
        self.found = []      # pairs of runs of which one found the other alive
        self.wrong = []      # (backend, sentence)
        self.counts = collections.defaultdict(collections.Counter)
        self.most_overrun = collections.defaultdict(lambda: float("-inf"))
        self.tree = False
        self.begun = self.done = False
        self.first = self.last = None
        self.late = []       # (when, by how much) a worker was woken late
        self.slack = SLACK

    # -- reading --

    def read(self, path):
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    self.read_line(line)
                except (KeyError, ValueError, IndexError) as error:
                    self.wrong.append(("", "line %d of the log makes no sense (%r): %s" % (number, error, line.strip())))

    def read_line(self, line):
        head, _, said = line.rstrip("\n").partition(" said=")
        words = head.split()
        stamp, event = float(words[0]), words[1]
        fields = dict(word.split("=", 1) for word in words[2:])
        self.first = stamp if self.first is None else self.first
        self.last = stamp
        if event == "begin":
            self.begun, self.tree = True, fields.get("tree") == "1"
            return
        if event == "done":
            self.done = True
            return
        if event == "left":
            self.wrong.append((fields["backend"], "left behind: %s" % fields["what"]))
            return
        if event == "clients_killed":
            self.counts[fields["backend"]]["clients killed"] += int(fields["count"])
            return
        number = fields["run"]
        if event == "spawn":
            self.runs[number] = Run(number, stamp, fields)
        else:
            self.read_run(self.runs[number], stamp, event, fields, said)

    def read_run(self, run, stamp, event, fields, said):
        if event == "start":
            run.start, run.fence = stamp, int(fields["fence"])
            run.alive_at(stamp)
        elif event == "overlap":
            other = self.runs[fields["with"]]
            self.found.append((other, run))
            run.alive_at(stamp)
            other.alive_at(stamp)
        elif event in ("term", "stops", "daemon", "daemon_end"):
            run.term = stamp if event == "term" else run.term
            run.alive_at(stamp)
        elif event == "late":
            run.alive_at(stamp)
            self.late.append((stamp, float(fields["by"])))
        elif event in ("end", "die"):
            run.alive_at(stamp)
            if event == "die":
                run.died = stamp
            else:
                run.end, run.end_status = stamp, int(fields["status"])
        elif event == "kill":
            run.killed = stamp
        elif event == "freeze":
            run.frozen_since = stamp
        elif event == "thaw":
            run.freezes.append(Freeze(run.frozen_since, stamp))
        elif event == "removed":
            run.removals.append(Removal(float(fields["before"]), stamp))
        elif event == "exit":
            run.exit, run.status, run.said = stamp, int(fields["status"]), said
        elif event == "gone":
            run.alive_at(float(fields["until"]))
        elif event == "broken":
            self.wrong.append((run.backend, "the worker of run %s failed: %s" % (run.number, fields)))
        else:
            raise ValueError(event)

    # -- judging --

    def complain(self, run, text):
        seen = "start %s, end %s, until %s, exit %s" % tuple(
            "none" if at is None else "%+.3f" % (at - (run.start or run.spawned))
            for at in (run.start, run.end or run.died, run.until, run.exit))
        self.wrong.append((run.backend, "%s: run %s of lock %s (ttl %.3f, grace %.3f; %s; status %s): %s%s" % (
            "overlap" if text.startswith("overlap") else "wrong", run.number, run.lock, run.ttl, run.grace, seen,
            run.status, text, " [%s]" % run.said if run.said else "")))

    def judge(self):
        if not self.begun or not self.done:
            self.wrong.append(("", "the log is not complete"))
        self.late.sort()
        self.slack += 2 * max((by for _, by in self.late), default=0)
        starts = collections.defaultdict(list)
        for run in self.runs.values():
            if run.start is not None:
                starts[run.backend, run.lock].append(run)
            if run.frozen_since is not None and (not run.freezes or run.freezes[-1].begin != run.frozen_since):
                run.freezes.append(Freeze(run.frozen_since, self.last))
        for history in starts.values():
            history.sort(key=lambda run: run.start)
            self.judge_history(history)
        for run in self.runs.values():
            self.judge_exit(run)

    def judge_history(self, history):
        for run in history:
            run.earliest_take = run.spawned
        pairs = {(id(first), id(second)): (first, second) for first, second in self.found if first.lock == history[0].lock
                 and first.backend == history[0].backend}
        for first, second in list(pairs.values()):
            if second.start < first.start:  # both looked, or the later one was quicker
                del pairs[id(first), id(second)]
                pairs[id(second), id(first)] = (second, first)
        living = []
        for run in history:
            living = [other for other in living if other.until > run.start]
            pairs.update({(id(other), id(run)): (other, run) for other in living})
            living.append(run)
        for first, second in pairs.values():
            self.judge_pair(first, second)
        at_once = {run for pair in pairs.values() for run in pair}
        for before, run in zip(history, history[1:]):
            disturbed = before.removals or before.freezes or run.freezes or before.killed or before.leaves_daemon or \
                before in at_once or run in at_once
            if not disturbed:
                run.earliest_take = max(run.earliest_take, before.until - self.slack)
                if before.name == run.name and run.fence <= before.fence:
                    self.complain(run, "the fence %d does not rise above %d of run %s" % (run.fence, before.fence,
                                                                                          before.number))
            if before.status == 124 or before.killed is not None:
                self.counts[run.backend]["hand-overs after a lease's end"] += 1

    def judge_pair(self, first, second):
        """`first` was there when `second` started."""
        last = min(first.until, second.until)  # both are known to be alive at this time
        reason = self.excuse(first, second, last)
        if reason is not None:
            self.counts[first.backend]["excused: " + reason] += 1
        elif self.machine_was_late(first, second, last):
            self.counts[first.backend]["late overlaps"] += 1
        elif first.ttl < self.strict_ttl and last - first.last_deadline <= SHORT_OVERLAP_MOST and second.start >= \
                first.last_deadline - SHORT_OVERLAP_MOST:
            self.counts[first.backend]["short overlaps"] += 1
        else:
            self.counts[first.backend]["overlaps"] += 1
            self.complain(first, "overlap of %.1f ms or more: run %s started %+.1f ms from the end of the lease at the latest"
                          % (1000 * max(last - second.start, 0), second.number,
                             1000 * (second.start - first.last_deadline)))

    def machine_was_late(self, first, second, last):
        """Whether this is at the end of the lease, and others were woken late at that time as well."""
        if second.start < first.last_deadline - LATE_NEAR:
            return False
        # Those that were woken in that time, and those that should have been but were not before its end.
        where = bisect.bisect_left(self.late, (first.last_deadline - LATE_AROUND, 0))
        return any(stamp - by <= last + LATE_AROUND for stamp, by in self.late[where:])

    def excuse(self, first, second, last):
        """Why two were there at once although all is as promised, or None."""
        # What a killed dlock, or a command that has ended in time, leaves behind is nobody's any more.
        if first.leaves_daemon and not self.tree and (first.killed is not None or first.ended_by_itself):
            return "a daemon that outlived its dlock or command"
        # The kernel releases a file lock before it tells the children of a killed process.
        if first.backend == "file" and first.killed is not None and last <= first.killed + self.slack:
            return "killed dlock, its command just dying"
        # A frozen dlock can stop nobody, and the Redis does not wait for it.
        if first.backend == "redis":
            for freeze in first.freezes:
                if freeze.begin <= last <= freeze.end + self.slack and freeze.end >= first.start + first.ttl - first.grace - self.slack:
                    return "frozen dlock"
            if second.frozen_during(second.start - self.slack, second.start):
                return "frozen dlock, between its take and its start"
        # Of a lock that was taken away dlock learns a bit later.
        for run in (first, second):
            notice = CHECK_INTERVAL if run.backend == "redis" else 0
            for removal in run.removals:
                until = removal.after + notice + run.grace + self.slack
                for freeze in run.freezes:
                    if freeze.end >= removal.before:
                        until = max(until, freeze.end + notice + run.grace + self.slack)
                if removal.before <= last <= until:
                    return "lock taken away"
        return None

    def judge_exit(self, run):
        counts = self.counts[run.backend]
        counts["runs"] += 1
        if run.start is not None:
            counts["takes"] += 1
        for what, is_so in (("stops (124)", run.status == 124), ("dlocks killed", run.killed is not None),
                            ("dlocks frozen", bool(run.freezes)), ("locks taken away", bool(run.removals))):
            counts[what] += is_so
        if run.exit is None:
            self.complain(run, "dlock did not end")
            return
        if run.killed is not None and run.status == -signal.SIGKILL:
            return
        problem = self.exit_problem(run)
        if problem is not None:
            self.complain(run, problem)
        if run.start is None or run.freezes or (run.leaves_daemon and not self.tree and run.ended_by_itself):
            return
        overrun = run.until - run.last_deadline
        self.most_overrun[run.backend] = max(self.most_overrun[run.backend], overrun)
        if overrun > OVERRUN_MOST:
            self.complain(run, "the command ran on for %.3f s after its lease" % overrun)

    def exit_problem(self, run):
        """What is untrue about an exit status, or None."""
        if run.start is None:
            # Killed before it could tell that it had started.
            if run.status == 124 and (run.freezes or run.exit >= run.spawned + run.ttl - run.drift - run.grace):
                return None
            return "dlock ended without having run anything"
        removed = [removal for removal in run.removals if removal.before >= run.start]
        ended = run.end if run.end is not None else run.died
        if run.status == 124:
            stop = run.earliest_take + run.ttl - run.drift - run.grace
            return None if run.removals or run.exit >= stop else \
                "124, but the lease had %.3f s to go before any stop was due" % (stop - run.exit)
        if run.term is not None:
            return "the command was told to stop, but this is not 124"
        if ended is None:
            return "the command was stopped, but this is not 124"
        if ended > run.last_deadline:
            return "the command ended %.3f s after its lease, but this is not 124" % (ended - run.last_deadline)
        if any(removal.after < ended for removal in removed):
            return "the lock was lost before the command ended, but this is not 124"
        wanted = run.end_status if run.end is not None else 128 + signal.SIGKILL
        return None if run.status == wanted else "the command's own status was %d" % wanted

    # -- telling --

    def report(self, complaints_most=40):
        for backend, text in self.wrong[:complaints_most]:
            print("%s%s" % (backend + ": " if backend else "", text))
        if len(self.wrong) > complaints_most:
            print("... and %d more" % (len(self.wrong) - complaints_most))
        for backend in sorted(self.counts):
            counts = self.counts[backend]
            print("%s: %d takes, %d hand-overs after a lease's end, %d stops (124), %d overlaps, %d wrong" % (
                backend, counts["takes"], counts["hand-overs after a lease's end"], counts["stops (124)"],
                counts["overlaps"], sum(where == backend for where, _ in self.wrong)))
            print("  %d runs of dlock; killed: %d, frozen: %d; locks taken away: %d; connections cut: %d" % (
                counts["runs"], counts["dlocks killed"], counts["dlocks frozen"], counts["locks taken away"],
                counts["clients killed"]))
            print("  latest life of a command after its deadline: %.1f ms; overlaps of leases below %d ms: %d; "
                  "while the machine was late: %d" % (1000 * self.most_overrun[backend], 1000 * self.strict_ttl,
                                                      counts["short overlaps"], counts["late overlaps"]))
            for what in sorted(counts):
                if what.startswith("excused: "):
                    print("  at once by design: %d (%s)" % (counts[what], what[9:]))
        if self.late:
            print("the machine woke a worker 3 ms late or more: %d times, at most %.0f ms" % (
                len(self.late), 1000 * max(by for _, by in self.late)))
        if not any(counts["takes"] for counts in self.counts.values()):
            self.wrong.append(("", "nothing was ever taken"))
            print("nothing was ever taken")
        return not self.wrong


def check(path, strict_ttl):
    checker = Checker(strict_ttl)
    checker.read(path)
    checker.judge()
    return checker.report()


# ---- the stores ----

class Redis:
    """A redis-server of our own on a Unix socket, and a client for the little that is asked here."""

    name = "redis"

    def __init__(self, work, stack):
        self.path = os.path.join(work, "redis.sock")
        self.server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no",
             "--dir", work, "--logfile", os.path.join(work, "redis.log"), "--maxclients", "2000"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        stack.callback(self.stop)
        self.client = RedisClient(self.path, 20)
        stack.callback(self.client.close)
        self.arguments = ["-r", "unix://" + self.path]

    def stop(self):
        self.server.kill()
        self.server.wait()

    def ask(self, *words):
        return self.client.ask(*words)

    def remove(self, lock):
        """Deletes the lock; returns the token of whose it was."""
        return self.ask("EVAL", DELETE_SCRIPT, 1, "dlock:" + lock)

    def cut(self, rng):
        """Cuts a connection, or now and then all of them. Returns how many."""
        own = self.ask("CLIENT", "ID")
        ids = [fields["id"] for fields in (dict(word.split("=", 1) for word in line.split() if "=" in word)
                                           for line in self.ask("CLIENT", "LIST").splitlines())]
        ids = [one for one in ids if one != str(own)]
        if ids and rng.random() > 0.05:
            ids = [rng.choice(ids)]
        count = 0
        for one in ids:
            with contextlib.suppress(RuntimeError):  # gone by itself
                self.ask("CLIENT", "KILL", "ID", one)
                count += 1
        return count

    def rest(self):
        """What is left; meta outlives the locks on purpose."""
        return [key for key in self.ask("KEYS", "*") if not key.endswith((":meta", ":counts", ":queue", ":claim"))]


class Files:
    """A lock directory of our own."""

    name = "file"

    def __init__(self, work, _stack):
        self.path = os.path.join(work, "locks")
        self.taken = os.path.join(work, "taken")
        self.arguments = ["--backend=file", "--lock-dir=" + self.path]

    def remove(self, lock):
        # Moved away first, so that the record read is of the file that was removed.
        try:
            os.rename(os.path.join(self.path, "dlock:%s.lock" % lock), self.taken)
        except FileNotFoundError:
            return None
        with open(self.taken, encoding="utf-8") as file:
            text = file.read()
        os.unlink(self.taken)
        for line in text.splitlines():
            for word in line.replace("=", " ").split():
                if word.startswith("run-"):
                    return word
        return None

    def rest(self):
        return [name for name in os.listdir(self.path) if name.endswith(".lock")] if os.path.isdir(self.path) else []


# ---- what the contenders do ----

class Contender:
    """One of those who want a lock, over and over."""

    def __init__(self, store, lock, number, options):
        self.store, self.lock, self.options = store, lock, options
        self.rng = random.Random("%s/%s/%s/%d" % (options.seed, store.name, lock, number))

    def plan(self):
        """Draws TTL, grace, words for the worker, and what is done to dlock: (what, from, seconds after it)."""
        rng = self.rng
        ttl = rng.choice([ms for ms in (100, 200, 300, 500, 500, 700, 1000, 1000, 1500)
                          if self.options.ttl_least <= ms <= self.options.ttl_most])
        grace = rng.choice([ttl // 10, ttl // 10, ttl // 4, 0])
        deadline = ttl - max(ttl / 100, 2)
        kind = rng.choices(("quick", "in time", "at the stop", "at the deadline", "too long", "deaf", "stopped", "daemon",
                            "hydra", "dies"), (15, 8, 14, 18, 8, 14, 7, 8, 5, 3))[0]
        status = rng.choice((0, 0, 1, 7, 42))
        long = ttl + 700
        words, daemon = {
            "quick": (["ms=%.1f" % rng.uniform(0, 5)], False),
            "in time": (["ms=%.1f" % (ttl * rng.uniform(0.1, 0.6))], False),
            "at the stop": (["ms=%.2f" % max(deadline - grace + rng.uniform(-15, 10), 0)], False),
            "at the deadline": (["ms=%.2f" % (deadline + rng.uniform(-12, 8)), "deaf"], False),
            "too long": (["ms=%d" % long], False),
            "deaf": (["ms=%d" % long, "deaf"], False),
            "stopped": (["ms=%d" % long, "stop=%.1f" % (ttl * rng.uniform(0, 0.95))] + rng.choice(([], ["deaf"])), False),
            "daemon": (["ms=%d" % long, "daemon=%d" % long] + rng.choice(([], ["deaf"])), True),
            "hydra": (["ms=%d" % long, "hydra=%d" % long], True),
            "dies": (["ms=%.1f" % (ttl * rng.uniform(0, 0.9)), "die"], False),
        }[kind]
        if self.options.tree and kind in ("quick", "in time", "dies") and rng.random() < 0.3:
            words, daemon = words + ["daemon=%.1f" % (ttl * rng.uniform(0.1, 1.1))], True
        what = rng.choices(("nothing", "kill", "freeze", "blink", "remove"), (76, 6, 6, 6, 6))[0]
        if rng.random() < 0.1:  # most probably while it waits
            chaos = (what, "spawn", rng.uniform(0, ttl) / 1000)
        elif rng.random() < 0.5:
            chaos = (what, "start", rng.uniform(0, ttl) / 1000)
        else:
            chaos = (what, "start", max(deadline - rng.choice((0, grace)) + rng.uniform(-10, 10), 0) / 1000)
        return ttl, grace, words + ["exit=%d" % status], daemon, chaos


class Live:
    """A run of dlock that has not ended, or whose processes have not."""

    def __init__(self, number, contender, chaos, ttl):
        self.number, self.contender, self.chaos, self.ttl = number, contender, chaos, ttl
        self.pid = None
        self.frozen = False


class Stress:
    """Runs it all in one thread, so that no pid is signalled once it is reaped."""

    def __init__(self, options, work, stack):
        self.options, self.work = options, work
        self.log_path = options.log or os.path.join(work, "log")
        self.log_fd = os.open(self.log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.read_to = 0
        self.unread = b""
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("DLOCK_") and name not in ("NOTIFY_SOCKET", "XDG_CONFIG_HOME", "REDISCLI_AUTH")}
        self.env["HOME"] = work
        self.rng = random.Random("%s/chaos" % options.seed)
        self.events, self.order = [], 0
        self.live, self.by_pid, self.leftovers = {}, {}, []
        self.number = 0
        self.ending = False
        known = {"redis": Redis, "file": Files}
        self.stores = [known[name](work, stack) for name in options.backend.split(",")]
        stack.callback(self.stop_all)

    def log(self, event, **fields):
        stamp = now()
        line = "%.6f %s%s\n" % (stamp, event, "".join(" %s=%s" % item for item in fields.items()))
        os.write(self.log_fd, line.encode())
        return stamp

    def at(self, when, action, *arguments):
        self.order += 1
        heapq.heappush(self.events, (when, self.order, action, arguments))

    # -- runs --

    def alive_dir(self, store, lock):
        path = os.path.join(self.work, "alive", store.name, lock)
        os.makedirs(path, exist_ok=True)
        return path

    def spawn(self, contender):
        if self.ending:
            return
        options, store, lock = self.options, contender.store, contender.lock
        ttl, grace, words, daemon, chaos = contender.plan()
        name = lock
        if options.plant and contender.rng.random() < 0.3:
            name = lock + "-planted"
        self.number += 1
        number = str(self.number)
        run = Live(number, contender, chaos, ttl)
        argv = [options.dlock] + store.arguments + ["-t", "%dms" % ttl, "--grace=%dms" % grace, "--owner=run-" + number]
        argv += ["--tree"] * options.tree + [name, "--", options.worker, self.alive_dir(store, lock), self.log_path, number]
        self.log("spawn", run=number, lock=lock, name=name, backend=store.name, ttl=ttl, grace=grace, daemon=int(daemon),
                 words=",".join(words).replace("=", ":"), chaos="%s:%s:%.3f" % chaos)
        run.pid = os.posix_spawn(argv[0], argv + words, self.env, setsigmask=[], file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, self.error_path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)])
        self.live[number] = self.by_pid[run.pid] = run
        if chaos[1] == "spawn":
            self.at(now() + chaos[2], self.disturb, run)

    def error_path(self, number):
        return os.path.join(self.work, "err", number)

    def reap(self):
        """Of all that has ended; orphans of killed dlocks come to us too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self.by_pid.pop(pid, None)
            if run is None:
                continue
            del self.live[run.number]
            with open(self.error_path(run.number), encoding="utf-8", errors="replace") as file:
                said = " / ".join(file.read().split("\n")).strip(" /")
            os.unlink(self.error_path(run.number))
            self.log("exit", run=run.number, status=os.waitstatus_to_exitcode(status), said=said)
            self.leftovers.append(run)
            pause = run.contender.rng.choice((0, 0, 0.01, 0.1))
            self.at(now() + pause, self.spawn, run.contender)

    def tidy(self):
        """Notes when the last process of a run was seen alive, once all are gone."""
        still = []
        for run in self.leftovers:
            path = os.path.join(self.alive_dir(run.contender.store, run.contender.lock), run.number)
            try:
                with open(path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: workers ask so too
                    beat = file.read(8)
            except FileNotFoundError:
                continue  # never started
            except BlockingIOError:
                still.append(run)
                continue
            self.log("gone", run=run.number, until="%.6f" % (struct.unpack("=q", beat)[0] / 1e9))
            os.unlink(path)
        self.leftovers = still

    def follow(self):
        """Reads in the log which commands have started, and when."""
        data = self.unread + os.pread(self.log_fd, 1 << 20, self.read_to)
        self.read_to += len(data) - len(self.unread)
        lines = data.split(b"\n")
        self.unread = lines.pop()
        for line in lines:
            words = line.split()
            if words[1] != b"start":
                continue
            run = self.live.get(dict(word.split(b"=", 1) for word in words[2:])[b"run"].decode())
            if run is not None and run.chaos[1] == "start":
                self.at(float(words[0]) + run.chaos[2], self.disturb, run)

    # -- what is done to them --

    def disturb(self, run):
        what, store, lock = run.chaos[0], run.contender.store, run.contender.lock
        if run.number not in self.live or what == "nothing":
            return
        if what == "kill":
            self.log("kill", run=run.number)
            os.kill(run.pid, signal.SIGKILL)
        elif what in ("freeze", "blink"):
            self.log("freeze", run=run.number)
            os.kill(run.pid, signal.SIGSTOP)
            run.frozen = True
            length = run.ttl / 1000 + 0.2 if what == "freeze" else run.contender.rng.uniform(0.01, 0.15)
            self.at(now() + length, self.thaw, run)
        elif what == "remove":
            before = now()
            token = store.remove(lock)
            if token is not None and token.startswith("run-"):
                self.log("removed", run=token[4:], before="%.6f" % before)

    def thaw(self, run):
        if run.frozen and run.number in self.live:
            os.kill(run.pid, signal.SIGCONT)
            self.log("thaw", run=run.number)
        run.frozen = False

    def cut(self, store):
        count = store.cut(self.rng)
        if count:
            self.log("clients_killed", backend=store.name, count=count)
        if not self.ending:
            self.at(now() + self.rng.uniform(0.02, 0.3), self.cut, store)

    # -- the whole --

    def turn(self):
        wait = min(self.events[0][0] - now(), TICK) if self.events else TICK
        if wait > 0:
            signal.sigtimedwait([signal.SIGCHLD], wait)
        self.reap()
        self.follow()
        self.tidy()
        while self.events and self.events[0][0] <= now():
            _, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)

    def until(self, end, condition):
        while now() < end and not condition():
            self.turn()
        return condition()

    def play(self):
        options = self.options
        os.mkdir(os.path.join(self.work, "err"))
        self.log("begin", seed=options.seed, tree=int(options.tree))
        begin = now()
        for store in self.stores:
            for i in range(options.locks):
                for number in range(2 + i % 2):
                    self.at(begin + self.rng.uniform(0, 0.5), self.spawn,
                            Contender(store, "lock%d" % i, number, options))
            if isinstance(store, Redis):
                self.at(begin + 0.5, self.cut, store)
        self.until(begin + options.seconds, lambda: False)
        self.ending = True
        if not self.until(now() + DRAIN_LIMIT, lambda: not self.live):
            print("not ended in %d s: runs %s" % (DRAIN_LIMIT, ", ".join(self.live)))
        self.until(now() + SURVIVOR_LIMIT, lambda: not self.leftovers)
        self.look_for_rest()
        self.log("done")

    def look_for_rest(self):
        for store in self.stores:
            # Of a killed holder the lock is left until its lease ends, and its file until the next one takes it over.
            for i in range(self.options.locks):
                argv = [self.options.dlock] + store.arguments + ["-w", "5"]
                for name in ["lock%d" % i] + ["lock%d-planted" % i] * self.options.plant:
                    status = subprocess.call(argv + [name, "--", "true"], env=self.env, stdin=subprocess.DEVNULL)
                    if status != 0:
                        self.log("left", backend=store.name, what="lock:%s,which_gives_%d" % (name, status))
            for what in store.rest():
                self.log("left", backend=store.name, what=what.replace(" ", "_"))
        for run in self.leftovers:
            self.log("left", backend=run.contender.store.name, what="process_of_run_" + run.number)
        for pid in children():
            if all(not isinstance(store, Redis) or pid != store.server.pid for store in self.stores):
                self.log("left", backend=self.stores[0].name, what="process_%d" % pid)

    def stop_all(self):
        """Ends what an error left running: our children, and theirs, which then come to us."""
        end = now() + 5
        servers = [store.server.pid for store in self.stores if isinstance(store, Redis)]
        while now() < end:
            pids = [pid for pid in children() if pid not in servers]
            if not pids:
                return
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def children():
    with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def become_subreaper():
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def on_terminate(_number, _frame):
    raise SystemExit(1)


def stress(options):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    become_subreaper()
    print("seed %s, %g s, %d locks on each backend, leases of %d to %d ms" % (
        options.seed, options.seconds, options.locks, options.ttl_least, options.ttl_most), flush=True)
    with contextlib.ExitStack() as stack:
        work = tempfile.mkdtemp(prefix="dlock-stress-")
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        play = Stress(options, work, stack)
        play.play()
        good = check(play.log_path, options.strict_ttl / 1000)
        if not good and options.log is None:
            descriptor, kept = tempfile.mkstemp(prefix="dlock-stress-", suffix=".log")
            os.close(descriptor)
            shutil.copyfile(play.log_path, kept)
            print("the history is kept in %s" % kept)
    return good


def main():
    parser = argparse.ArgumentParser(description="Repeat the races at the end of a lease, and count what goes wrong.")
    parser.add_argument("--check", metavar="LOG", help="only judge the history in LOG")
    parser.add_argument("--seconds", type=float, default=120, metavar="N", help="how long (default: 120)")
    parser.add_argument("--locks", type=int, default=24, metavar="N", help="locks on each backend (default: 24)")
    parser.add_argument("--seed", default="", metavar="TEXT", help="default: drawn, and printed")
    parser.add_argument("--backend", default="redis,file", metavar="LIST", help="default: redis,file")
    parser.add_argument("--ttl-least", type=int, default=100, metavar="MS", help="shortest lease (default: 100)")
    parser.add_argument("--ttl-most", type=int, default=1500, metavar="MS", help="longest lease (default: 1500)")
    parser.add_argument("--strict-ttl", type=int, default=500, metavar="MS",
                        help="from this TTL on each overlap counts; below it one of a few ms at the lease's end is only "
                        "told of (default: 500)")
    parser.add_argument("--tree", action="store_true", help="run dlock with --tree, and want what that promises")
    parser.add_argument("--plant", action="store_true", help="have a part of the takes go past the lock: must be found")
    parser.add_argument("--log", metavar="FILE", help="keep the history here")
    parser.add_argument("dlock", nargs="?", metavar="PATH-TO-DLOCK")
    parser.add_argument("worker", nargs="?", metavar="PATH-TO-STRESS-WORKER")
    options = parser.parse_args()
    if options.check is not None:
        return 0 if check(options.check, options.strict_ttl / 1000) else 1
    if options.worker is None:
        parser.error("the paths of dlock and of the worker are missing")
    options.dlock, options.worker = os.path.abspath(options.dlock), os.path.abspath(options.worker)
    options.log = options.log and os.path.abspath(options.log)
    options.seed = options.seed or str(random.SystemRandom().randrange(10 ** 6))
    return 0 if stress(options) else 1


if __name__ == "__main__":
    sys.exit(main())
