"""The judge of waiting: first come, first served, nobody is passed over, and --hold-at-least."""

import pauses

# Of two that came closer together than this, it is unknown which was first in the queue.
APART = 0.25
# The first waiter costs 2 s if it does not come when it is called.
HEAD_LOST = 2.5
# After a fault of the store, waiters must reconnect; nobody may be passed over for longer than one poll.
AFTER_A_FAULT = 3.0
# A free lock waits no longer than this, whatever was done to those that wait for it or have held it.
FREE_MOST = 5.0


def judge(checker, runs, started, at_once):
    windows = [window for window in checker.history.windows if window.backend == runs[0].backend]
    calm = Calm(checker, runs, windows)
    traits = checker.history.traits[runs[0].backend]
    if traits.order:
        judge_order(checker, started, calm)
    judge_holds(checker, started, at_once)
    judge_progress(checker, runs, started, calm, traits.progress)
    judge_free(checker, runs, windows, max(FREE_MOST, traits.progress))


def times_of(checker, windows):
    """The times when a fault of the store may interfere."""
    for window in windows:
        yield window.begin - checker.slack(window.begin), window.end + AFTER_A_FAULT + window.back


def merge(times):
    merged = []
    for begin, end in sorted(times):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


class Calm:
    """The times when nothing was done to a lock that could change the order of its waiters."""

    def __init__(self, checker, runs, windows):
        self.times = list(times_of(checker, windows))
        for run in runs:
            since = run.spawned
            if run.disturbed or run.wall:
                self.times.append((since, (run.exit or checker.history.last) + HEAD_LOST))
                if run.killed is not None:  # its place or lock stays until its lease ends
                    self.times.append((run.killed, run.held_until + HEAD_LOST))
            ended = served(run, checker.history.last)
            if any(window.deafens and window.touches(since, ended) for window in windows):
                self.times.append((since, ended + HEAD_LOST))
            if run.once is not None and run.start is None and run.exit is not None:
                self.times.append((run.exit, run.exit))  # it was called, and did not run
            if run.hold:
                self.times.append((since, run.held_until + checker.slack(run.exit or since)))
        self.times += [(begin - checker.slack(begin), end + checker.slack(end)) for begin, end in pauses.possible(checker, runs[0])]
        self.times = merge(self.times)

    def during(self, begin, end):
        return not any(since <= end and until >= begin for since, until in self.times)


def judge_order(checker, started, calm):
    """`started` is sorted by start: no earlier one may have come long after a later one."""
    def long_before(other, run):
        """Whether the other one was certainly in the queue before."""
        if other.spawned + APART >= run.spawned:
            return False
        slow = max(2 * checker.late.near(other.spawned, run.spawned), checker.asking.near(other.spawned, run.spawned))
        return other.spawned + APART + slow < run.spawned

    for place, run in enumerate(started):
        if run.wait == 0:
            continue
        for later in started[place + 1:place + 40]:
            # `later` was served after `run` although it had come before it.
            if later.wait == 0 or later.how == "attach" or not long_before(later, run):
                continue
            if run.mode == later.mode != "exclusive" and later.start - run.start < checker.slack(run.start, later.start):
                continue
            if calm.during(later.spawned, later.start):
                checker.complain(run, "it came %.3f s after run %s, and was served before it" % (
                    run.spawned - later.spawned, later.number))
                break
        before = [other for other in started[max(place - 40, 0):place] if long_before(other, run)
                  and other.start > run.spawned]
        if before and calm.during(min(other.spawned for other in before), run.start):
            checker.counts[run.backend]["order: checked"] += 1


def judge_holds(checker, started, at_once):
    for run, after in zip(started, started[1:]):
        if not run.hold or run in at_once or run.disturbed or after.how == "attach" or "release" in run.said:
            continue
        if run.mode == after.mode != "exclusive" or run.name != after.name:
            continue
        free = run.earliest_take + run.hold
        if after.start < free - checker.slack(after.start, free):
            checker.complain(run, "it was to be kept for %.3f s, but run %s started %.3f s too soon" % (
                run.hold, after.number, free - after.start))


def judge_progress(checker, runs, started, calm, progress):
    """Between the end of one run and the start of the next nobody may wait for long."""
    free_since = None
    for run in started + [None]:
        begin = run.start if run is not None else checker.history.last
        if free_since is not None and begin - free_since > progress:
            bound = progress + checker.slack(free_since, begin)
            for other in runs:
                if overlooked(other, free_since, begin, bound) and calm.during(free_since - bound, begin):
                    since = max(other.spawned, free_since)
                    checker.complain(other, "it waited for %.3f s for a lock that nobody held" % (begin - since))
                    break
        if run is not None:
            free_since = max(free_since or 0, run.until, run.held_until if run.exit is not None else run.until)


def overlooked(other, free_since, begin, bound):
    """Whether it was ready to acquire the lock for the whole of a bound between the two."""
    return min(served(other, begin), begin) - max(other.spawned, free_since) > bound


def served(run, otherwise):
    """When it stopped waiting."""
    return run.start if run.start is not None else run.exit if run.exit is not None else otherwise


def judge_free(checker, runs, windows, most):
    """Outside the times when somebody may have held the lock, or the store had a fault, no waiter is left waiting."""
    busy = list(times_of(checker, windows)) + list(pauses.possible(checker, runs[0]))
    for run in runs:
        busy += times_held(checker, run)
    free_since = None
    for begin, end in merge(busy) + [[checker.history.last] * 2]:
        if free_since is not None:
            judge_gap(checker, runs, free_since, begin, most)
        free_since = end


def times_held(checker, run):
    """When the store may have held the lock for this run: a frozen or killed one may have sent its request before."""
    slack = checker.slack(run.spawned)
    for freeze in run.freezes:
        yield freeze.begin - slack, freeze.end if freeze.held else freeze.begin + run.ttl + run.longer
    if run.start is not None and run.freezes and run.backend != "file":  # nobody waits for it to wake up
        yield run.start - slack, min(run.held_until, max(run.kept_until, run.start + run.hold))
    elif run.start is not None:
        yield run.start - slack, run.held_until
    elif run.exit is not None and run.may_leave_it:
        yield run.exit - slack, run.held_until


def judge_gap(checker, runs, begin, end, most):
    bound = most + checker.slack(begin, end)
    for other in runs:
        if other.wait == 0 or other.disturbed:
            continue
        waited = min(served(other, end), end) - max(other.spawned, begin)
        checker.longest_free[other.backend] = max(checker.longest_free[other.backend], waited)
        if waited > bound:
            checker.complain(other, "it waited for %.3f s for a free lock, and nothing was wrong with the store" % waited)
            break
