"""The judge of what locks remember: their runs, at the end of a stage, and the successes that --once-per relies on.

What a fault may have touched is tolerated: such a run may be remembered or not, as a success or a failure. All others must
be remembered as they were.
"""

import run_times

# The order in which sharers end is known only to within this, in seconds.
MARGIN = 0.1
# A server that fails this soon after a release may not have told its replicas.
AFTER_THE_END = 1.0
LOST, STOPPED = "lost", 124
# Times are in whole milliseconds; the starts of runs are in whole seconds.
TICK = 0.005
SECOND = 1.005
# Of dlock: src/lock/run_memory.h.
HISTORY_MOST = 32


def judge(checker, runs, started):
    judge_once(checker, started)
    told = checker.history.memories.get((runs[0].backend, runs[0].lock))
    if told is not None and all(run.name == run.lock for run in runs):
        checker.counts[runs[0].backend]["memories"] += 1
        judge_memory(checker, runs, told)


def may_forget(checker, run, begin, end):
    """Whether the store may have lost its knowledge of this run's lock."""
    return any(window.backend == run.backend and (window.may_lose or window.forgets) and window.touches(begin, end) and
               (window.locks is None or run.lock in window.locks) for window in checker.history.windows)


def outcome(checker, run):
    """"success", "failure", or None: the lock may remember it or not, in any way."""
    end = run.held_until if run.killed is not None else run.exit
    if run.how != "run" or run.start is None or run.exit is None or run.limited or run.wall or run.freezes or run.removals or \
            run.shared_removals or run.lost_to or "release" in run.said or \
            any(window.backend == run.backend and window.touches(run.spawned, end + AFTER_THE_END)
                for window in checker.history.windows):
        return None
    alone = run.mode == "exclusive"  # of several sharers, the lost ones are found at any later time
    if run.killed is not None:
        return "failure" if alone and run.end is None and run.died is None else None
    if run.status == STOPPED:
        return "failure" if alone else None
    return "success" if run.status == 0 else "failure"


# -- --once-per --

def judge_once(checker, started):
    """`started` is sorted by start: no run started too soon after a success."""
    success = None
    for run in started:
        if run.once is not None and success is not None and not (run.wall or success.wall) and \
                not may_forget(checker, run, success.spawned, run.start):
            passed = run.start - success.earliest_take
            if passed < run.once - TICK:
                checker.complain(run, "it ran, but run %s, which was a success, began %.3f s before, and it is to run once in "
                                 "%.3f s" % (success.number, passed, run.once))
        if outcome(checker, run) == "success" or run.wall:
            success = run


def may_be_done(checker, run, runs):
    """Whether --once-per may have refused this run: another one was, or may have been, a success."""
    return any(other.start is not None and other.start <= run.exit and (
        other.wall or run.wall or (0 in (other.status, other.end_status) and
                                   other.start + run.once + checker.slack(other.start) >= run.spawned))
               for other in runs if other is not run)


# -- the memory --

class Entry:
    """A run that may be remembered, and when that was written: between `low` and `high`."""

    def __init__(self, checker, run, sharing):
        self.run, self.outcome = run, outcome(checker, run)
        slack = checker.slack(run.spawned, run.exit)
        if self.outcome is None:
            # A quorum has as many memories as servers; by the hosts' clocks it decides which run was the last one.
            by_clock = run.wall and run.backend.startswith("quorum")
            self.low, self.high = run.spawned, float("inf") if sharing or by_clock else run.held_until + slack
        elif sharing:
            self.low, self.high = run.end or run.until, run.exit + MARGIN + slack
        else:  # one after the other, in the order of their starts
            self.low = self.high = run.start


def judge_memory(checker, runs, told):
    sharing = any(run.mode != "exclusive" for run in runs)
    entries = [Entry(checker, run, sharing) for run in runs if run.start is not None or run.may_leave_it]
    for entry in entries:
        if may_forget(checker, entry.run, entry.low, checker.history.last):
            entry.outcome = None
    known = [entry for entry in entries if entry.outcome is not None]
    unclear = [entry for entry in entries if entry.outcome is None]
    if not known:
        return
    last = max(known, key=lambda entry: entry.high)
    successes = [entry for entry in known if entry.outcome == "success"]
    success = max(successes, key=lambda entry: entry.high, default=None)
    begun = max(successes, key=lambda entry: entry.run.start, default=None)
    successes_unclear = [entry for entry in unclear if entry.run.status == 0]
    if begun is not None and not may_be_replaced(begun, successes_unclear) and \
            not names(told.success, those_begun_after(begun, successes, unclear)):
        checker.complain(begun.run, "it is the last success, but the lock remembers process %s" % told.success)
    if not may_be_replaced(last, unclear):
        judge_last(checker, last, told, known, unclear)
        judge_failures(checker, last.run, told, success, known, unclear)
    judge_history(checker, told.history, known, unclear, sharing)
    run_times.judge_history(checker, last.run, told)


