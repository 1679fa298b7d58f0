"""Runs the jobs of a proof: several at a time, or one that measures times and has the machine to itself."""

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import NamedTuple

from figures import CANNOT_RUN

LANES = 2
TICK = 0.1
STOP_LIMIT = 30.0


def hang_limit(job):
    """A job that takes longer is taken to hang."""
    return 2 * job.seconds + 600


class Running(NamedTuple):
    job: object
    process: subprocess.Popen
    begun: float
    log: str


class Runner:
    """Works in the built tree; `done` is called with a job and its result when it has ended."""

    def __init__(self, tree, folder, environment, done):
        self.tree, self.folder, self.environment, self.done = tree, folder, environment, done
        self.running = []

    def run(self, jobs):
        """Runs the jobs in this order. If it is interrupted, running jobs are stopped and have no result."""
        waiting = list(jobs)
        try:
            while waiting or self.running:
                while waiting and self.may_start(waiting[0]):
                    self.start(waiting.pop(0))
                time.sleep(TICK)
                self.reap()
        finally:
            for one in self.running:
                self.stop(one)

    def may_start(self, job):
        return not self.running or not job.part.alone and len(self.running) < LANES and not self.running[0].job.part.alone

    def start(self, job):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(job.figures)
        log = job.figures[:-len(".json")] + ".log"
        with open(log, "wb") as output:
            # It has its own session, so that only this program ends it, with everything that it has started.
            process = subprocess.Popen(job.part.command(job), cwd=self.tree, env=self.environment(job), stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self.running.append(Running(job, process, time.monotonic(), log))

    def reap(self):
        for one in list(self.running):
            hangs = time.monotonic() - one.begun > hang_limit(one.job)
            if hangs:
                self.stop(one)
            if one.process.poll() is not None:
                self.running.remove(one)
                self.done(one.job, result_of(one, hangs))

    @staticmethod
    def stop(one):
        """It cleans up on SIGTERM; whatever is left then is killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(STOP_LIMIT)


def result_of(one, hangs):
    status = one.process.returncode
    result = {"status": "passed", "seconds": round(time.monotonic() - one.begun), "log": os.path.basename(one.log)}
    if status != 0 or hangs:
        with open(one.log, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()] or ["no word of it"]
        # A tool names what is missing in a line of its own.
        why = next((line for line in lines if line.startswith("skipped: ")), lines[-1])
        result.update(status="not run" if status == CANNOT_RUN else "failed",
                      why=why if status == CANNOT_RUN else "hung" if hangs else "exit status %d, see %s" % (status, result["log"]))
    with contextlib.suppress(OSError, ValueError), open(one.job.figures, encoding="utf-8") as file:
        result["figures"] = json.load(file)
    if result["status"] == "passed" and "figures" not in result:
        result.update(status="failed", why="no figures, see %s" % result["log"])
    return result
