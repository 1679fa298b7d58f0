"""What is done to the runs of dlock (Deeds), and to the stages (Faults).

A deed belongs to the plan of its run. Faults follow a schedule that is drawn from the seed alone: at which take which
one begins, for how long, and the seed that it does its work by. Servers are slow to come and to go, so a thread of its
own does that; what it does is logged before it begins and after it has ended.
"""

import contextlib
import json
import os
import queue
import random
import resource
import signal
import sys
import threading

import run_times
from orphans import family
from plans import GROUP_SIZES

# The gap between the starts of two faults, in runs of a stage.
BETWEEN_FAULTS = (60, 140)
# This many in a row, then quiet: order and progress are judged where there was no fault for a while.
ROW, QUIET = 12, 1200
# Longer than a free lock may wait for a waiter that does not come (order.py).
FROZEN_LONG = 8.0
# A group of waiters is frozen for one of these times, in seconds; at the head of the queue with this probability.
GROUP_FROZEN = (1.0, 4.0, 12.0)
AT_THE_HEAD = 0.7
# With this probability nobody requests the lock meanwhile: a newcomer checks, and may call live waiters.
QUIET_LOCK = 0.5
# How often a stage is asked to heal.
HEAL_TRIES = 5
# The duration of a flood of signals.
FLOOD = (1.0, 2.0)
QUEUED_MOST = 1000
# A process of its own sends them, and its input is a pidfd: a later process with the same pid is out of its reach.
FLOODER = """import signal, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    signal.pidfd_send_signal(0, signal.SIGRTMIN)"""
# The value of Redis' key for a lock that several hold.
SHARED = "dlock:shared"


def faults_of(stage, options):
    return [fault for fault in stage.faults() if not options.only or word(fault.name) in options.only]


def schedule(stage, options):
    """An endless list of (runs since the one before, fault, seconds, seed), drawn as it is read."""
    rng = random.Random("%s/faults/%s" % (options.seed, stage.name))
    faults = faults_of(stage, options)
    drawn, pending = 0, []
    while faults:
        if not pending:  # all of them once, before any comes again
            pending = rng.sample(faults, len(faults))
        takes = (rng.randint(*BETWEEN_FAULTS) + QUIET * (drawn % ROW == ROW - 1)) * options.pace // 100
        drawn += 1
        yield takes, pending.pop(), rng.choice((0.0, 0.05, 0.2, 0.6, 1.5)), rng.random()


def word(name):
    """The name of a fault as it is in the log and on the command line."""
    return name.replace(" ", "-")


class Faults(threading.Thread):
    """Plays the schedule of one stage."""

    def __init__(self, campaign, stage):
        super().__init__(daemon=True)
        self.campaign, self.stage = campaign, stage
        self.schedule = schedule(stage, campaign.options)
        self.next = next(self.schedule, None)
        self.orders = queue.SimpleQueue()
        self.busy = threading.Event()
        self.over, self.healed = threading.Event(), threading.Event()
        self.since = self.takes = 0
        self.unhealed = []
        # Faults requested by name that have not been played yet.
        self.missing = {fault.name for fault in faults_of(stage, campaign.options)} if campaign.options.only else set()

    def look(self, takes):
        """Called by the campaign's thread: starts what is due."""
        self.takes = takes
        if self.next is not None and not self.busy.is_set() and takes >= self.since + self.next[0]:
            self.busy.set()
            self.orders.put(self.next)
            self.next = next(self.schedule)

    def finish(self):
        """Ends active faults, and heals. The thread stays, because servers that it has started are its children."""
        self.over.set()
        self.orders.put(None)

    def run(self):
        while (order := self.orders.get()) is not None:
            self.play(*order)
            self.since = self.takes
            self.busy.clear()
        self.heal()
        self.healed.set()
        threading.Event().wait()

    def play(self, _takes, fault, seconds, seed):
        stage, log = self.stage, self.campaign.log
        deafens = fault.name in getattr(stage, "deafens", ())  # the store is up all the time
        log("fault_begin", backend=stage.name, fault=word(fault.name), may_lose=int(fault.may_lose),
            may_give=",".join(str(number) for number in sorted(
                (set() if deafens else {69}) | set(stage.may_give.get(fault.name, ())))),
            forgets=int(fault.name in getattr(stage, "forgets", ())), back=stage.sets_back.get(fault.name, 0),
            deafens=int(deafens),
            keeps_fences=int(stage.fence_survives or not fault.may_lose))
        try:
            stage.touched, stage.lost = None, False
            said = fault.begin(random.Random(seed))
            if stage.touched is not None:
                log("fault_only", backend=stage.name, fault=word(fault.name), locks=",".join(stage.touched))
            if said:
                log("fault_says", backend=stage.name, said=said.replace("\n", " "))
            self.over.wait(seconds)
            fault.end()
        except Exception as error:  # whatever it is, the stage must be healed, and the campaign goes on
            log("fault_fails", backend=stage.name, fault=word(fault.name), said=repr(error).replace("\n", " "))
        if stage.lost:
            log("fault_loses", backend=stage.name, fault=word(fault.name))
        self.unhealed.append(fault.name)
        self.heal()

    def heal(self):
        """A fault is over once its stage is healed. A server that answers too late, on a busy machine, is asked again."""
        for tries in range(HEAL_TRIES):
            try:
                self.stage.heal()
                break
            except Exception as error:
                if not isinstance(error, TimeoutError) or tries == HEAL_TRIES - 1:
                    self.campaign.log("stuck", backend=self.stage.name, said=repr(error))
                    return
        for name in self.unhealed:
            self.campaign.log("fault_end", backend=self.stage.name, fault=word(name))
        self.missing.difference_update(self.unhealed)
        self.unhealed.clear()


