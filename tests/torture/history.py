"""The history of a campaign: what its log says, read into runs and windows of faults.

A line of the log is TIME EVENT KEY=VALUE..., with the seconds of CLOCK_BOOTTIME; what dlock said is the rest of a
line, after "said=". Who writes it: campaign.py, nemesis.py and the worker (tests/helpers/stress_worker.c).
"""

import collections
import signal

import run_times
from plans import AROUND

# Of dlock: src/lock/lease.c.
DRIFT_LEAST = 0.002
# By then the guard that kills what a killed dlock leaves has started: src/run/supervise.c, with room for a busy machine.
GUARD_BEGINS = 0.5
FIELDS_OF_THE_REST = " said="

# If it is not sure, a majority may still hold it.
Removal = collections.namedtuple("Removal", "before after sure", defaults=[True])
# `held`: it held the lock all the time, and nobody else could.
Freeze = collections.namedtuple("Freeze", "begin end held", defaults=[False])
# Whether waiters are served in order, and how soon the next one gets a free lock, in seconds.
Traits = collections.namedtuple("Traits", "order progress")
# Of a lock, by `ok` acknowledged; a length of 0 ends it.
Pause = collections.namedtuple("Pause", "before after length ok")
# What a lock remembers of its runs: the pids of the last one and of the last success, ... and the rows of its history, newest
# first.
Memory = collections.namedtuple("Memory", "last outcome status success failures history typical")
Past = collections.namedtuple("Past", "began length outcome status")
Signal = collections.namedtuple("Signal", "at number to")


def read_past(row):
    began, length, outcome, status = row.split(":")
    return Past(float(began), float(length), outcome, int(status))


class Window:
    """A fault of a stage, from before it started until after it was healed (None: until the end of the log)."""

    def __init__(self, stamp, fields):
        self.begin, self.end = stamp, None
        self.backend, self.fault = fields["backend"], fields["fault"]
        self.may_lose = fields.get("may_lose") == "1"
        self.forgets = fields.get("forgets") == "1"
        self.deafens = fields.get("deafens") == "1"
        self.back = float(fields.get("back", 0))  # seconds by which the store's clock may have been set back
        self.keeps_fences = fields.get("keeps_fences", "1") == "1"
        self.locks = None  # what it was done to, if not to everything
        self.may_give = {int(number) for number in fields.get("may_give", "69").split(",") if number}

    @property
    def sets_clock(self):
        return self.fault.startswith("clock-")

    def touches(self, begin, end):
        return self.begin <= end and (self.end is None or self.end >= begin)


class Run:
    """What the log says about one run of dlock."""

    def __init__(self, number, spawned, fields, tree):
        self.number = number
        self.spawned = spawned
        self.lock, self.name = fields["lock"], fields.get("name", fields["lock"])
        self.backend = fields["backend"]
        self.ttl, self.grace = float(fields["ttl"]) / 1000, float(fields["grace"]) / 1000
        self.mode, _, slots = fields.get("mode", "exclusive").partition(":")
        self.slots = int(slots) if slots else None
        # run: dlock runs the command; attach: the worker is the script; acquire: a script that acquires and releases.
        self.how = fields.get("how", "run")
        # Seconds that it may wait; None: without limit.
        self.wait = float(fields["wait"]) / 1000 if "wait" in fields else None
        self.hold = float(fields.get("hold", 0)) / 1000
        self.once = float(fields["once"]) / 1000 if "once" in fields else None
        self.tree = fields.get("tree", "1" if tree else "0") == "1"
        self.leaves_daemon = fields.get("daemon") == "1"
        self.deed, self.deed_value = (fields.get("deed", "nothing").split(":", 3) + ["", "", ""])[:4:3]
        self.limited, self.wall = self.deed == "limit", self.deed == "clock"
        self.newer = fields.get("newer") == "1"
        self.fence = self.slot = self.start = self.until = self.extended = None
        self.end = self.end_status = self.term = self.died = None
        self.killed = self.exit = self.status = self.hung = self.dlock = None
        self.frozen_since = None
        self.flooded = self.in_group = False
        self.is_done = self.deed in AROUND  # its deed
        self.freezes, self.removals, self.signals, self.told, self.said = [], [], [], [], ""
        # If several shared the lock, it is not known which of them held it then.
        self.shared_removals = []
        self.lost_to, self.earliest_take = [], spawned
        self.longer = 0.0  # than the TTL: the store may keep it for so long, because its clock was set back

    @property
    def drift(self):
        return min(max(self.ttl / 100, DRIFT_LEAST), 1.0)

    @property
    def last_deadline(self):
        """The lease is counted from before the request, which was before the start, or from an extension."""
        return max(self.start, self.extended or 0) + self.ttl - self.drift

    @property
    def left_by(self):
        """The time from which no dlock or command took care of the processes left running, or None."""
        stopped = self.term is not None and not self.was_sent(signal.SIGTERM)
        ended = None if stopped else self.end if self.end is not None else self.died
        signaled = [one.at for one in self.signals if self.status == 128 + one.number]
        return min([at for at in (ended, self.killed) if at is not None] + signaled, default=None)

    @property
    def is_guarded(self):
        """Whether dlock was killed under its command after the guard had started, which then kills everything that is left."""
        return self.killed is not None and self.start is not None and not self.limited and self.how == "run" and \
            self.left_by == self.killed >= self.start + GUARD_BEGINS and not self.freezes

    @property
    def kept_until(self):
        """The store keeps the lock no longer than this if nobody releases it."""
        taken_by = self.start if self.start is not None else self.exit
        return max(taken_by, self.extended or 0) + self.ttl + self.longer

    @property
    def held_until(self):
        """The lock was held or kept no longer than this, if it was ever acquired."""
        if self.exit is None:
            return float("inf")
        gone = max(self.exit, self.until or 0)
        taken_by = self.start if self.start is not None else self.exit
        return max(gone, self.kept_until if self.may_leave_it else 0, taken_by + self.hold + self.longer * bool(self.hold))

    @property
    def may_leave_it(self):
        """Whether it may have acquired the lock without releasing it."""
        return self.killed is not None or self.freezes or self.signals or self.limited or self.how == "acquire" or \
            (self.start is None and self.status != 75) or "release" in self.said or \
            any(not removal.sure for removal in self.removals)  # the lock may come back after its holder has ended

    def alive_at(self, stamp):
        self.until = max(self.until or 0, stamp)

    def frozen_during(self, begin, end):
        return any(freeze.begin <= end and freeze.end >= begin for freeze in self.freezes)

    def was_sent(self, *numbers):
        return any(one.number in numbers for one in self.signals)

    @property
    def disturbed(self):
        return bool(self.removals or self.shared_removals or self.freezes or self.killed or self.signals or self.limited or
                    self.lost_to)


