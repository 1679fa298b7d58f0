"""The judge: finds what was not as promised in a history.

Two runs of one lock whose commands were alive at once are a pair. A pair is as it should be (both share the lock, or
have a slot each), excused (by design: a frozen dlock can stop nobody; a server that forgets), put down to a late
machine, or wrong. exits.py judges how runs ended, order.py who came when, pauses.py and memory.py what their names say.
"""

import bisect
import collections
import re

import exits
import memory
import order
import pauses
import run_times
import telling
from figures import write_figures
from history import History
from lateness import Lateness

CHECK_INTERVAL = 1.0  # of dlock: src/run/watch.c
# As long as dlock cannot start these, its main thread looks at a lock file once in this time.
WATCHES_ALONE = re.compile("cannot start the (thread that watches|guard process)")
# How late a process may be because of a busy machine, in seconds, where lateness itself is not judged.
SLACK = 0.3
# An overlap that begins no sooner than this before the end of a lease is attributed to the machine, if
# some process was woken late at that time.
LATE_NEAR = 0.05
# A request fails if the machine stalls this long: it makes several round trips, for a quorum several to each server, and
# in a network of hosts each of them waits for four processes.
STALL = 0.05
# How close to the end of a run the campaign may have looked away.
LOOK_AROUND = 0.5
# How long two commands may overlap under a lease too short to be exact, or on a late machine.
SHORT_OVERLAP_MOST = 0.1
# A process that has mapped a lost table of fences continues to count in it for as long as it lives.
FORGOTTEN_TABLE = 5.0
# Reconnecting to a server that is back, and checking the key.
RECONNECT = 1.5


