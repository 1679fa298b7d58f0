"""The runs of tests/faults/fault_walk.py, what must hold for each run, and the exceptions."""

import errno
import os
import signal
import socket
import time

from fault_lab import COMMAND_STATUS, Scenario, read

# status.h, without what belongs to the command
DOCUMENTED = {64, 69, 70, 71, 73, 75, 77, 78, 124, 126, 127, 128 + signal.SIGKILL}


# ---- what must hold ----

# Messages cannot be written if writing itself fails.
MUTE = {"write", "poll", "fclose", "fflush"}


def judge(lab, scenario, failure, run):
    """What is wrong with a run, as a list of texts for people."""
    wrong = []
    ended, started = "end" in run.events, "start" in run.events
    plain = failure is None or failure.changes_nothing
    if run.hung:
        wrong.append("it hangs")
    if run.left:
        wrong.append("left behind: %s" % run.left)
    if run.status < 0 and not run.hung:
        wrong.append("killed by signal %d" % -run.status)
    if "Sanitizer" in run.stderr or "runtime error" in run.stderr:
        wrong.append("a sanitizer speaks")
    if started and scenario.status == 75:
        wrong.append("the command runs while another has the lock")
    elif started and not run.held:
        wrong.append("the command runs without its lock")
    if run.held_at_end is False and run.status == scenario.status and scenario.meanwhile is None:
        wrong.append("the lock is not held when the command ends, and dlock does not say so")
    if run.lock_left and not scenario.stays and not lock_may_stay(scenario, failure, run):
        wrong.append("%s is left" % run.lock_left)
    wrong += judge_status(scenario, failure, run, plain, ended)
    wrong += getattr(run, "judged", None) or []
    return [text for text in wrong if not excused(scenario, failure, run, text)]


def judge_status(scenario, failure, run, plain, ended):
    wrong = []
    right = {scenario.status, *scenario.statuses}
    if plain and run.status != scenario.status:
        wrong.append("status %s, not %s" % (run.status, scenario.status))
    elif run.status not in right | DOCUMENTED:
        wrong.append("status %s is not documented" % run.status)
    if scenario.run and run.status == COMMAND_STATUS and not ended:
        wrong.append("the command's status, but it has not come to its end")
    if scenario.run and ended and run.status not in right and run.status != 124:
        wrong.append("the command has come to its end, but its status is not told")
    told = run.stderr or "error" in run.stdout or "  fail  " in run.stdout
    if run.status not in right and not told and (failure is None or failure.function not in MUTE):
        wrong.append("a failure without a word")
    return wrong


def lock_may_stay(scenario, failure, run):
    """Whether what is left is as it should be.

    In Redis: a lock that could not be released, or given back, expires by itself, which must be reported. A request whose
    reply could not be read may have been carried out; if everything fails from then on, nothing can be done.
    If poll() fails, that cannot be reported either.
    On a minority of a quorum: it is no lock, blocks nobody, expires by itself, and is reported only with -v.
    In files: a file that cannot be checked, locked or removed stays, and blocks nobody.
    """
    if failure is None:
        return False
    if scenario.name == "redis_doctor":
        return failure.kind == "rest"  # the lock of its own trial, of a few seconds
    if run.lock_left == "the lock file":
        return failure.function in FILE_CALLS or failure.kind in ("rest", "limit")
    if run.lock_left == "a part of the lock":
        return not failure.changes_nothing
    if (failure.function, failure.kind) == ("poll", "rest"):
        return True
    return "held until its lease ends" in run.stderr + run.stdout


FILE_CALLS = {"fcntl64", "fstat64", "lstat64", "unlink", "flock"}

# Further results that a failure may have, and why: (function, kind, number) with None for any, what is wrong.
EXCUSED = (
    # A stack too small for the program's variables is not a failed call.
    ("STACK", "limit", None, "killed by signal"),
    # The command itself has no descriptor or process left.
    ("NOFILE", "limit", None, "the command's status, but it has not come to its end"),
    ("NOFILE", "limit", None, "status 2 is not documented"),
    ("NOFILE", "limit", None, "status 7 is not documented"),
    ("NOFILE", "limit", None, "a failure without a word"),
    ("NPROC", "limit", None, "status 2 is not documented"),
    # The system may refuse the program itself, which the shell or the kernel then reports.
    ("AS", "limit", None, "is not documented"),
    ("AS", "limit", None, "killed by signal"),
    # A guard that finds no children ends; dlock then kills what is left of the command, and says so.
    ("waitpid", "error", errno.ECHILD, "but its status is not told"),
    # Only dlock reaps its children, so waitid(2) finds them.
    ("waitid", "error", errno.ECHILD, "but its status is not told"),
)


