"""The judge of exit statuses: whether each one is true."""

import signal

import memory
import pauses
from surroundings import NEEDED

# A command that still runs this long after its lease, under a dlock that was not frozen, was not stopped.
OVERRUN_MOST = 1.0
# A later try finds the lock whose grant a fault has delayed, and counts its rest from before the request.
LATER_TRY = 0.05
CONFLICT, SERVICE_AWAY, LOST, NEWER_FORMAT, SYSTEM_ERROR, NOT_ALLOWED = 75, 69, 124, 78, 71, 77
# The system refused, or a file cannot be created: what a dlock with low limits may report, and what the loader
# or a shell reports if the program cannot even start; 78: no room for the TLS library.
REFUSED = {1, 2, 69, 70, 71, 73, 78, 126, 127}
# Why a server may be reported as unreachable if the machine stalls.
TOO_SLOW = ("no answer in time", "the connection timed out", "the TLS handshake was not answered in time",
            "its lease ended before the answer arrived", "confirmed the lock in time", "until time ran out",
            "slower than the other servers")
# How long -n waits for the guard of a dead holder on its host (run/acquisition.c).
GUARD_MOST = 0.5
# A dlock that is frozen while it changes a lock file keeps others from it for so long (section_limit and tidy_limit).
SECTION_MOST = 1.1
# A waiter of a quorum may wait for a slow server at each of its last two requests: for 100 ms before it knows who has the
# lock, and for another 100 ms when it releases its part of the servers (store/quorum/lease.c).
SLOW_SERVER_MOST = 0.4
# In addition to --retry-for: connecting, the queue, and the machine.
AROUND_A_FAULT = 3.0


def judge(checker, run):
    counts = checker.counts[run.backend]
    counts["runs"] += 1
    if run.start is not None:
        counts["takes"] += 1
    for what, is_so in (("stops (124)", run.status == LOST), ("dlocks killed", run.killed is not None),
                        ("dlocks frozen", bool(run.freezes)), ("locks taken away", bool(run.removals)),
                        ("signals", bool(run.signals)), ("flooded", run.flooded), ("in groups", run.in_group),
                        ("newer", run.newer), ("drawn: " + run.deed, run.deed != "nothing"),
                        ("done: " + run.deed, run.is_done)):
        counts[what] += bool(is_so)
    if run.hung is not None:
        checker.complain(run, "dlock did not end, and was killed %.1f s after it began" % (run.hung - run.spawned))
        return
    if run.exit is None:
        checker.complain(run, "dlock did not end")
        return
    counts["status: %d" % run.status] += run.status not in (0, 1, 7, 42)
    if run.is_guarded and run.until > run.killed + checker.slack(run.killed, run.until):
        checker.complain(run, "a process of the command was there %.3f s after its dlock was killed" % (run.until - run.killed))
    if run.killed is not None and run.status < 0:
        return
    problem = exit_problem(checker, run)
    if problem is not None:
        checker.complain(run, problem)
    judge_overrun(checker, run)


def judge_overrun(checker, run):
    if run.start is None or run.freezes or run.how == "acquire" or \
            (run.leaves_daemon and not run.tree and run.left_by is not None):
        return
    overrun = run.until - run.last_deadline
    checker.most_overrun[run.backend] = max(checker.most_overrun[run.backend], overrun)
    if overrun > OVERRUN_MOST + 2 * checker.late.near(run.last_deadline, run.until):
        checker.complain(run, "the command ran on for %.3f s after its lease" % overrun)


def exit_problem(checker, run):
    """What is untrue about an exit status, or None."""
    if run.how != "run":
        return problem_of_script(checker, run)
    if run.start is None:
        return problem_without_command(checker, run)
    if run.status == LOST:
        stop = run.earliest_take + run.ttl - run.drift - run.grace
        early = LATER_TRY + 2 * checker.late.near(run.start, run.start) if checker.was_held_up(run) else 0
        return None if run.removals or run.shared_removals or run.lost_to or run.exit >= stop - early else \
            "124, but the lease had %.3f s to go before any stop was due" % (stop - run.exit)
    sent = {sent.number for sent in run.signals}
    wanted = {128 + number for number in sent}
    if run.term is not None and signal.SIGTERM not in sent:
        return "the command was told to stop, but this is not 124"
    if run.end is None and run.died is None:
        return None if run.status in wanted else "the command was stopped, but this is not 124"
    ended = run.end if run.end is not None else run.died
    if ended > run.last_deadline + (checker.slack(ended) if run.extended else 0):
        return "the command ended %.3f s after its lease, but this is not 124" % (ended - run.last_deadline)
    # If the server can no longer be asked, nobody knows, and a failover may lose the removal. A release that arrives after the
    # end of the lease cannot tell whether the lock was lost before.
    lease_ends = max(run.earliest_take, run.extended or 0) + run.ttl - run.drift
    if "could not be released" not in run.said and run.exit < lease_ends and \
            any(removal.sure and removal.after < ended and not any(window.touches(removal.before, ended) for window in run.lost_to)
                for removal in run.removals if removal.before >= run.start):
        return "the lock was lost before the command ended, but this is not 124"
    wanted.add(run.end_status if run.end is not None else 128 + signal.SIGKILL)
    return None if run.status in wanted else "the command's own status was %d" % (
        run.end_status if run.end is not None else 128 + signal.SIGKILL)


