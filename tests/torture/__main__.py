"""Tries to break the promise of dlock, and judges what came of it.

    python3 tests/torture [OPTIONS] PATH-TO-DLOCK PATH-TO-HELPERS
    python3 tests/torture --check LOG...

Many locks have contenders that come back for more. Meanwhile processes are killed and frozen, locks are taken away and
servers fail. All of that goes into a log, which is then judged. Exit status: 0 all was as promised, 1 it was not, 77 no
stage can be had here.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile

sys.path[:0] = [(HERE := os.path.dirname(os.path.abspath(__file__))), os.path.join(HERE, "..", "lib")]

# pylint: disable=wrong-import-position
from campaign import Campaign, keep
from checker import check
from figures import CANNOT_RUN, add_options
from orphans import become_subreaper
from stages import MODULES, Missing, make


def be_on_time():
    """Actions on a process come on time even on a busy machine. This does not apply to processes that it starts."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, -10)


def on_terminate(_number, _frame):
    raise SystemExit(1)


def make_stages(options, work, stack):
    """The available stages; prints why the others are not."""
    stages = []
    for name in options.stage.split(","):
        try:
            stage = make(name, work, random.Random("%s/%s" % (options.seed, name)))
        except Missing as missing:
            print("skipped: %s" % missing, flush=True)
            continue
        stack.callback(stage.close)
        stages.append(stage)
    return stages


def play(options):
    """One campaign. Returns the exit status."""
    print("replay: --plan %s --stage %s --seed %s --takes %d --seconds %g --locks %d --pace %d%s" % (
        options.plan, options.stage, options.seed, options.takes, options.seconds, options.locks, options.pace,
        (" --only '%s'" % ",".join(options.only) if options.only else "") + (" --two-formats" if options.two_formats else "")), flush=True)
    with contextlib.ExitStack() as stack:
        work = tempfile.mkdtemp(prefix="dlock-torture-")
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        stages = make_stages(options, work, stack)
        if not stages:
            return CANNOT_RUN
        campaign = Campaign(options, work, stages, stack)
        campaign.play()
        good = check(campaign.log_path, options.strict_ttl / 1000, options.json)
        if not good and options.log is None:
            print("the history is kept in %s" % keep(campaign.log_path))
    return 0 if good else 1


def check_all(paths, strict_ttl):
    """Returns the exit status."""
    status = 0
    for path in paths:
        good = check(path, strict_ttl)
        print("%s: %s as promised" % (path, "all" if good else "not"))
        status = status if good else 1
    return status


def parser():
    parse = argparse.ArgumentParser(prog="torture", description="Try to break the promise of dlock.")
    parse.add_argument("--check", metavar="LOG", nargs="+", help="only judge the history in each LOG")
    parse.add_argument("--plan", choices=("takes", "ends"), default="takes",
                       help="many short commands in all modes while stores fail, or the ends of leases (default: takes)")
    parse.add_argument("--stage", default="file,redis", metavar="LIST",
                       help="of %s; several play at once (default: file,redis)" % ", ".join(MODULES))
    parse.add_argument("--takes", type=int, default=10 ** 9, metavar="N", help="end after so many on each stage")
    add_options(parse, seconds=120)
    parse.add_argument("--locks", type=int, default=20, metavar="N", help="locks on each stage (default: 20)")
    parse.add_argument("--pace", type=int, default=100, metavar="PERCENT", help="of the takes between two faults")
    parse.add_argument("--only", default="", metavar="LIST", help="only these faults and deeds; none: nothing is done")
    parse.add_argument("--ttl-least", type=int, default=100, metavar="MS", help="shortest lease of ends (default: 100)")
    parse.add_argument("--ttl-most", type=int, default=1500, metavar="MS", help="longest lease of ends (default: 1500)")
    parse.add_argument("--strict-ttl", type=int, default=500, metavar="MS",
                       help="from this TTL on each overlap counts; below it one of a few ms at the lease's end is only "
                       "told of (default: 500)")
    parse.add_argument("--tree", action="store_true", help="ends: run dlock with --tree, and want what that promises")
    parse.add_argument("--two-formats", action="store_true", help="of the runs a part, drawn for each lock, are of the next format")
    parse.add_argument("--plant", action="store_true", help="have a part of the takes go past the lock: must be found")
    parse.add_argument("--log", metavar="FILE", help="keep the history here")
    parse.add_argument("dlock", nargs="?", metavar="PATH-TO-DLOCK")
    parse.add_argument("helpers", nargs="?", metavar="PATH-TO-HELPERS", help="directory of stress_worker, refuse_call and fault_*.so")
    return parse


def main():
    parse = parser()
    options = parse.parse_args()
    if options.check is not None:
        return check_all(options.check, options.strict_ttl / 1000)
    if options.helpers is None:
        parse.error("the paths of dlock and of its tests' helpers are missing")
    options.dlock, options.helpers = os.path.abspath(options.dlock), os.path.abspath(options.helpers)
    options.next_dlock = os.path.join(options.helpers, "next", "dlock")
    options.worker = os.path.join(options.helpers, "stress_worker")
    os.environ["TORTURE_WALL_CLOCK"] = os.path.join(options.helpers, "fault_wall_clock.so")
    options.log = options.log and os.path.abspath(options.log)
    options.only = options.only.split(",") if options.only else []
    options.seed = options.seed or str(random.SystemRandom().randrange(10 ** 6))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    become_subreaper()
    be_on_time()
    return play(options)


if __name__ == "__main__":
    sys.exit(main())