def excused(scenario, failure, run, text):
    if failure is None:
        return False
    if (failure.kind, failure.number) == ("ahead", time.CLOCK_BOOTTIME):
        # An hour later every lease has ended, even others'; and the kernel's timers do not notice.
        return scenario.status == 75 or not text.startswith(("the command runs", "it hangs"))
    if "cannot read the clock" in run.stderr:
        # As if dlock is killed: the kernel frees the lock, and kills the command in the same moment.
        return not text.startswith("it hangs")
    if "nss_database" in run.stderr:
        # The C library ends a program that looks up a user without memory for its list of sources.
        return text.startswith(("killed by signal", "status -%d " % signal.SIGABRT))
    if run.status < 0 and failure.function in ("STACK", "AS"):
        return not text.startswith("the command runs")
    if scenario.name.endswith("_tree") and failure.function in ("send", "recv") and failure.number in (errno.EPIPE, errno.ECONNRESET):
        # The guard's socket breaks only if dlock is gone: the guard kills the command.
        return run.status == 128 + signal.SIGKILL and not text.startswith(("the command runs", "it hangs"))
    if scenario.name == "file_resume" and (failure.function, failure.number) == ("lstat64", errno.EIO):
        # The pause has ended, but the file could not be checked; the next request finds no pause to end.
        return text == "status 1 is not documented"
    return any(function in (failure.function, None) and kind in (failure.kind, None) and number in (failure.number, None) and wrong in text
               for function, kind, number, wrong in EXCUSED)


# ---- the scenarios ----

FILE, SERVER = "--backend=file --lock-dir=%(dir)s/locks", "-r %(redis0)s"
REDIS = SERVER + " --retry-for=500ms"
QUORUM = "-r %(redis0)s -r %(redis1)s -r %(redis2)s --retry-for=500ms"
COMMAND_WORDS = " -t 60s job -- %(command)s"


