"""The judge of pauses: while a lock is paused, and the pause was acknowledged, nobody acquires it.

A pause is asked for between `before` and `after`, so it begins no later than that, and ends no sooner than its length after
`before`. Whatever pauses or resumes the lock later replaces it.
"""

# A pause that was not acknowledged may still be on its way.
LATE = 5.0
# A lock acquired before a pause, whose request is repeated because the reply was lost.
ASKED_AGAIN = 3.0
# A server that fails this soon after a pause may not have told its replicas.
AFTER_THE_PAUSE = 1.0


def certain(pauses):
    """(pause, begin, end): how long the lock is certainly paused."""
    for pause in pauses:
        if pause.ok and pause.length:
            end = min([pause.before + pause.length] +
                      [other.before for other in pauses if other is not pause and other.after > pause.before])
            if end > pause.after:
                yield pause, pause.after, end


def possible(checker, run):
    """(begin, end): how long this run's lock may have been paused."""
    pauses = checker.history.pauses[run.backend, run.lock]
    back = sum(window.back for window in checker.history.windows if window.backend == run.backend)
    for pause in pauses:
        if pause.length:
            end = pause.after + pause.length + back + (0 if pause.ok else LATE)
            yield pause.before, min([end] + [other.after for other in pauses if other.ok and not other.length and
                                             other.before >= pause.after])


def judge(checker, started):
    if not started:
        return
    windows = [window for window in checker.history.windows if window.backend == started[0].backend]
    for pause, begin, end in certain(checker.history.pauses[started[0].backend, started[0].lock]):
        checker.counts[started[0].backend]["pauses"] += 1
        if any(window.touches(pause.before, pause.after + AFTER_THE_PAUSE) for window in windows):
            continue
        for run in started:
            if begin < run.start < end and run.name == run.lock and taken_after(checker, run, begin, windows) and \
                    not any((window.may_lose or window.forgets) and window.touches(pause.before, run.start)
                            for window in windows):
                checker.complain(run, "it started %.3f s after the lock was paused, and %.3f s before the end of the pause" % (
                    run.start - begin, end - run.start))


def taken_after(checker, run, begin, windows):
    """Whether it has certainly acquired the lock after that time."""
    if run.earliest_take >= begin:
        return True
    return run.start > begin + checker.slack(begin, run.start) and not run.freezes and not any(
        window.touches(begin - ASKED_AGAIN, run.start) for window in windows)