def problem_of_script(checker, run):
    """A script that holds the lock itself ends with its own status, or is stopped."""
    if run.status < 0 or run.status > 128:
        number = -run.status if run.status < 0 else run.status - 128
        if run.was_sent(number) or (run.died is not None and number == signal.SIGKILL):
            return None
        stop = run.earliest_take + run.ttl - run.drift - run.grace
        if run.how == "attach" and (run.removals or run.shared_removals or run.lost_to or run.exit >= stop - checker.slack(run.exit)):
            return None
        return "ended by signal %d, which nobody should have sent" % number
    if run.start is None:
        return problem_without_command(checker, run)
    if run.end is not None and run.status != run.end_status and run.status not in window_statuses(checker, run):
        return "the command's own status was %d" % run.end_status
    if run.how == "acquire" and "release=" in run.said:
        status = run.said.rpartition("release=")[2].split()[0]
        if status not in ("0", str(SERVICE_AWAY)) and not run.disturbed and run.exit < run.earliest_take + run.ttl and \
                int(status) not in window_statuses(checker, run):
            return "the release of a lock that was not lost gives %s" % status
    return None


def windows_of(checker, run):
    """The faults that were active during the run, or shortly before it."""
    return [window for window in checker.history.windows
            if window.backend == run.backend and window.touches(run.spawned - AROUND_A_FAULT, run.exit)]


def window_statuses(checker, run):
    """The statuses that dlock may exit with because of active or recent faults."""
    return set().union(*(window.may_give for window in windows_of(checker, run)))


def problem_without_command(checker, run):
    """The command has not run, or was ended before it could report."""
    status = run.status
    if status < 0:
        return None if run.was_sent(-status) else "dlock was ended by signal %d, which nobody sent" % -status
    if status in refused_by_surroundings(checker, run):
        return None
    if status == CONFLICT:
        return problem_of_conflict(checker, run)
    if status in {NEWER_FORMAT, *refused_by_minority(checker, run)} and "supports formats up to" in run.said:
        return problem_of_format(checker, run)
    if status == LOST:
        if run.freezes or run.removals or run.shared_removals or run.lost_to or \
                run.exit >= run.spawned + run.ttl - run.drift - run.grace:
            return None
        return "124 without a command, and the lease had not ended"
    if status in window_statuses(checker, run):
        return None
    # --attach waits for its guard until the lease ends, and gives the lock back in the grace time, which takes that long only
    # on a busy machine.
    over = run.exit - run.spawned - run.ttl + run.drift
    if ("did not start in time" in run.said and over >= 0) or ("could be attached" in run.said and over >= -run.grace):
        return None
    if status == SERVICE_AWAY:
        # A dlock that was frozen finds that the time for its reply is over.
        if any(text in run.said for text in TOO_SLOW) and (run.freezes or checker.machine_stalled(run)):
            return None
        return "the service was said to be away, but no fault was on"
    if status > 128 and run.was_sent(status - 128):
        return None
    return "dlock ended without having run anything"


def refused_by_surroundings(checker, run):
    """The statuses of a dlock that cannot start in its surroundings."""
    if run.deed == "refuse-call" and run.deed_value.split(":")[-1] in NEEDED:
        return {SYSTEM_ERROR}
    if not run.limited:
        return set()
    return REFUSED | refused_by_minority(checker, run)


def refused_by_minority(checker, run):
    """A minority of a quorum that refuses commands decides about the status if the other servers cannot grant the lock: an
    older dlock cannot read their format, or a limited one has no descriptors for them."""
    return {NOT_ALLOWED for window in windows_of(checker, run) if window.fault == "refuse-commands-minority"}


def problem_of_format(checker, run):
    """An older dlock refuses a lock or directory that a newer one has used."""
    if run.newer:
        return "%d, but it is of the newest format" % run.status
    if not any(other.newer and other.backend == run.backend and other.spawned <= run.exit
               for other in checker.history.runs.values()):
        return "%d, but no newer dlock was there" % run.status
    return None


def problem_of_conflict(checker, run):
    if run.once is not None:
        return None  # judge_conflicts()
    if run.wait is None:
        return "75, but it was to wait for ever"
    waited = run.exit - run.spawned
    if waited < run.wait - 0.005:
        return "75 after %.3f s, but it was to wait for %.3f s" % (waited, run.wait)
    late = waited - (run.wait or GUARD_MOST) - checker.slack(run.exit) - 0.2
    if run.backend.startswith("quorum"):
        late -= SLOW_SERVER_MOST
    if late > 0 and run.backend == "file" and any(
            other.lock == run.lock and other.backend == "file" and other.frozen_during(run.spawned, run.exit)
            for other in checker.history.runs.values()):
        late -= SECTION_MOST
    if late > 0 and not run.disturbed and not window_statuses(checker, run) and not checker.machine_stalled(run):
        return "75 came %.3f s after the wait was over" % late
    return None


def judge_conflicts(checker, runs):
    """A run that was refused because others held the lock, or came first: somebody must have."""
    wanting = sorted((run for run in runs), key=lambda run: run.spawned)
    for run in wanting:
        if run.status != CONFLICT or run.start is not None:
            continue
        if run.once is not None:
            checker.counts[run.backend]["skips"] += 1
            if memory.may_be_done(checker, run, wanting):
                continue
            if run.wait is None or run.exit - run.spawned < run.wait - 0.005:
                checker.complain(run, "75, but no run was a success in the %.3f s before" % run.once)
                continue
        if any(begin <= run.exit and end + checker.slack(end) >= run.spawned for begin, end in pauses.possible(checker, run)):
            continue
        if not any(other is not run and other.spawned <= run.exit and other.held_until + checker.slack(run.spawned) >= run.spawned
                   for other in wanting):
            checker.complain(run, "75, but nobody held the lock or waited for it")