def may_be_replaced(last, unclear):
    """Of the last runs that the servers of a quorum remember, the newest by the hosts' clocks counts. If a run with a slow
    clock has replaced this one on some servers, that may be an older run, which another server remembers. The same holds for
    the last success, which only another success replaces."""
    return last.run.backend.startswith("quorum") and any(
        other.run.wall and other.run.deed_value.startswith("-") and (other.run.start or float("inf")) > last.run.start
        for other in unclear)


def judge_last(checker, last, told, known, unclear):
    candidates = those_after(last, known, unclear)
    if not names(told.last, candidates):
        checker.complain(last.run, "it is the last run, but the lock remembers process %s" % told.last)
    elif len(candidates) == 1:
        judge_end(checker, last.run, told)


def those_after(entry, known, unclear):
    """This run, and all that may be later."""
    return [entry] + [other for other in known if other is not entry and other.high >= entry.low and
                      other.low != other.high] + [other for other in unclear if other.high >= entry.low]


def those_begun_after(entry, known, unclear):
    """Of several sharers, the success that began last is the last one, whichever ended last."""
    return [other for other in known if other.run.start >= entry.run.start - MARGIN] + [
        other for other in unclear if other.high >= entry.run.start]


def names(pid, entries):
    """For a script it is not known which process is remembered."""
    return any(entry.run.how != "run" or str(entry.run.dlock) == pid for entry in entries)


def ended_so(run, told):
    if run.killed is not None:
        return told.outcome == LOST
    if run.status == STOPPED:
        return told.outcome in ("stopped", LOST)
    return (told.outcome, told.status) in (("exited", run.status), ("signal", run.status - 128))


def judge_end(checker, run, told):
    if not ended_so(run, told):
        checker.complain(run, "the lock remembers that it ended as %s %s" % (told.outcome, told.status))


def judge_failures(checker, run, told, success, known, unclear):
    """At least those that certainly followed the last success, and at most those that may have followed it."""
    since = success.low if success is not None else float("-inf")
    maybe = [entry for entry in unclear if entry.high >= since]
    failures = [entry for entry in known if entry.outcome == "failure"]
    certain_since = max([entry.high for entry in maybe] + [success.high if success is not None else float("-inf")],
                        default=float("-inf"))
    least = sum(entry.low > certain_since for entry in failures)
    # A run that has lost its lock may be found twice: by the next holder, and by itself.
    most = sum(entry.high >= since for entry in failures) + 2 * len(maybe)
    if not least <= told.failures <= most:
        checker.complain(run, "the lock remembers %d failures in a row, and there were %d to %d" % (
            told.failures, least, most))


# -- the history --

def is_row_of(run, row):
    """Whether the row may belong to this run. It starts between the request and the start, in whole seconds."""
    if run.start is None or not ended_so(run, row) or not run.spawned - SECOND <= row.began <= run.start + TICK:
        return False
    if row.outcome == LOST:
        return row.length < 0
    return (run.end or run.start) - run.start - TICK <= row.length <= run.exit - run.spawned + TICK


def judge_history(checker, rows, known, unclear, sharing):
    """It has the last runs in the order of their ends, without a gap. For a quorum it is the history of one server, which may
    have been down."""
    known = sorted(known, key=lambda entry: entry.high, reverse=True)
    if any(entry.run.wall for entry in known + unclear):
        return
    for newer, older in zip(rows, rows[1:]):  # a run that may have lost its lock can be anywhere
        if not sharing and newer.began < older.began - TICK and \
                not any(is_row_of(entry.run, row) for entry in unclear for row in (newer, older)):
            checker.complain(known[0].run, "its lock has the run of %.3f before that of %.3f in its history" % (
                newer.began, older.began))
    if len(rows) > HISTORY_MOST:
        checker.complain(known[0].run, "its lock has a history of %d runs" % len(rows))
    at = 0
    for number, entry in enumerate(known):
        place = next((i for i in range(0 if sharing else at, len(rows)) if is_row_of(entry.run, rows[i])), None)
        if place is not None:
            at = place + 1
            continue
        # A run that has lost its lock may be found twice: by the next holder, and by itself.
        newer = 2 * (number + sum(other.high >= entry.low for other in unclear))
        if newer < HISTORY_MOST and not entry.run.backend.startswith("quorum"):
            checker.complain(entry.run, "its lock does not have it in its history, of %d runs" % len(rows))
        break
