"""Runs hundreds of dlocks on one or more stages, in one thread, so that no signal goes to the pid of a reaped process.

What happens when is drawn from the seed; how the processes race each other is up to the machine.
"""

import collections
import contextlib
import fcntl
import glob
import heapq
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

import run_times
from nemesis import Deeds, Faults
from orphans import children, command_of
from plans import AROUND, KINDS, MORE_CONTENDERS, NOTHING, Contender
from surroundings import Surroundings

DRAIN_LIMIT, SURVIVOR_LIMIT, HEAL_LIMIT = 30.0, 8.0, 60.0
TICK = 0.02
# Long runs go on for this long after all faults, so that what the stores then know can be judged.
CALM = 1.0
# A wake-up that is late by this much counts (as in tests/helpers/stress_worker.c).
LATE = 0.003
# How long this program may overlook the end of a run before that is noted.
SLOW_TURN = 0.1
OUTAGE = "3s"


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Live:
    """A run of dlock that has not ended, or whose processes have not."""

    def __init__(self, number, contender, plan):
        self.number, self.contender, self.plan = number, contender, plan
        self.pid = self.command = None
        self.frozen = self.ended = False


class Campaign:
    now = staticmethod(now)

    def __init__(self, options, work, stages, stack):
        self.options, self.work, self.stages = options, work, stages
        self.newest = options.next_dlock if options.two_formats else options.dlock
        self.log_path = options.log or os.path.join(work, "log")
        self.log_fd = os.open(self.log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.read_to, self.unread = 0, b""
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("DLOCK_") and name not in ("NOTIFY_SOCKET", "XDG_CONFIG_HOME", "REDISCLI_AUTH")}
        self.env.update(HOME=work, DLOCK_RETRY_FOR=OUTAGE)
        self.surroundings = Surroundings(work, options.helpers)
        stack.callback(self.surroundings.close)
        # The servers of stages, which this thread must not reap.
        self.not_ours = set(children())
        self.rng = random.Random("%s/starts" % options.seed)
        self.events, self.order = [], 0
        self.starting = collections.deque()  # contenders whose next run is due
        # By number: runs that have not ended, and runs for which the log has no start yet.
        self.live, self.told = {}, {}
        self.by_pid, self.leftovers = {}, []
        # By pid: what to call with the status of a dlock that is no run.
        self.errands = {}
        self.quiet = {}  # (stage, lock): until then nobody else requests this lock
        self.number, self.calm, self.ending, self.reaped = 0, False, False, now()
        self.takes = {stage.name: 0 for stage in stages}
        self.deeds = Deeds(self)
        self.faults = [Faults(self, stage) for stage in stages] if options.plan == "takes" else []
        stack.callback(self.stop_all)

    def log(self, event, **fields):
        said = fields.pop("said", None)
        line = "%.6f %s%s%s\n" % (now(), event, "".join(" %s=%s" % item for item in fields.items()),
                                  "" if said is None else " said=" + said)
        os.write(self.log_fd, line.encode())

    def at(self, when, action, *arguments):
        self.order += 1
        heapq.heappush(self.events, (when, self.order, action, arguments))

    # -- runs --

    def alive_dir(self, stage, lock):
        path = os.path.join(self.work, "alive", stage.name, lock)
        os.makedirs(path, exist_ok=True)
        return path

    def is_played(self, stage):
        return self.takes[stage.name] >= self.options.takes and not any(
            faults.missing for faults in self.faults if faults.stage is stage)

    def spawn(self, contender):
        options, stage, lock = self.options, contender.stage, contender.lock
        if self.ending or (self.is_played(stage) and not self.calm):
            return
        if now() < (quiet := self.quiet.get((stage, lock), 0)):
            self.at(quiet, self.starting.append, contender)
            return
        plan = contender.plan()
        name = lock
        if options.plant and contender.rng.random() < 0.3:
            name = lock + "-planted"
        self.number += 1
        number = str(self.number)
        live = Live(number, contender, plan)
        command = [options.worker, self.alive_dir(stage, lock), self.log_path, number] + plan.words
        argv = plan.argv(self.dlock_of(plan), stage.arguments(), name, "run-" + number, command)
        env = dict(self.env, TORTURE_DLOCK=self.dlock_of(plan))
        if plan.deed.what in AROUND:
            around = self.surroundings.of(plan.deed)
            if around is None:
                plan.deed = NOTHING
            else:
                argv, env = around[0] + argv, dict(env, **around[1])
        self.log("spawn", run=number, lock=lock, name=name, backend=stage.name, **plan.fields(),
                 words=",".join(plan.words).replace("=", ":"))
        live.pid = os.posix_spawnp(argv[0], argv, env, setsigmask=[], file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, self.error_path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)])
        self.live[number] = self.by_pid[live.pid] = self.told[number] = live
        self.plan_deed(live, "spawn", now())

    def plan_deed(self, live, since, at):
        """Plans an action on a run, for a time after `since`, unless the action is already done."""
        deed = live.plan.deed
        if deed.since == since and deed.what not in AROUND | {"nothing"}:
            self.at(at + deed.after, self.deeds.do, live)

    def errand(self, argv, done, stdin=None, stdout=os.devnull):
        """Runs another program; `done` is called with its status. `stdin` is a descriptor, `stdout` the path of a file."""
        if not self.ending:
            streams = [(os.POSIX_SPAWN_OPEN, fd, path, os.O_RDWR | os.O_CREAT, 0o600)
                       for fd, path in enumerate((os.devnull, stdout, os.devnull))]
            if stdin is not None:
                streams[0] = (os.POSIX_SPAWN_DUP2, stdin, 0)
            self.errands[os.posix_spawnp(argv[0], argv, self.env, setsigmask=[], file_actions=streams)] = done

    def dlock_of(self, plan):
        return self.options.next_dlock if plan.newer else self.options.dlock

    def error_path(self, number):
        return os.path.join(self.work, "err", number)

    def reap(self):
        """Reaps everything that has ended; orphans of killed dlocks become children too, but the stages reap their servers."""
        for pid in children():
            if pid in self.not_ours and pid not in self.by_pid and pid not in self.errands:  # the pid was a server's
                continue
            with contextlib.suppress(ChildProcessError):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone != 0 and pid in self.errands:
                    self.errands.pop(pid)(os.waitstatus_to_exitcode(status))
                elif gone != 0 and pid in self.by_pid:
                    self.ended(self.by_pid.pop(pid), status)

    def ended(self, live, status):
        live.ended = True
        del self.live[live.number]
        with open(self.error_path(live.number), encoding="utf-8", errors="replace") as file:
            said = " / ".join(file.read().split("\n")).strip(" /")
        os.unlink(self.error_path(live.number))
        self.log("exit", run=live.number, status=os.waitstatus_to_exitcode(status), dlock=live.pid, said=said)
        self.leftovers.append(live)
        rng = live.contender.rng
        # In a convoy they arrive apart from each other, so that it is known who was first.
        pause = rng.uniform(0, 1.2) if live.contender.kind == "convoy" else \
            rng.uniform(0, 0.4) if live.contender.kind == "daily" else rng.choice((0, 0, 0.01, 0.1))
        # A run that finds the lock held must not come back at once again and again.
        self.at(now() + (pause if live.command is not None else pause + 0.03), self.starting.append, live.contender)

    def tidy(self):
        """Notes when the last process of a run was seen alive, once all have ended."""
        still = []
        for live in self.leftovers:
            path = os.path.join(self.alive_dir(live.contender.stage, live.contender.lock), live.number)
            try:
                with open(path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: workers use this check too
                    beat = file.read(8)
            except FileNotFoundError:
                continue  # it never started
            except BlockingIOError:
                still.append(live)
                continue
            self.log("gone", run=live.number, until="%.6f" % (struct.unpack("=q", beat)[0] / 1e9))
            os.unlink(path)
        self.leftovers = still

    def follow(self):
        """Reads from the log which commands have started, and when."""
        data = self.unread + os.pread(self.log_fd, 1 << 20, self.read_to)
        self.read_to += len(data) - len(self.unread)
        lines = data.split(b"\n")
        self.unread = lines.pop()
        for line in lines:
            words = line.split(b" said=")[0].split()
            if words[1] != b"start":
                continue
            fields = dict(word.split(b"=", 1) for word in words[2:])
            live = self.told.pop(fields[b"run"].decode(), None)
            if live is not None:
                self.takes[live.contender.stage.name] += 1
                live.command = int(fields[b"pid"])
                self.plan_deed(live, "start", float(words[0]))

    # -- the whole --

    def turn(self):
        wait = 0 if self.starting else min(self.events[0][0] - now(), TICK) if self.events else TICK
        if wait > 0:
            begin = now()
            late = now() - begin - wait if signal.sigtimedwait([signal.SIGCHLD], wait) is None else 0
            if late >= LATE:
                self.log("machine_late", by="%.6f" % late)
        self.reap()
        if now() - self.reaped >= SLOW_TURN:
            self.log("slow_turn", took="%.6f" % (now() - self.reaped))
        self.reaped = now()
        self.follow()
        self.tidy()
        due = now()  # new events wait for the next turn, because runs that have ended must be noticed soon
        while self.events and self.events[0][0] <= due:
            _, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
        if self.starting:  # one at a time: a start takes long on a busy machine, and actions must not wait for it
            self.spawn(self.starting.popleft())
        if not self.calm:
            for faults in self.faults:
                faults.look(self.takes[faults.stage.name])

    def until(self, end, condition):
        while now() < end and not condition():
            self.turn()
        return condition()

    def play(self):
        options = self.options
        os.mkdir(os.path.join(self.work, "err"))
        self.log("begin", seed=options.seed, tree=int(options.tree))
        begin = now()
        for stage in self.stages:
            self.log("stage", backend=stage.name, order=int(stage.in_order), progress=stage.progress)
            for i in range(options.locks):
                kind = KINDS[i % len(KINDS)] if options.plan == "takes" else None
                for number in range(2 + i % 2 + MORE_CONTENDERS.get(kind, 0)):
                    self.at(begin + self.rng.uniform(0, 0.5), self.starting.append,
                            Contender(stage, "lock%d" % i, number, kind, options))
        for faults in self.faults:
            faults.start()
        self.until(begin + options.seconds, lambda: all(map(self.is_played, self.stages)))
        self.calm = True
        for faults in self.faults:
            faults.finish()
        if not self.until(now() + HEAL_LIMIT, lambda: all(faults.healed.is_set() for faults in self.faults)):
            self.log("stuck", backend=self.stages[0].name, said="a fault does not end")
        if self.faults:
            self.until(now() + CALM, lambda: False)
        self.ending = True
        self.log("ending")
        self.drain()
        self.until(now() + SURVIVOR_LIMIT, lambda: not self.leftovers)
        self.look_for_rest()
        self.log("done")

    def drain(self):
        self.until(now() + DRAIN_LIMIT, lambda: not self.errands)  # they may freeze whole dlocks for seconds
        if not self.until(now() + DRAIN_LIMIT, lambda: not self.live and not self.errands):
            for live in list(self.live.values()):
                self.log("hung", run=live.number, said=where_is(live.pid))
                os.kill(live.pid, signal.SIGKILL)
            self.until(now() + SURVIVOR_LIMIT, lambda: not self.live)

    def look_at_memory(self, stage, lock):
        """What the lock remembers of its runs, once nobody holds it: a killed run is known when its lease has ended."""
        argv = [self.newest] + stage.looking() + ["--quiet"]
        subprocess.call(argv + ["--wait-until-free", "-w", "6", lock], env=self.env, stdin=subprocess.DEVNULL)
        said, past = (subprocess.run(argv + [what, "--json", lock], env=self.env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, check=False).stdout for what in ("--status", "--history"))
        with contextlib.suppress(ValueError, KeyError):
            told, past = json.loads(said), json.loads(past)
            last, success = told["last_run"] or {}, told["last_success"] or {}
            number = last.get("status") if last.get("status") is not None else last.get("signal")
            self.log("memory", backend=stage.name, lock=lock, last=last.get("pid", 0),
                     outcome=(last.get("outcome") or "none").replace(" ", "-"), status=-1 if number is None else number,
                     success=success.get("pid", 0), failures=told["failures_in_a_row"],
                     history=";".join(run_times.row(one, now()) for one in past["runs"]) or "none",
                     **run_times.fields(past, now()))

    def look_for_rest(self):
        for stage in self.stages:
            for i in range(self.options.locks):
                self.look_at_memory(stage, "lock%d" % i)
            # A killed holder's lock stays until its lease ends, and its file until the next holder replaces it.
            for i in range(self.options.locks):
                argv = [self.newest] + stage.arguments() + ["-w", "6"]
                for name in ["lock%d" % i] + ["lock%d-planted" % i] * self.options.plant:
                    status = subprocess.call(argv + [name, "--", "true"], env=self.env, stdin=subprocess.DEVNULL)
                    if status != 0:
                        self.log("left", backend=stage.name, what="lock:%s,which_gives_%d" % (name, status))
            try:
                self.until(now() + stage.stands_on, lambda: not stage.locks())
                for what in stage.locks():
                    self.log("left", backend=stage.name, what=what.replace(" ", "_"))
            except (OSError, RuntimeError) as error:
                self.log("stuck", backend=stage.name, said=repr(error))
        for live in self.leftovers:
            self.log("left", backend=live.contender.stage.name, what="process_of_run_" + live.number)
        end = now() + 2  # guards of --attach are about to end
        self.until(end, lambda: not set(children()) - self.not_ours)
        for pid in set(children()) - self.not_ours:
            self.log("left", backend=self.stages[0].name, what="process_%d:%s" % (pid, command_of(pid)))

    def stop_all(self):
        """Ends what an error left running: child processes, and theirs, which then become children of this process."""
        end = now() + 5
        while now() < end and (pids := set(children()) - self.not_ours):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def where_is(pid):
    """Where each thread of a process waits in the kernel, to find out why it hangs."""
    told = []
    for task in sorted(glob.glob("/proc/%d/task/*" % pid)):
        for name in ("wchan", "syscall", "stack"):
            with contextlib.suppress(OSError), open(os.path.join(task, name), encoding="ascii", errors="replace") as file:
                told.append("%s %s: %s" % (os.path.basename(task), name, " ".join(file.read().split())))
    return "; ".join(told)


def keep(path):
    """Puts the log where it outlives this program; returns the path."""
    kept = os.path.join(os.environ.get("TMPDIR", "/tmp"), "dlock-torture-%d.log" % os.getpid())
    shutil.copyfile(path, kept)
    return kept
