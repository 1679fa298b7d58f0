"""Plays the faults of one stage, one after the other, while workers contend for its locks.

    python3 rehearse.py DLOCK STAGE [--seed S] [--rounds N] [--only FAULT,...] [--seconds N] [--takes N]

It tells what each fault did to those who wanted the locks. Exit status 1: two commands ran at once, or a fence did
not rise, across faults that may not lose a lock; nobody got a lock for long after a fault was over; or a lock was left.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import stages

# The kernel's lock ends with the process, however that ends: who finds it has found a command of another holder alive.
# What follows in the log is in the order of the holders, as long as there is one at a time.
COMMAND = r"""exec 9>>"$MARK"
flock -n 9 || echo "overlap $DLOCK_NAME $DLOCK_FENCE" >>"$LOG"
echo "take $DLOCK_NAME $DLOCK_FENCE" >>"$LOG"
exec sleep "$SECONDS_LONG"
"""
TTL = 5.0
PROGRESS_LIMIT = 3 * TTL  # what a fault has left behind clears with its lease


class Rehearsal:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.log = os.path.join(work, "log")
        with open(self.log, "w", encoding="utf-8"):
            pass
        self.ending = threading.Event()
        self.statuses, self.said = collections.Counter(), collections.Counter()
        self.current, self.wrong = "none", []
        self.stage = None

    def environment(self, lock, rng):
        env = {name: value for name, value in os.environ.items() if not name.startswith("DLOCK_")}
        return dict(env, MARK=os.path.join(self.work, lock), LOG=self.log, SECONDS_LONG="%.3f" % rng.uniform(0.005, 0.06))

    def worker(self, number):
        rng = random.Random("%s/%d" % (self.options.seed, number))
        argv = [self.options.dlock] + self.stage.arguments() + ["-t", str(TTL), "--outage=2s", "--connect-timeout=1s"]
        while not self.ending.is_set():
            lock = "lock%d" % rng.randrange(self.options.locks)
            words = argv + [rng.choice(("--wait=6", "--wait=6", "--wait=6", "--nonblock")), lock, "--", "sh", "-c", COMMAND]
            begin = time.monotonic()
            run = subprocess.run(words, env=self.environment(lock, rng), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, check=False)
            self.statuses[run.returncode] += 1
            said = run.stderr.decode(errors="replace").strip()[-300:]
            if run.returncode not in (0, 69, 75):
                self.said["%s: %d: %s" % (self.current, run.returncode, said)] += 1
            if time.monotonic() - begin > 6 + 2 * TTL:
                self.wrong.append("a run took %.1f s: %d: %s" % (time.monotonic() - begin, run.returncode, said))

    def count(self, event):
        return len(self.events(event))

    def events(self, event):
        with open(self.log, encoding="utf-8") as file:
            return [line.split()[1:] for line in file if line.startswith(event)]

    def play(self):
        options, rng = self.options, random.Random(self.options.seed)
        self.stage = stages.make(options.stage, os.path.join(self.work, "stage"), rng)
        try:
            workers = [threading.Thread(target=self.worker, args=(number,)) for number in range(options.workers)]
            for worker in workers:
                worker.start()
            try:
                self.play_all(rng)
            finally:
                self.ending.set()
                for worker in workers:
                    worker.join()
            self.look_for_rest()
        finally:
            self.stage.close()
        self.judge_fences()

    def play_all(self, rng):
        self.wait_for_takes(3)
        faults = self.stage.faults()
        only = self.options.only.split(",") if self.options.only else [fault.name for fault in faults]
        unknown = set(only) - {fault.name for fault in faults}
        if unknown:
            raise SystemExit("no such fault: %s; there are %s" % (unknown, ", ".join(fault.name for fault in faults)))
        for _ in range(self.options.rounds):
            for fault in faults:
                if fault.name in only:
                    self.play_one(fault, rng)

    def play_one(self, fault, rng):
        self.current = fault.name
        takes, overlaps = self.count("take"), self.count("overlap")
        words = fault.begin(rng)
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end and (not self.options.takes or self.count("take") - takes < self.options.takes):
            time.sleep(0.02)
        during = self.count("take") - takes
        begin = time.monotonic()
        fault.end()
        self.stage.heal()
        healed = time.monotonic()
        self.wait_for_takes(3)
        overlaps = self.count("overlap") - overlaps
        if overlaps and not fault.may_lose:
            self.wrong.append("%d overlaps across %s" % (overlaps, fault.name))
        print("%s (%s): %d takes during it, healed in %.2f s, taken again %.2f s later, %s%d overlaps" % (
            fault.name, words, during, healed - begin, time.monotonic() - healed, "may lose: " * fault.may_lose, overlaps),
            flush=True)

    def wait_for_takes(self, more):
        wanted, end = self.count("take") + more, time.monotonic() + PROGRESS_LIMIT
        while self.count("take") < wanted:
            if time.monotonic() > end:
                self.wrong.append("nobody got a lock for %g s after %s" % (PROGRESS_LIMIT, self.current))
                return
            time.sleep(0.02)

    def look_for_rest(self):
        """A lease of a release that did not arrive ends by itself."""
        end = time.monotonic() + TTL + 2
        while self.stage.locks() and time.monotonic() < end:
            time.sleep(0.1)
        if self.stage.locks():
            self.wrong.append("left: %s" % self.stage.locks())

    def judge_fences(self):
        last, falls = {}, []
        for name, fence in self.events("take"):
            if int(fence) <= last.get(name, 0):
                falls.append("the fence %s of %s is not above %d" % (fence, name, last[name]))
            last[name] = int(fence)
        if self.stage.exclusive:
            self.wrong += falls
        else:
            for fall in falls:
                print("may lose: " + fall)

    def report(self):
        print("statuses: %s" % ", ".join("%d: %d" % item for item in sorted(self.statuses.items())))
        for text, count in self.said.most_common():
            print("%d times: %s" % (count, text))
        for text in self.wrong:
            print("wrong: " + text)
        return 1 if self.wrong else 0


def on_terminate(_number, _frame):
    raise SystemExit(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dlock")
    parser.add_argument("stage")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", metavar="FAULT,...")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each fault lasts")
    parser.add_argument("--takes", type=int, default=0, help="it is over when there were so many")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--locks", type=int, default=3)
    options = parser.parse_args()
    options.dlock = os.path.abspath(options.dlock)
    signal.signal(signal.SIGTERM, on_terminate)
    work = tempfile.mkdtemp(prefix="dlock-rehearsal-")
    try:
        rehearsal = Rehearsal(options, work)
        rehearsal.play()
        return rehearsal.report()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