class Checker:
    def __init__(self, strict_ttl=0.5):
        self.strict_ttl = strict_ttl
        self.history = History()
        self.wrong, self.counts = self.history.wrong, self.history.counts
        self.most_overrun = collections.defaultdict(lambda: float("-inf"))
        self.late = self.asking = Lateness(())
        self.clocks_set = set()  # stores whose fences' clock was set
        self.longest_free = collections.defaultdict(float)

    def read(self, path):
        self.history.read(path)

    def complain(self, run, text):
        seen = "start %s, end %s, until %s, exit %s" % tuple(
            "none" if at is None else "%+.3f" % (at - (run.start or run.spawned))
            for at in (run.start, run.end or run.died, run.until, run.exit))
        what = "overlap" if text.startswith("overlap") else "wrong"
        self.wrong.append((run.backend, "%s: run %s of lock %s (%s, %s, ttl %.3f, grace %.3f; spawned at %.3f; %s; "
                           "status %s): %s%s" % (
                               what, run.number, run.lock, run.mode, run.how, run.ttl, run.grace, run.spawned, seen,
                               run.status, text, " [%s]" % run.said if run.said else "")))

    def slack(self, begin, end=None):
        """How late a process may be because of the machine, between begin and end."""
        return SLACK + 2 * self.late.near(begin, end)

    def judge(self):
        history = self.history
        if not history.begun or not history.done:
            self.wrong.append(("", "the log is not complete"))
        self.late = Lateness(history.late)
        # A dlock that is refused at once (-n) shows how long it may take until a request has reached the store.
        self.asking = Lateness([(run.exit, run.exit - run.spawned) for run in history.runs.values()
                                if run.wait == 0 and run.status == 75 and not run.disturbed])
        self.clocks_set = {run.backend for run in history.runs.values() if run.wall and run.backend == "file"} | \
            {window.backend for window in history.windows if window.sets_clock}
        locks = collections.defaultdict(list)
        for run in history.runs.values():
            locks[run.backend, run.lock].append(run)
        for runs in locks.values():
            self.judge_lock(runs)
        for run in history.runs.values():
            exits.judge(self, run)

    def judge_lock(self, runs):
        started = sorted((run for run in runs if run.start is not None), key=lambda run: run.start)
        conflicts = self.pairs_of(started)
        for first, second in conflicts:
            self.judge_pair(first, second)
        at_once = {run for pair in conflicts for run in pair}
        self.judge_slots(started)
        self.judge_fences(started, at_once)
        order.judge(self, runs, started, at_once)
        pauses.judge(self, started)
        memory.judge(self, runs, started)
        exits.judge_conflicts(self, runs)
        for run in runs:
            run_times.judge(self, run, runs, started)

    # -- who was there at once --

    def pairs_of(self, started):
        """Those pairs (first, second) that were alive at once and must not have been."""
        known = {id(run) for run in started}
        pairs = {}
        for first, second in self.history.found:
            if id(first) in known and id(second) in known:
                # Both checked, or the later one was quicker.
                pair = (first, second) if first.start <= second.start else (second, first)
                pairs[id(pair[0]), id(pair[1])] = pair
        living = []
        for run in started:
            living = [other for other in living if other.until > run.start]
            pairs.update({(id(other), id(run)): (other, run) for other in living})
            living.append(run)
        return [pair for pair in pairs.values() if not self.may_share(*pair)]

    @staticmethod
    def may_share(first, second):
        return first.mode == second.mode and first.mode != "exclusive" and first.name == second.name

    def judge_slots(self, started):
        alive = []
        for run in (run for run in started if run.mode == "slots"):
            alive = [other for other in alive if other.until > run.start]
            living = [other for other in alive if self.excuse(other, run, min(other.until, run.until)) is None and
                      not self.machine_was_late(other, run, min(other.until, run.until))]
            if run.slots is not None and len(living) >= run.slots:
                self.complain(run, "overlap: %d holders of %d slots: runs %s" % (
                    len(living) + 1, run.slots, ", ".join(other.number for other in living)))
            for other in living:
                if run.slot is not None and other.slot == run.slot:
                    self.complain(run, "overlap: the slot %d was that of run %s" % (run.slot, other.number))
            if run.slot is not None and run.slots is not None and not 0 <= run.slot < run.slots:
                self.complain(run, "the slot %d of %d" % (run.slot, run.slots))
            alive.append(run)

    def judge_pair(self, first, second):
        """`first` was running when `second` started."""
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
            self.complain(first, "overlap of %.1f ms or more: run %s started %+.1f ms from the end of the lease at the "
                          "latest" % (1000 * max(last - second.start, 0), second.number,
                             1000 * (second.start - first.last_deadline)))

    def machine_was_late(self, first, second, last):
        """Whether this is at the end of the lease, others were woken late at that time as well, and it was over quickly."""
        if self.started_late(second, first, last):
            return True
        deadline = self.deadline_known(first, second)
        late = self.late.near(deadline, last)
        return late > 0 and second.start >= deadline - LATE_NEAR and \
            last - first.last_deadline <= SHORT_OVERLAP_MOST + 2 * late

    def fences_are_times(self, first, second):
        """Whether the time between two locks matches the difference of their fences."""
        return first.backend != "file" and not any(
            window.backend == first.backend and window.sets_clock and window.touches(first.spawned, second.start)
            for window in self.history.windows)

    def deadline_known(self, first, second):
        """When the lease of the first ended, as exactly as that is known."""
        deadline = first.last_deadline
        # Fences in Redis are times: their difference is the time between the two locks.
        if first.fence and second.fence > first.fence and not first.extended and self.fences_are_times(first, second):
            deadline = min(deadline, second.start - (second.fence - first.fence) / 1e6 + first.ttl - first.drift)
        # A script may start long after its lock was acquired; but dlock has reported that the lease was ending.
        if first.how == "attach" and "the lease of" in first.said:
            deadline = min(deadline, first.spawned + first.ttl - first.drift)
        return deadline

    def started_late(self, run, other, last):
        """Whether the fences, which are times, show that the lease of `run` had ended when the other acquired the lock.

        Its command was just starting then, on a machine that had kept it back for all of its lease, and was killed."""
        return run.status == 124 and run.fence and other.fence - run.fence >= 1e6 * (run.ttl - run.drift) and \
            last - run.start <= SHORT_OVERLAP_MOST and self.fences_are_times(run, other)

    def machine_stalled(self, run):
        """Whether the machine delayed some process for long during this run."""
        stalled = self.late.near(run.spawned, run.exit) >= STALL or any(
            stamp - took - LOOK_AROUND <= run.exit <= stamp + LOOK_AROUND for stamp, took in self.history.slow_turns)
        self.counts[run.backend]["machine stalled"] += stalled
        return stalled

    def excuse(self, first, second, last):
        """Why two overlap although every promise is kept, or None.

        What is to explain it has begun before the second one started: each is logged before it is done."""
        begin = second.start
        # Processes left behind by a command that ended in time are no longer under the lock.
        if first.leaves_daemon and not first.tree and first.left_by is not None and begin >= first.left_by and \
                not (first.is_guarded and last > first.killed + self.slack(first.killed)):
            return "a daemon that its command left behind"
        # The kernel releases a file lock before it notifies the children of a killed process. A command that was killed with
        # its dlock runs no longer, but on a busy machine it is there for a while, and the lease may end.
        if (first.backend == "file" or (first.deed == "kill-tree" and first.is_done)) and first.killed is not None and \
                first.killed <= begin and last <= first.killed + self.slack(first.killed):
            return "killed dlock, its command just dying"
        # A frozen dlock cannot stop anything, and Redis does not wait for it.
        if first.backend != "file":
            if self.frozen_beyond_lease(first, begin, last):
                return "frozen dlock"
            if second.frozen_during(begin - self.slack(begin), begin) and begin >= second.spawned + second.ttl - second.drift:
                return "frozen dlock, between its take and its start"
        return self.excuse_of_loss(first, second, last)

    def frozen_beyond_lease(self, run, begin, last):
        """Whether the lease of run had ended when another started, and run was frozen at that end."""
        return begin >= run.earliest_take + run.ttl - run.drift and any(
            freeze.begin <= last <= freeze.end + self.slack(freeze.end) and
            freeze.end >= run.start + run.ttl - run.grace - self.slack(freeze.end) for freeze in run.freezes)

    def excuse_of_loss(self, first, second, last):
        """dlock learns a little later that its lock was removed; if the lock is left from --acquire, it never does."""
        for run in (first, second):
            notice = CHECK_INTERVAL if run.backend != "file" or WATCHES_ALONE.search(run.said) else 0
            losses = [(removal.before, removal.after + notice, "lock taken away")
                      for removal in run.removals + run.shared_removals]
            losses += [(window.begin, window.end + notice + RECONNECT, "lost to " + window.fault) for window in run.lost_to
                       if run.start <= window.end + self.slack(window.end)]
            for begin, end, reason in losses:
                until = end + run.grace + self.slack(end)
                for freeze in run.freezes:
                    if freeze.end >= begin:
                        until = max(until, freeze.end + notice + run.grace + self.slack(freeze.end))
                if begin <= second.start and (last <= until or run.how == "acquire"):
                    return reason
        return None

    # -- fences --

    def judge_fences(self, started, at_once):
        """A run that acquires the lock after another has lost it has the higher fence."""
        fenced = [run for run in started if run.fence and run.name == run.lock]
        all_of_them = HighestFence(fenced)
        exclusive = HighestFence([run for run in fenced if run.mode == "exclusive"])
        for run in fenced:
            # A short command of a sharer may be over before another that acquired the lock earlier has started.
            ended = [all_of_them.before(run.start if run.mode == "exclusive" else run.spawned), exclusive.before(run.start)]
            for before in ended:
                if before is not None and run.fence <= before.fence and not self.fence_excused(before, run):
                    self.complain(run, "the fence %d does not rise above %d of run %s" % (run.fence, before.fence,
                                                                                          before.number))
                    break
        for before, run in zip(started, started[1:]):
            if not (before.disturbed or run.freezes or before.leaves_daemon or before in at_once or run in at_once):
                # A request that a server delays may have been sent while the one before was still running.
                if "exclusive" in (before.mode, run.mode) and not self.was_held_up(run):
                    run.earliest_take = max(run.earliest_take, before.until - self.slack(before.until))
            if before.status == 124 or before.killed is not None:
                self.counts[run.backend]["hand-overs after a lease's end"] += 1

    def was_held_up(self, run):
        """Whether a fault was active while the run requested the lock."""
        return any(window.backend == run.backend and window.touches(run.spawned, run.start) for window in self.history.windows)

    def fence_excused(self, before, run):
        """The later one acquired the lock first and was delayed, or the store has forgotten more than is promised."""
        if run.frozen_during(run.spawned, run.start) or \
                any(removal.before <= run.start for removal in run.removals + run.shared_removals) or \
                any(window.touches(run.spawned, run.start) for window in run.lost_to):
            return True
        windows = [window for window in self.history.windows if window.backend == run.backend]
        if any(not window.keeps_fences and window.touches(before.start, run.start) for window in windows):
            return True
        # An emptied store and a clock that steps back, both together. (Locks may share a place in a table of fences.)
        return run.backend in self.clocks_set and any(
            window.forgets and window.touches(before.start - FORGOTTEN_TABLE, run.start) for window in windows)


class HighestFence:
    """Of those whose commands had ended by this time, the one with the highest fence."""

    def __init__(self, runs):
        self.times, self.highest = [], []
        for run in sorted(runs, key=lambda run: run.until):
            top = self.highest[-1] if self.highest else run
            self.times.append(run.until)
            self.highest.append(run if run.fence > top.fence else top)

    def before(self, time):
        where = bisect.bisect_left(self.times, time)
        return self.highest[where - 1] if where else None


def check(path, strict_ttl, figures=None):
    """Judges the log and reports. Returns whether everything was as promised."""
    checker = Checker(strict_ttl)
    checker.read(path)
    checker.judge()
    good = telling.tell(checker)
    write_figures(figures, [telling.figures_of(checker)])
    return good
