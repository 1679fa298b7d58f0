"""The judge: finds in a history what was not as promised.

Two runs of one lock whose commands were alive at once are a pair. A pair is as it should be (both share the lock, or
have a slot each), excused (by design: a frozen dlock can stop nobody; a server that forgets), put down to a late
machine, or wrong. exits.py judges how runs ended, order.py who came when.
"""

import bisect
import collections

import exits
import order
import telling
from history import History

CHECK_INTERVAL = 1.0  # of dlock: src/watch.c
# How late a process may be because the machine is busy, in seconds, where that is not the subject.
SLACK = 0.3
# An overlap of commands this near to the end of a lease is put down to the machine where a worker was woken late
# in the same half second. (Wake-ups are what a busy machine does soonest; forks and deaths wait longer.)
LATE_NEAR, LATE_AROUND = 0.05, 0.5
# A connection that is tried for a second fails where the machine stalls like that.
STALL = 0.2
# How long two commands may be there at once under a lease too short to be held exactly.
SHORT_OVERLAP_MOST = 0.1
# Reconnecting to a server that is back, and looking at the key.
RECONNECT = 1.5


class Checker:
    def __init__(self, strict_ttl=0.5):
        self.strict_ttl = strict_ttl
        self.history = History()
        self.wrong, self.counts = self.history.wrong, self.history.counts
        self.most_overrun = collections.defaultdict(lambda: float("-inf"))
        self.slack, self.lateness = SLACK, 0
        self.wall_backends = set()

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

    def judge(self):
        history = self.history
        if not history.begun or not history.done:
            self.wrong.append(("", "the log is not complete"))
        self.lateness = 2 * max((by for _, by in history.late), default=0)
        self.slack += self.lateness
        self.wall_backends = {run.backend for run in history.runs.values() if run.wall}
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
        exits.judge_conflicts(self, runs)

    # -- who was there at once --

    def pairs_of(self, started):
        """Those (first, second) that were alive at once and must not have been."""
        known = {id(run) for run in started}
        pairs = {}
        for first, second in self.history.found:
            if id(first) in known and id(second) in known:
                # Both looked, or the later one was quicker.
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
        living = []
        for run in (run for run in started if run.mode == "slots"):
            living = [other for other in living if other.until > run.start and
                      self.excuse(other, run, min(other.until, run.until)) is None and
                      not self.machine_was_late(other, run, min(other.until, run.until))]
            if run.slots is not None and len(living) >= run.slots:
                self.complain(run, "overlap: %d holders of %d slots: runs %s" % (
                    len(living) + 1, run.slots, ", ".join(other.number for other in living)))
            for other in living:
                if run.slot is not None and other.slot == run.slot:
                    self.complain(run, "overlap: the slot %d was that of run %s" % (run.slot, other.number))
            if run.slot is not None and run.slots is not None and not 0 <= run.slot < run.slots:
                self.complain(run, "the slot %d of %d" % (run.slot, run.slots))
            living.append(run)

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
            self.complain(first, "overlap of %.1f ms or more: run %s started %+.1f ms from the end of the lease at the "
                          "latest" % (1000 * max(last - second.start, 0), second.number,
                             1000 * (second.start - first.last_deadline)))

    def machine_was_late(self, first, second, last):
        """Whether this is at the end of the lease, and others were woken late at that time as well."""
        if self.started_late(second, first, last):
            return True
        deadline = self.deadline_known(first, second)
        if second.start < deadline - LATE_NEAR:
            return False
        # Those that were woken in that time, and those that should have been but were not before its end.
        late = self.history.late
        where = bisect.bisect_left(late, (deadline - LATE_AROUND, 0))
        return any(stamp - by <= last + LATE_AROUND for stamp, by in late[where:])

    @staticmethod
    def deadline_known(first, second):
        """When the lease of the first was over, as closely as that is known."""
        deadline = first.last_deadline
        # Fences of Redis are times: so long was it between the takes.
        if first.backend != "file" and first.fence and second.fence > first.fence and not first.extended:
            deadline = min(deadline, second.start - (second.fence - first.fence) / 1e6 + first.ttl - first.drift)
        # A script may begin late after its take; but dlock has said that the lease was at its end.
        if first.how == "attach" and "the lease of" in first.said:
            deadline = min(deadline, first.spawned + first.ttl - first.drift)
        return deadline

    @staticmethod
    def started_late(run, other, last):
        """Whether the fences, which are times, show that the lease of `run` was over when the other took the lock.

        Its command was just starting then, on a machine that had kept it back for all of its lease, and was killed."""
        return run.backend != "file" and run.status == 124 and run.fence and other.fence - run.fence >= \
            1e6 * (run.ttl - run.drift) and last - run.start <= SHORT_OVERLAP_MOST

    def machine_stalled(self, run):
        """Whether the machine kept somebody waiting for long while this run was there."""
        late = self.history.late
        where = bisect.bisect_left(late, (run.spawned - LATE_AROUND, 0))
        stalled = any(by >= STALL and stamp <= run.exit + LATE_AROUND for stamp, by in late[where:]) or \
            any(stamp - took - LATE_AROUND <= run.exit <= stamp + LATE_AROUND for stamp, took in self.history.slow_turns)
        self.counts[run.backend]["machine stalled"] += stalled
        return stalled

    def excuse(self, first, second, last):
        """Why two were there at once although all is as promised, or None."""
        # What a killed dlock, or a command that has ended in time, leaves behind is nobody's any more.
        if first.leaves_daemon and not first.tree and (first.killed is not None or first.ended_by_itself):
            return "a daemon that outlived its dlock or command"
        # The kernel releases a file lock before it tells the children of a killed process.
        if first.backend == "file" and first.killed is not None and last <= first.killed + self.slack:
            return "killed dlock, its command just dying"
        # A frozen dlock can stop nobody, and the Redis does not wait for it.
        if first.backend != "file":
            for freeze in first.freezes:
                if freeze.begin <= last <= freeze.end + self.slack and \
                        freeze.end >= first.start + first.ttl - first.grace - self.slack:
                    return "frozen dlock"
            if second.frozen_during(second.start - self.slack, second.start):
                return "frozen dlock, between its take and its start"
        return self.excuse_of_loss(first, second, last)

    def excuse_of_loss(self, first, second, last):
        """Of a lock that was taken away dlock learns a bit later; of one that --acquire left, never."""
        for run in (first, second):
            notice = CHECK_INTERVAL if run.backend != "file" else 0
            losses = [(removal.before, removal.after + notice, "lock taken away")
                      for removal in run.removals + run.shared_removals]
            losses += [(window.begin, window.end + notice + RECONNECT, "lost to " + window.fault) for window in run.lost_to]
            for begin, end, reason in losses:
                until = end + run.grace + self.slack
                for freeze in run.freezes:
                    if freeze.end >= begin:
                        until = max(until, freeze.end + notice + run.grace + self.slack)
                if begin <= last and (last <= until or run.how == "acquire"):
                    return reason
        return None

    # -- fences --

    def judge_fences(self, started, at_once):
        """One that took the lock when another had it no more has the higher fence."""
        fenced = [run for run in started if run.fence and run.name == run.lock]
        all_of_them = HighestFence(fenced)
        exclusive = HighestFence([run for run in fenced if run.mode == "exclusive"])
        for run in fenced:
            # A short command of one who shares the lock may be over before another that took it sooner has started.
            ended = [all_of_them.before(run.start if run.mode == "exclusive" else run.spawned), exclusive.before(run.start)]
            for before in ended:
                if before is not None and run.fence <= before.fence and not self.fence_excused(before, run):
                    self.complain(run, "the fence %d does not rise above %d of run %s" % (run.fence, before.fence,
                                                                                          before.number))
                    break
        for before, run in zip(started, started[1:]):
            if not (before.disturbed or run.freezes or before.leaves_daemon or before in at_once or run in at_once):
                if "exclusive" in (before.mode, run.mode):
                    run.earliest_take = max(run.earliest_take, before.until - self.slack)
            if before.status == 124 or before.killed is not None:
                self.counts[run.backend]["hand-overs after a lease's end"] += 1

    def fence_excused(self, before, run):
        """The later one took the lock first and was held up, or the store has forgotten more than is promised."""
        if run.frozen_during(run.spawned, run.start) or \
                any(removal.before <= run.start for removal in run.removals + run.shared_removals) or \
                any(window.touches(run.spawned, run.start) for window in run.lost_to):
            return True
        windows = [window for window in self.history.windows if window.backend == run.backend]
        if any(not window.keeps_fences and window.touches(before.start, run.start) for window in windows):
            return True
        # An emptied store and a clock that steps back, both at once. (Locks may share a place in a table of fences.)
        return any(window.forgets and window.begin <= run.start for window in windows) and run.backend in self.wall_backends


class HighestFence:
    """Of those whose commands had ended by some time, the one with the highest fence."""

    def __init__(self, runs):
        self.times, self.highest = [], []
        for run in sorted(runs, key=lambda run: run.until):
            top = self.highest[-1] if self.highest else run
            self.times.append(run.until)
            self.highest.append(run if run.fence > top.fence else top)

    def before(self, time):
        where = bisect.bisect_left(self.times, time)
        return self.highest[where - 1] if where else None


def check(path, strict_ttl):
    """Judges the log and tells. Returns whether all was as promised."""
    checker = Checker(strict_ttl)
    checker.read(path)
    checker.judge()
    return telling.tell(checker)