class Deeds:
    """Acts on runs: called by the campaign's thread when an action is due."""

    def __init__(self, campaign):
        self.campaign = campaign
        self.log, self.at = campaign.log, campaign.at
        self.removals, self.moves = queue.SimpleQueue(), queue.SimpleQueue()  # a move takes a while
        for orders in self.removals, self.moves:
            threading.Thread(target=self.take_away, args=(orders,), daemon=True).start()

    def do(self, live):
        if live.ended or live.frozen:  # frozen as part of a group
            return
        self.log("deed", run=live.number)
        {"kill": self.kill, "kill-command": self.signal_command, "kill-tree": self.kill_tree, "kill-waiters": self.do_to_waiters,
         "freeze": self.freeze, "freeze-long": self.freeze, "freeze-command": self.freeze_command,
         "freeze-tree": self.freeze_tree, "freeze-waiters": self.do_to_waiters, "blink": self.freeze, "signal": self.signal,
         "signal-command": self.signal_command, "flood": self.flood, "remove": self.removals.put,
         "overwrite": self.removals.put, "move": self.moves.put, "touch": self.removals.put, "pause": self.pause,
         "look": self.look}[live.plan.deed.what](live)

    def kill(self, live, **more):
        self.log("kill", run=live.number, **more)
        os.kill(live.pid, signal.SIGKILL)

    def do_to_waiters(self, live):
        """Acts on this many dlocks that wait for the same lock, or on all of them: from the head of the queue on, or on any.

        Only one group at a time, because frozen waiters leave few that wait."""
        rng, number, waiters = live.contender.rng, live.plan.deed.value, self.waiters(live.contender)
        if len(waiters) < min(GROUP_SIZES) or any(one.frozen for one in waiters):
            return
        group = waiters[:number] if rng.random() < AT_THE_HEAD else rng.sample(waiters, min(number, len(waiters)))
        seconds = rng.choice(GROUP_FROZEN)
        if rng.random() < QUIET_LOCK:
            self.campaign.quiet[live.contender.stage, live.contender.lock] = self.campaign.now() + seconds
        for one in group:
            if live.plan.deed.what == "kill-waiters":
                self.kill(one, group=len(group))
            else:
                self.freeze(one, seconds, group=len(group))

    def waiters(self, contender):
        """In the order in which they came."""
        return [one for one in self.campaign.live.values() if one.number in self.campaign.told and
                one.plan.how == "run" and (one.contender.stage, one.contender.lock) == (contender.stage, contender.lock)]

    def pause(self, live):
        """Removes the lock; two of three actions end it sooner."""
        seconds, early = live.plan.deed.value, live.contender.rng.choice((None, 0.3, 0.7))
        self.ask_pause(live.contender, seconds, None if early is None else early * seconds)

    def ask_pause(self, contender, seconds, resume_after=None):
        before = self.campaign.now()

        def done(status):
            self.log("paused", backend=contender.stage.name, lock=contender.lock, before="%.6f" % before,
                     ms=int(1000 * seconds), ok=int(status == 0))
            if resume_after is not None and status == 0:
                self.at(self.campaign.now() + resume_after, self.ask_pause, contender, 0)
        what = ["--pause=%dms" % (1000 * seconds), "--message=torture"] if seconds else ["--resume"]
        self.campaign.errand([self.campaign.newest] + contender.stage.looking() + what + [contender.lock], done)

    def look(self, live):
        """Asks --status how long runs of this lock usually take, when this one ends, and when the next one has its turn."""
        campaign, stage, lock = self.campaign, live.contender.stage, live.contender.lock
        before, path = campaign.now(), campaign.error_path("look-" + live.number)

        def done(_status):
            with open(path, encoding="utf-8") as file, contextlib.suppress(ValueError):
                said = json.load(file)
                if "error" not in said:  # such as that the server is down
                    self.log("told", run=live.number, before="%.6f" % before, **run_times.fields(said, campaign.now()))
            os.unlink(path)
        campaign.errand([campaign.newest] + stage.looking() + ["--status", "--json", lock], done, stdout=path)

    def freeze(self, live, seconds=None, **more):
        self.log("freeze", run=live.number, **more)
        os.kill(live.pid, signal.SIGSTOP)
        live.frozen = True
        self.at(self.campaign.now() + (self.length(live) if seconds is None else seconds), self.thaw, live)

    def length(self, live):
        if live.plan.deed.what == "freeze-long":
            return FROZEN_LONG
        return live.plan.ttl / 1000 + 0.2 if live.plan.deed.what in ("freeze", "freeze-tree") else \
            live.contender.rng.uniform(0.01, 0.15)

    def thaw(self, live):
        if live.frozen and not live.ended:
            held = live.contender.stage.is_held_by(live.contender.lock, live.pid)
            os.kill(live.pid, signal.SIGCONT)
            self.log("thaw", run=live.number, held=int(held))
        live.frozen = False

    def signal(self, live):
        self.log("signal", run=live.number, number=live.plan.deed.value, to="dlock")
        os.kill(live.pid, live.plan.deed.value)

    def flood(self, live):
        seconds, handle = live.contender.rng.uniform(*FLOOD), os.pidfd_open(live.pid)
        # All processes of the user share the count of queued signals: without a limit, others could not create timers.
        resource.prlimit(live.pid, resource.RLIMIT_SIGPENDING, (QUEUED_MOST, QUEUED_MOST))
        self.log("signal", run=live.number, number=int(signal.SIGRTMIN), to="dlock", flood="%.1f" % seconds)
        self.campaign.errand([sys.executable, "-ISc", FLOODER, str(seconds)], lambda _status: None, handle)
        os.close(handle)

    def signal_command(self, live, number=None):
        number = live.plan.deed.value if number is None else int(number)
        if live.command is None:
            return
        self.log("signal", run=live.number, number=number, to="command")
        self.send(live.command, number, live.number)

    def freeze_command(self, live):
        self.signal_command(live, signal.SIGSTOP)
        self.at(self.campaign.now() + self.length(live), self.signal_command, live, signal.SIGCONT)

    def send(self, pid, number, run):
        """For a process that is not a child: only if it is still the worker that is meant."""
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                if self.campaign.options.worker.encode() in words and run.encode() in words:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def kill_tree(self, live):
        """All processes of a tree, from the top down; dlock itself must deal with later forks."""
        self.log("kill", run=live.number)
        tree = family(live.pid)
        os.kill(live.pid, signal.SIGKILL)
        for pid in tree:
            self.send(pid, signal.SIGKILL, live.number)

    def freeze_tree(self, live):
        tree = family(live.pid)
        self.log("freeze", run=live.number)
        self.log("signal", run=live.number, number=int(signal.SIGSTOP), to="tree")
        os.kill(live.pid, signal.SIGSTOP)
        for pid in tree:
            self.send(pid, signal.SIGSTOP, live.number)
        live.frozen = True
        self.at(self.campaign.now() + self.length(live), self.thaw_tree, live, tree)

    def thaw_tree(self, live, tree):
        self.thaw(live)
        for pid in tree:
            self.send(pid, signal.SIGCONT, live.number)

    def take_away(self, orders):
        """Removes locks, or moves them away and back; in a thread of its own, because a server may not answer."""
        while True:
            live = orders.get()
            if self.campaign.ending:  # no run is left that would notice
                continue
            stage, lock, before = live.contender.stage, live.contender.lock, self.campaign.now()
            what, moves = live.plan.deed.what, live.plan.deed.what == "move"
            try:
                token = getattr(stage, what)(lock, *([live.plan.deed.value] if moves else []))
            except (OSError, RuntimeError, ValueError):  # the servers are down, or were before they answered
                self.log("removed_all", backend=stage.name, lock=lock, before="%.6f" % before, unanswered=1)
                continue
            except Exception as error:  # otherwise nobody would notice that locks are no longer removed
                self.log("stuck", backend=stage.name, said="%s cannot be taken away: %r" % (lock, error))
                continue
            if stage.removal_resumes and token is not None:
                self.log("paused", backend=stage.name, lock=lock, before="%.6f" % before, ms=0, ok=int(not moves))
            for one in [token] if isinstance(token, str) else token or ():
                if one.startswith(SHARED):
                    self.log("removed_all", backend=stage.name, lock=lock, before="%.6f" % before)
                elif one.startswith("run-"):
                    self.log("removed", run=one[4:], before="%.6f" % before, sure=int(stage.surely_removed and not moves))