def beat(_lab, words):
    """The command's heartbeat, sent on its behalf."""
    if words[1].startswith("@"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto(b"WATCHDOG=1", "\0" + words[1][1:])
            except OSError:
                pass


def lose(lab, _words):
    """Another process removes the lock."""
    for client in lab.clients:
        client.ask("DEL", "dlock:job")
    try:
        os.unlink(lab.path("locks/dlock:job.lock"))
    except FileNotFoundError:
        pass


def judge_acquired(lab, failure, run):
    """Status 0: the lock is held, and the output is its token, which releases it. Otherwise it is not held."""
    redis = "redis" in run.scenario.name
    place = SERVER if redis else FILE
    held = lab.plain(place + " --status job").returncode == 0
    if run.status != 0:
        told = "held until its lease ends" in run.stderr or "cannot read the clock" in run.stderr
        if held and not redis:
            lab.plain(place + " --force-release job")
        return ["not acquired, but the lock is left"] if held and not told else []
    if not held:
        return ["acquired, but the lock is not held"]
    token = run.stdout.strip()
    if not token or lab.plain("%s --release --owner=%s job" % (place, token)).returncode != 0:
        return ["acquired, but what was printed does not release it"]
    return []


def judge_released(lab, failure, run):
    return ["released, but the lock is held"] if run.status == 0 and run.lock_left == "the lock" else []


def judge_report(lab, failure, run):
    lines = read(lab.path("report")).splitlines()
    cut = failure is not None and failure.function == "FSIZE"
    if len(lines) > 1 or (not cut and any(not line.endswith("}") for line in lines)):
        return ["the report is not one whole line: %r" % lines]
    if not lines and run.status == COMMAND_STATUS and "start" in run.events and "report" not in run.stderr:
        return ["no report, and not a word about it"]
    return []


def judge_status_told(lab, failure, run):
    return ["free, it says, but it is held"] if run.status == 1 else []


PAUSE = "--pause=1h --message=why job"


def pause(lab, _words):
    """Another process pauses the lock, unless the failed run keeps its file locked."""
    lab.paused = lab.plain(FILE + " " + PAUSE).returncode == 0
    if lab.clients:
        lab.plain(SERVER + " " + PAUSE)


def judge_paused(lab, failure, run):
    """After status 0 the lock is paused, and stays so except after a --resume."""
    paused = '"message":"why"' in lab.plain(run.scenario.place + " --status --json job").stdout
    if "--resume" in run.scenario.words:
        return ["resumed, it says, but it is paused"] if run.status in (0, 1) and paused else []
    right = run.status == 0 if run.scenario.status == 0 else run.scenario.first == PAUSE or ("start" in run.events and lab.paused)
    return ["it is not paused"] if right and not paused else []


def judge_never_ran(lab, failure, run):
    return ["it never ran, and that is not what it says"] if run.status == 0 else []


def judge_ran(lab, failure, run):
    return ["it ran, and that is not what it says"] if run.status == 1 else []


def judge_memory(lab, failure, run):
    """The run is remembered as it ended, or not at all; without a failure it is remembered."""
    told = lab.plain(run.scenario.place + " --status --json job").stdout
    right = '"status":%d' % COMMAND_STATUS in told.partition('"last_run":')[2].partition("}")[0]
    wrong = '"last_success":null' not in told
    if run.status == COMMAND_STATUS and (wrong or (failure is None and not right)):
        return ["its end is remembered wrongly"]
    return []


def both(name, words, **more):
    return [Scenario("file_" + name, FILE + " " + words, place=FILE, **more),
            Scenario("redis_" + name, REDIS + " " + words, place=SERVER, redis=1, **more)]


SCENARIOS = [
    Scenario("file", FILE + COMMAND_WORDS, fresh=True, as_nobody=True),
    Scenario("redis", REDIS + COMMAND_WORDS, redis=1, as_nobody=True),
    *both("watched", "job -- %(command)s", go=0.045, most=60),
    *both("wait", "--wait=5s" + COMMAND_WORDS, holder=True, most=60),
    *both("acquire", "--acquire job", run=False, status=0, stays=True, judge=judge_acquired),
    *both("release", "--release --owner=token0 job", run=False, status=0, stays=True, judge=judge_released, most=80, before=True),
    *both("extend", "--extend --owner=token0 job", run=False, status=0, stays=True, most=40, before=True),
    *both("ran_within", "--ran-within=1h job", fresh=True, run=False, status=1, most=60, judge=judge_never_ran),
    *both("ran_within_done", "--ran-within=3h job", first="job -- true", run=False, status=0, most=60, judge=judge_ran),
    *both("once", "--once-per=1h" + COMMAND_WORDS, fresh=True, most=60, judge=judge_memory),
    *both("once_done", "--once-per=3h" + COMMAND_WORDS, first="job -- true", status=75, most=60),
    *both("pause", PAUSE, run=False, status=0, stays=True, most=60, judge=judge_paused),
    *both("pause_again", PAUSE, first="--pause=1m --message=less job", run=False, status=0, stays=True, most=40, judge=judge_paused),
    *both("resume", "--resume job", first=PAUSE, run=False, status=0, stays=True, most=60, judge=judge_paused),
    *both("resume_none", "--resume job", run=False, status=1, most=40),
    *both("paused", "-n" + COMMAND_WORDS, first=PAUSE, stays=True, status=75, most=60, judge=judge_paused),
    *both("paused_meanwhile", COMMAND_WORDS, meanwhile=pause, go=0.1, stays=True, most=60, judge=judge_paused),
    *both("message", "--message=why" + COMMAND_WORDS, most=40),
    *both("status", "--status job", run=False, status=0, stays=True, judge=judge_status_told, most=60, before=True),
    *both("list", "--list", run=False, status=0, stays=True, most=60, before=True),
    *both("attach", "--attach job", script=True, go=0.01, most=60),
    *both("tree", "--tree" + COMMAND_WORDS, fresh=True, as_nobody=True, most=60),
    *both("heartbeat", "--heartbeat" + COMMAND_WORDS, meanwhile=beat, go=0.06, most=40),
    *both("shared", "--shared" + COMMAND_WORDS, most=60),
    *both("slots", "--slots=2" + COMMAND_WORDS, most=60),
    *both("report", "-v --json --report=%(dir)s/report" + COMMAND_WORDS, judge=judge_report, most=60),
    *both("lease_end", "-t 400ms --grace=200ms job -- %(command)s", status=124, go=None, most=8),
    *both("lost", "-t 3s --grace=500ms job -- %(command)s", status=124, go=None, meanwhile=lose, most=15),
    *both("held", "-n" + COMMAND_WORDS, before=True, stays=True, status=75),
    *both("held_shared", "-n --shared" + COMMAND_WORDS, before=True, stays=True, status=75, most=60),
    *both("held_by_shared", "-n" + COMMAND_WORDS, before=True, before_words="--shared", stays=True, status=75, most=60),
    *both("slots_full", "-n --slots=1" + COMMAND_WORDS, before=True, before_words="--slots=1", stays=True, status=75, most=60),
    *both("held_alive", "-n" + COMMAND_WORDS, holder=True, status=75, most=60),
    Scenario("file_conf", "job -- %(command)s"),
    Scenario("file_exact", "--lock-file=%(dir)s/exact -t 60s -- %(command)s", file="exact", most=60),
    Scenario("redis_hash", REDIS + " --secret-file=%(dir)s/secret" + COMMAND_WORDS, redis=1, most=25),
    Scenario("quorum", QUORUM + COMMAND_WORDS, redis=3, go=0.045, most=60),
    Scenario("file_doctor", FILE + " --doctor job", run=False, status=0, statuses=(1,), most=20),
    Scenario("redis_doctor", REDIS + " --doctor job", redis=1, run=False, status=0, statuses=(1,), most=20),
]
