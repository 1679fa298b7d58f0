"""What --status and --history estimate: how long runs usually take, when this one ends, and when the next one has its turn."""

import collections
import datetime
import statistics
import time

# Times of day are in whole seconds, lengths in whole milliseconds.
SECOND, TICK = 1.05, 0.0015
# `end` is by this program's clock, and `wait` starts at the question. None: not printed.
Told = collections.namedtuple("Told", "before after typical end wait")
Typical = collections.namedtuple("Typical", "median p90 longest runs")


# -- as printed, and as logged --

def boot_time(text, now):
    """Converts a time of day to this program's clock."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - (time.time() - now)


def row(run, now):
    """A row of --history as BEGAN:LENGTH:OUTCOME:STATUS, with the start by this program's clock, in whole seconds."""
    length = -1 if run["duration"] is None else run["duration"]
    number = run["status"] if run["status"] is not None else run["signal"]
    return "%.3f:%.3f:%s:%d" % (boot_time(run["began_at"], now), length, run["outcome"].replace(" ", "-"),
                                -1 if number is None else number)


def fields(said, now):
    typical = said["typical"]
    known = {"typical": ":".join("%g" % typical[name] for name in Typical._fields)} if typical else {}
    if said.get("expected_end"):
        known["end"] = "%.3f" % boot_time(said["expected_end"], now)
    if said.get("expected_wait") is not None:
        known["wait"] = said["expected_wait"]
    return known


def read(stamp, logged):
    typical = Typical(*map(float, logged["typical"].split(":"))) if "typical" in logged else None
    end, wait = (float(logged[name]) if name in logged else None for name in ("end", "wait"))
    return Told(float(logged.get("before", stamp)), stamp, typical, end, wait)


# -- the judge --

def judge(checker, run, runs, started):
    """`runs`: all of this lock; `started`: those whose command started."""
    for told in run.told:
        checker.counts[run.backend]["run times"] += 1
        problem = problem_of(checker, told, runs, started)
        if problem is not None:
            checker.complain(run, problem)


def problem_of(checker, told, runs, started):
    """What is wrong, or None. Each length must be one that a run took, and each estimate must be possible with these lengths."""
    typical, slack = told.typical, checker.slack(told.before, told.after)
    if typical is None:
        return None if told.end is None and told.wait is None else "an end is expected, and nothing is known of its runs"
    most = max((min(run.exit, told.after) - run.spawned for run in started if run.start <= told.after and
                run.exit is not None and (run.status == 0 or run.how != "run")), default=0)
    if not 0 <= typical.median <= typical.p90 <= typical.longest <= most + TICK:
        return "its runs are said to take %g, %g, and %g s at most, and the longest took %.3f s" % (*typical[:3], most)
    if told.end is not None and not clocks_differ(checker, told, started) and \
            not told.before - SECOND <= told.end <= told.after + typical.longest + SECOND:
        return "asked at %.3f it is said to end at %.3f, and no run took longer than %g s" % (told.before, told.end, typical.longest)
    waiting = sum(run.spawned <= told.after and (run.exit is None or run.exit + slack >= told.before) for run in runs)
    if told.wait is not None and not 0 <= told.wait <= typical.longest * (1 + waiting) + TICK:
        return "the next one is said to wait for %g s behind %d runs, of which none took longer than %g s" % (
            told.wait, waiting, typical.longest)
    return None


def clocks_differ(checker, told, started):
    """Whether the holder may have used a clock other than ours."""
    return any(run.wall for run in started if run.spawned <= told.after) or any(
        window.sets_clock and window.backend == started[0].backend for window in checker.history.windows)


def judge_history(checker, run, told):
    """The typical lengths must follow from the rows of the history."""
    lengths = sorted(row.length for row in told.history if (row.outcome, row.status) == ("exited", 0) and row.length >= 0)
    if not lengths:
        known = told.typical is None
    else:
        wanted = Typical(statistics.median(lengths), lengths[-(-len(lengths) * 9 // 10) - 1], lengths[-1], len(lengths))
        known = told.typical is not None and all(abs(a - b) <= TICK for a, b in zip(told.typical, wanted))
    if not known:
        checker.complain(run, "what is typical of its history is said to be %s" % (told.typical,))