class History:
    """Reads a log. `wrong` has what makes no sense, and what the writers of the log found wrong."""

    def __init__(self):
        self.runs, self.windows = {}, []
        self.removed_all = []  # (backend, lock, whether the holder is unknown, removal); otherwise of the sharers
        self.traits = collections.defaultdict(lambda: Traits(True, 1.0))
        self.pauses = collections.defaultdict(list)  # (backend, lock): pauses
        self.memories = {}   # (backend, lock): memory
        self.found = []      # pairs of runs of which one found the other alive
        self.wrong = []      # (backend, sentence)
        self.counts = collections.defaultdict(collections.Counter)
        self.tree = self.begun = self.done = False
        self.first = self.last = self.ending = None
        self.late = []       # (when, by how much) a worker or the campaign was woken late
        self.slow_turns = []  # (when, how long) the campaign did not check which runs had ended
        self.seed = ""

    def read(self, path):
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    self.read_line(line)
                except (KeyError, ValueError, IndexError) as error:
                    self.wrong.append(("", "line %d of the log makes no sense (%r): %s" % (number, error, line.strip())))
        self.close_windows()

    def close_windows(self):
        for window in self.windows:
            window.end = self.last if window.end is None else window.end
        for backend, lock, unanswered, removal in self.removed_all:
            for run in self.runs.values():
                if (run.backend, run.lock) == (backend, lock) and (unanswered or run.mode != "exclusive") and \
                        run.spawned <= removal.after and (run.exit is None or run.exit >= removal.before):
                    run.shared_removals.append(removal)
        for run in self.runs.values():
            if run.frozen_since is not None and (not run.freezes or run.freezes[-1].begin != run.frozen_since):
                run.freezes.append(Freeze(run.frozen_since, self.last))
            run.lost_to = [window for window in self.windows if window.may_lose and window.backend == run.backend and
                           (window.locks is None or run.lock in window.locks) and window.touches(run.spawned, run.exit if run.exit is not None else self.last)]
            for window in self.windows:
                if window.back and window.backend == run.backend and window.touches(run.spawned, run.held_until):
                    run.longer += window.back
        self.late.sort()

    def read_line(self, line):
        head, _, said = line.rstrip("\n").partition(FIELDS_OF_THE_REST)
        words = head.split()
        stamp, event = float(words[0]), words[1]
        fields = dict(word.split("=", 1) for word in words[2:])
        self.first = stamp if self.first is None else self.first
        self.last = max(stamp, self.last or stamp)
        if event == "begin":
            self.begun, self.tree, self.seed = True, fields.get("tree") == "1", fields.get("seed", "")
        elif event == "ending":
            self.ending = stamp
        elif event == "done":
            self.done = True
        elif event in ("left", "stuck"):
            self.wrong.append((fields["backend"], "%s: %s" % (
                "left behind" if event == "left" else "the stage does not heal", fields.get("what", said))))
        elif event == "fault_begin":
            self.windows.append(Window(stamp, fields))
            self.counts[fields["backend"]]["fault: " + fields["fault"]] += 1
        elif event == "fault_end":
            self.last_open(fields).end = stamp
        elif event == "fault_only":
            self.last_open(fields).locks = set(fields["locks"].split(","))
        elif event == "fault_loses":
            self.last_open(fields).may_lose = True
        elif event == "fault_fails":
            self.counts[fields["backend"]]["failed fault: %s (%s)" % (fields["fault"], said)] += 1
        elif event == "fault_says":
            pass
        elif event == "stage":
            self.traits[fields["backend"]] = Traits(fields["order"] == "1", float(fields["progress"]))
        elif event == "paused":
            self.pauses[fields["backend"], fields["lock"]].append(
                Pause(float(fields["before"]), stamp, float(fields["ms"]) / 1000, fields["ok"] == "1"))
        elif event == "memory":
            self.memories[fields["backend"], fields["lock"]] = Memory(
                fields["last"], fields["outcome"], int(fields["status"]), fields["success"], int(fields["failures"]),
                [read_past(row) for row in fields["history"].split(";") if row != "none"],
                run_times.read(stamp, fields).typical)
        elif event == "machine_late":
            self.late.append((stamp, float(fields["by"])))
        elif event == "slow_turn":
            self.slow_turns.append((stamp, float(fields["took"])))
        elif event == "removed_all":
            self.removed_all.append((fields["backend"], fields["lock"], "unanswered" in fields,
                                     Removal(float(fields["before"]), stamp)))
        elif event == "spawn":
            self.runs[fields["run"]] = Run(fields["run"], stamp, fields, self.tree)
        else:
            self.read_run(self.runs[fields["run"]], stamp, event, fields, said)

    def last_open(self, fields):
        for window in reversed(self.windows):
            if (window.backend, window.fault) == (fields["backend"], fields["fault"]) and window.end is None:
                return window
        raise ValueError("no such fault is on")

    def read_run(self, run, stamp, event, fields, said):
        if event == "start":
            run.start, run.fence = stamp, int(fields["fence"])
            run.slot = int(fields["slot"]) if "slot" in fields else None
            run.alive_at(stamp)
        elif event == "overlap":
            other = self.runs[fields["with"]]
            self.found.append((other, run))
            run.alive_at(stamp)
            other.alive_at(stamp)
        elif event in ("term", "stops", "daemon", "daemon_end", "extended", "beat"):
            run.term = stamp if event == "term" else run.term
            if event == "beat" or (event == "extended" and fields["status"] == "0"):
                run.extended = stamp
            run.alive_at(stamp)
        elif event == "late":
            run.alive_at(stamp)
            if not run.signals:  # a stopped process is late because of that
                self.late.append((stamp, float(fields["by"])))
        elif event in ("end", "die"):
            run.alive_at(stamp)
            if event == "die":
                run.died = stamp
            else:
                run.end, run.end_status = stamp, int(fields["status"])
        elif event == "gone":
            run.alive_at(float(fields["until"]))
        elif event == "broken":
            self.wrong.append((run.backend, "the worker of run %s failed: %s" % (run.number, fields)))
        else:
            self.read_deed(run, stamp, event, fields, said)

    @staticmethod
    def read_deed(run, stamp, event, fields, said):
        """What was done to the run, and how it ended."""
        run.flooded |= "flood" in fields
        run.in_group |= "group" in fields
        if event == "deed":
            run.is_done = True
        elif event == "kill":
            run.killed = stamp
        elif event == "told":
            run.told.append(run_times.read(stamp, fields))
        elif event == "signal":
            run.signals.append(Signal(stamp, int(fields["number"]), fields["to"]))
        elif event == "freeze":
            run.frozen_since = stamp
        elif event == "thaw":
            if run.frozen_since is None:
                raise ValueError("it was not frozen")
            run.freezes.append(Freeze(run.frozen_since, stamp, fields.get("held") == "1"))
        elif event == "removed":
            run.removals.append(Removal(float(fields["before"]), stamp, fields.get("sure", "1") == "1"))
        elif event == "hung":
            run.hung, run.said = stamp, said
        elif event == "exit":
            run.exit, run.status, run.said, run.dlock = stamp, int(fields["status"]), said, fields.get("dlock")
            sent = min((one.at for one in run.signals if one.number == -run.status), default=None)
            # dlock dies of a signal that was sent to it and ended its command; a signal that it
            # is not there to pass on ends it like a kill.
            if sent is not None and run.start is not None and run.how == "run":
                run.status = 128 - run.status
            elif run.status < 0 and run.killed is None and run.how == "run":
                run.killed = sent
        else:
            raise ValueError(event)
