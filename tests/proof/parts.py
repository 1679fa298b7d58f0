"""What a proof consists of, and how much of its time each part has.

A job is one run of a tool in the built tree, with the figures that it writes. The whole time of both lanes is 100; a job
that measures times has both lanes to itself.
"""

import os
from typing import Callable, NamedTuple

STAGES = ("file", "redis", "redis-aof", "redis-tls", "sentinel", "sentinel-replicas", "sentinel-all-replicas",
          "sentinel-network", "cluster", "cluster-replicas", "quorum3", "quorum5", "quorum3-network")
OTHER_SERVER_STAGES = ("redis", "redis-aof", "cluster", "quorum3")


class Part(NamedTuple):
    name: str            # its figures are between <!-- NAME --> and <!-- /NAME --> in the page
    share: float         # its part of the time of both lanes, in percent
    least: int           # seconds without which a job proves nothing
    over: int            # seconds that a job takes in addition to its --seconds
    jobs: tuple          # what the command is made for: stages, stores
    command: Callable    # of a Job: the words
    page: str = "reliability.md"
    needs: tuple = ()    # programs
    server: str = ""     # replaces redis-server: a kind of SERVERS
    alone: bool = False  # it measures times: nothing else runs


class Job(NamedTuple):
    part: Part
    what: str
    seconds: int   # in all
    seed: str
    figures: str   # the file that it writes
    folder: str    # for anything else it makes

    @property
    def name(self):
        return "%s/%s" % (self.part.name, self.what) if self.what else self.part.name

    def common(self):
        """The options that all tools share."""
        return ["--seed", self.seed, "--seconds", str(self.seconds - self.part.over), "--json", self.figures]


def campaign(job, *more):
    return ["python3", "tests/torture", "--stage", job.what, "--takes", "10000", *more, *job.common(), "src/dlock", "tests/helpers"]


def two_formats(job):
    return campaign(job, "--two-formats")


def model(job):
    return ["python3", "tests/model/model.py", "--steps", "1000000", "--backend", job.what, *job.common(), "src/dlock"]


def walk(job):
    return ["python3", "tests/faults/fault_walk.py", "--most", "25", "--workers", "1", *job.common(), "src/dlock",
            "tests/helpers/fail_nth.so"]


def fuzz(job):
    seed, seconds, figures = job.common()[1::2]
    return ["make", "-s", "fuzz", "FUZZ_SECONDS=" + seconds, "FUZZ_FLAGS=--jobs=1 --seed=%s --json=%s" % (seed, figures)]


def mutants(job):
    return ["python3", "tests/mutants/mutants.py", "--planted", "--count", "150", "--jobs", "1", "--least", "95", *job.common(), "."]


def soak(job):
    return ["python3", "tests/soak/soak.py", *job.common(), "src/dlock"]


def coverage(job):
    return ["make", "-s", "coverage", "COVERAGE_FLAGS=--by-chance 3 --json " + job.figures]


def bench(program, *words):
    def command(job):
        return ["python3", "tests/bench/" + program, *(word % job._asdict() for word in words), "--json", job.figures, "src/dlock"]
    return command


REDIS = ("redis-server", "setpriv")
PARTS = (
    Part("campaign", 14, 20, 15, STAGES, campaign, needs=REDIS),
    Part("campaign-redis-8", 4, 20, 15, OTHER_SERVER_STAGES, campaign, needs=REDIS, server="Redis 8"),
    Part("campaign-valkey", 4, 20, 15, OTHER_SERVER_STAGES, campaign, needs=REDIS, server="Valkey"),
    Part("two-formats", 4, 20, 15, ("file", "redis", "cluster", "quorum3"), two_formats, needs=REDIS),
    Part("model", 5, 10, 5, ("redis", "file"), model, needs=REDIS),
    Part("walk", 9, 30, 5, ("",), walk, needs=REDIS),
    Part("fuzz", 7, 180, 90, ("",), fuzz),
    Part("mutants", 25, 180, 120, ("",), mutants, needs=("bats", "unshare", *REDIS)),
    Part("soak", 3, 10, 5, ("",), soak, needs=REDIS),
    Part("coverage", 5, 600, 0, ("",), coverage, needs=("gcov", "bats", *REDIS)),
    Part("run", 4, 250, 0, ("",), bench("bench.py", "--runs", "300", "--idle", "--tls", "--quorum"), "benchmarks.md", ("flock",), alone=True),
    Part("waiting", 10, 650, 0, ("",), bench("bench_waiting.py", "--svg", "%(folder)s/handoff.svg"), "benchmarks.md", ("flock",), alone=True),
    Part("shared", 6, 400, 0, ("",), bench("bench_shared.py", "--svg", "%(folder)s/sharers.svg"), "benchmarks.md", alone=True),
)


def plan(parts, seconds, seed, folder, lacks):
    """The jobs that fit the time, in the order in which they start, and why the others do not run.

    `lacks` says of a part what is missing for it here, or None. What such a part does not use, the others have.
    """
    missing = {part.name: lacks(part) for part in parts}
    whole = sum(part.share for part in parts if not missing[part.name])
    jobs, not_run = [], {}
    for part in parts:
        room = seconds * part.share / max(whole, 1) * (1 if part.alone else 2)
        fits = min(len(part.jobs), int(room // part.least))
        for number, what in enumerate(part.jobs):
            job = Job(part, what, int(room / max(fits, 1)), seed, "", folder)
            job = job._replace(figures=os.path.join(folder, job.name.replace("/", "-") + ".json"))
            if missing[part.name]:
                not_run[job.name] = missing[part.name]
            elif number >= fits:
                not_run[job.name] = "needs %d s, and the plan has %d s for %s" % (part.least, room, part.name)
            else:
                jobs.append(job)
    return sorted(jobs, key=lambda job: (job.part.alone, -job.seconds)), not_run
