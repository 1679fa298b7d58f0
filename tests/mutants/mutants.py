#!/usr/bin/env python3
"""Makes small mistakes in the core of dlock, one at a time, and shows which of them no test finds.

Each mutant is built in a copy of the built tree; its tests (areas.py) run until one fails. A test of bats that fails is
run again alone, and then without the mistake, before it counts. A mutant that does not compile, whose object is the same
as without it, or that is known to change nothing (equivalent.py), is not judged. With --planted, the old behaviours that
doc/defects.md names are planted first (planted.py), and only the tests that it names for them run. All of it runs in a
pid namespace of its own: a mutant may kill whatever it can reach.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import areas
import mutate
from equivalent import why_equivalent
from mutate import Mutant
from planted import Planted, planted_in

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from figures import CANNOT_RUN, Table, add_options, report_of, write_figures

NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] + ["--user", "--map-root-user"] * (os.geteuid() != 0)
# A suite that takes longer than this hangs.
HANG_SECONDS = 240
# Most mutants of one function, so that large ones do not get all of them.
FUNCTION_MOST = 4
SCRIPT_MOST = 25

NOT_JUDGED = {"equal": "changed nothing", "no code": "did not compile", "skipped": "whose tests are skipped or fail anyway",
              "no time": "not reached in time"}
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
Verdict = collections.namedtuple("Verdict", "mutant kind by seconds")
printing = threading.Lock()


def say(*words):
    with printing:
        print(*words, flush=True)


def draw(root, seed, only, every):
    """The mutants in the order of the seed: all of them, or as many of a function as permitted. A change of one line moves no
    other mutant, so that the survivors of an earlier sample can be judged again."""
    found = [mutant for path in sorted(areas.AREAS) if any(part in path for part in only)
             for mutant in mutate.mutants_of(path, (root / path).read_text(encoding="utf-8"))]
    found.sort(key=lambda mutant: hashlib.sha256(repr((seed, mutant._replace(line=0))).encode()).digest())
    taken, lines = collections.Counter(), set()
    for mutant in found:
        of, line = (mutant.file, mutant.function), (mutant.file, mutant.line)
        if every or line not in lines and taken[of] < (SCRIPT_MOST if mutant.function == "the script" else FUNCTION_MOST):
            taken[of] += 1
            lines.add(line)
            yield mutant


class Tree:
    """A copy of the tree, for one mutant at a time."""

    def __init__(self, root, folder):
        self.root, self.tmp = folder / "t", folder / "tmp"
        unneeded = ".git", "autom4te.cache", "__pycache__", "dlock-[0-9]*"  # make dist may be removing the last of them
        shutil.copytree(root, self.root, symlinks=True, ignore=shutil.ignore_patterns(*unneeded))
        self.tmp.mkdir()
        self.running = set()

    def make(self, *targets):
        tools = ["%s=:" % tool for tool in ("ACLOCAL", "AUTOCONF", "AUTOHEADER", "AUTOMAKE")]
        return subprocess.run(["make", "-s", "WARN_CFLAGS=-w", *tools, *targets], cwd=self.root, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def digest(self, target):
        """Of the code alone."""
        if target.endswith(".h"):
            return hashlib.sha256((self.root / target).read_bytes()).digest()
        stripped = self.tmp / "stripped.o"
        subprocess.run(["objcopy", "--strip-debug", "--remove-section=.note.gnu.build-id", self.root / target, stripped], check=True)
        return hashlib.sha256(stripped.read_bytes()).digest()

    def run(self, command, backend, seconds):
        """How each test ended: (name, PASSED, FAILED or SKIPPED); a last one with the name None: whether all ended in time."""
        environment = dict(os.environ, DLOCK=str(self.root / "src/dlock"), HELPERS=str(self.root / "tests/helpers"),
                           TMPDIR=str(self.tmp), LC_ALL="C.UTF-8", BACKEND=backend, CMOCKA_MESSAGE_OUTPUT="TAP")
        # It has its own session, too: a signal to a process group reaches members outside the namespace.
        with subprocess.Popen(NAMESPACE + command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
            self.running.add(process)
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            begun = time.monotonic()
            try:
                for line in process.stdout:
                    found = re.match(r"(not )?ok \d+ (?:- )?(.*?)( # skip.*)?$", line)
                    if found:
                        yield found.group(2), FAILED if found.group(1) else SKIPPED if found.group(3) else PASSED
                status = process.wait()
                yield None, PASSED if status >= 0 and (status == 0 or command[0] == "bats") else FAILED
            finally:
                timer.cancel()
                process.kill()
                self.running.discard(process)
                if time.monotonic() - begun > seconds:
                    say("# not in time: %s" % " ".join(command))

    def test(self, name, bats_jobs, seconds, alone=None):
        file, _, backend = name.partition(":")
        if file.startswith("unit/"):
            return self.run(["tests/" + file], backend, seconds)
        if file == "rows":
            return self.run(["python3", "-B", "tests/redis/scripts/run.py", "--tap", "src/store/redis/scripts/embedded.h"] + ([alone] if alone else []), backend, seconds)
        only = ["-f", "^%s$" % re.sub(r"([][\\.*^$+?(){}|])", r"\\\1", alone)] if alone else ["--jobs", str(bats_jobs)]
        return self.run(["bats", "--tap", *only, "tests/%s.bats" % file], backend, seconds)


class Mutants:
    def __init__(self, options, root, folder):
        self.options = options
        self.trees = queue.SimpleQueue()
        self.control, self.controls, self.sound = Tree(root, folder / "control"), threading.Lock(), {}
        self.stopped = False
        self.copies = [Tree(root, folder / str(number)) for number in range(options.jobs)]
        for tree in self.copies:
            self.trees.put(tree)
        for number in signal.SIGTERM, signal.SIGINT:
            signal.signal(number, self.stop)

    def stop(self, *_):
        """What is being judged does not count."""
        self.stopped = True
        for tree in [self.control, *self.copies]:
            for process in list(tree.running):
                process.kill()

    def fails_anyway(self, name, test):
        """Whether it also fails without any mutation."""
        with self.controls:
            if (name, test) not in self.sound:
                # One failure may be by chance, so it counts only if the test fails again.
                self.sound[name, test] = any(dict(self.control.test(name, 1, HANG_SECONDS, test)).get(test) == PASSED for _ in range(2))
            return not self.sound[name, test]

    def judge(self, mutant):
        tree = self.trees.get()
        begun = time.monotonic()
        sources = {tree.root / file: (tree.root / file).read_text(encoding="utf-8") for file in mutant.files}
        try:
            kind, by = self.judge_in(tree, mutant)
        finally:
            for source, text in sources.items():
                source.write_text(text, encoding="utf-8")
            shutil.rmtree(tree.tmp)
            tree.tmp.mkdir()
            self.trees.put(tree)
        return Verdict(mutant, kind, by, time.monotonic() - begun)

    def judge_in(self, tree, mutant):
        why = isinstance(mutant, Mutant) and why_equivalent(mutant)
        if why:
            return "equal", why
        tree.make(mutant.target)  # what the last one has left
        before = tree.digest(mutant.target)
        mutant.plant(tree.root)
        if not tree.make(mutant.target):
            return "no code", ""
        if tree.digest(mutant.target) == before:
            return "equal", ""
        is_built, ran = False, False
        for name, alone in self.tests_of(mutant):
            if name != "rows" and not is_built:
                if not tree.make("src/dlock"):
                    return "no code", ""
                is_built = True
            if name.startswith("unit/") and not tree.make("tests/" + name):
                return "no code", ""
            by, passed = self.killed_by(tree, name, alone)
            if by:
                return "killed", by
            ran = ran or passed
        return "SURVIVED" if ran else "skipped", ""

    def tests_of(self, mutant):
        """Suites, and the one test of each to run; None: all of them."""
        if isinstance(mutant, Planted):
            return mutant.tests
        return [(name, None) for name in self.options.tests or areas.tests_of(mutant.file)[:self.options.first]]

    def killed_by(self, tree, name, alone):
        """The failing test of the suite, or None, and whether any test has passed."""
        ran = False
        for test, result in tree.test(name, self.options.bats_jobs, HANG_SECONDS, alone):
            if result != FAILED:
                ran = ran or (result == PASSED and test is not None)
            elif test is None:
                return "%s: its end, or its time" % name, ran
            elif name.startswith("unit/"):
                return "%s: %s" % (name, test), ran
            elif dict(tree.test(name, 1, HANG_SECONDS, test)).get(test) != FAILED:
                say("# failed once, and passed alone: %s: %s" % (name, test))
                ran = True
            elif self.fails_anyway(name, test):
                say("# fails without any mistake: %s: %s" % (name, test))
            else:
                return "%s: %s" % (name, test), ran
        return None, ran


def read_log(path):
    """What an earlier run has judged: the kind of each (file, line)."""
    found = re.findall(r"^(killed|SURVIVED|equal|no code) (\S+):(\d+) ", path.read_text(encoding="utf-8"), re.M)
    return {(file, int(line)): kind for kind, file, line in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path, help="the tree, built in its place with `make all test-helpers`")
    add_options(parser, seed=str(random.randrange(1 << 30)), seconds=0)
    parser.add_argument("--planted", action="store_true", help="plant the old behaviours that doc/defects.md names first")
    parser.add_argument("--count", type=int, default=150, help="how many of the drawn are judged (150)")
    parser.add_argument("--resume", type=pathlib.Path, help="the output of an earlier run with this seed, which counts as well", metavar="FILE")
    parser.add_argument("--only", action="append", help="only files with this in their path, or a patch of this name", metavar="TEXT")
    parser.add_argument("--tests", action="append", help="these tests in place of those of the file: both/hold:file", metavar="NAME")
    parser.add_argument("--first", type=int, help="only so many suites of each file's, the quickest")
    parser.add_argument("--line", type=int, help="only mutants of this line, as many as there are")
    parser.add_argument("--every", action="store_true", help="every mutant, not a few of each function")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants at once (1)")
    parser.add_argument("--bats-jobs", type=int, default=6, help="how many tests of one mutant at once (6)")
    parser.add_argument("--least", type=float, default=0, help="the status is 1 if fewer of a hundred are killed (0)")
    options = parser.parse_args()
    if options.every and options.resume:
        parser.error("--resume knows lines, and --every makes several mistakes on one")
    if subprocess.run(NAMESPACE + ["true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        parser.exit(CANNOT_RUN, "mutants: no pid namespace can be made here (unshare), and a mutant may kill whatever it can reach\n")
    only = options.only or [""]
    old = [one for one in planted_in(options.root) if any(part in place for part in only for place in [one.name, *one.files])] if options.planted else []
    if options.line:
        drawn = [mutant for path in areas.AREAS if any(part in path for part in only)
                 for mutant in mutate.mutants_of(path, (options.root / path).read_text(encoding="utf-8"))
                 if mutant.line == options.line]
    else:
        drawn = list(draw(options.root, options.seed, only, options.every))
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        os.chmod(folder, 0o711)  # for tests that become another user
        run_all(options, old, drawn, pathlib.Path(folder))


def run_all(options, old, drawn, folder):
    mutants = Mutants(options, options.root, folder)
    known = read_log(options.resume) if options.resume else {}
    counts = {Mutant: collections.Counter(known.values()), Planted: collections.Counter()}
    survivors = [mutant for mutant in drawn if known.get((mutant.file, mutant.line)) == "SURVIVED"]
    waiting = iter(old + [mutant for mutant in drawn if (mutant.file, mutant.line) not in known])
    end = time.monotonic() + (options.seconds or float("inf"))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def work():
            while time.monotonic() < end:
                mutant = next(waiting, None)
                if mutant is None or isinstance(mutant, Mutant) and judged(counts[Mutant]) >= options.count:
                    return
                verdict = mutants.judge(mutant)
                if mutants.stopped:
                    return
                counts[type(mutant)][verdict.kind] += 1
                if verdict.kind == "SURVIVED":
                    survivors.append(mutant)
                say("%s %s: %s%s (%.0f s)" % (verdict.kind, mutant.name, mutant.what, " | " + verdict.by if verdict.by else "", verdict.seconds))

        for each in [pool.submit(work) for _ in range(options.jobs)]:
            each.result()
    counts[Planted]["no time"] = sum(isinstance(mutant, Planted) for mutant in waiting)
    report(options, counts, survivors)


def judged(kinds):
    return kinds["killed"] + kinds["SURVIVED"]


def share(kinds):
    return 100 * kinds["killed"] / max(judged(kinds), 1)


def report(options, counts, survivors):
    """An old behaviour that no test finds, or that can no longer be built, is a failure, whatever the share."""
    table = Table("", ["mistakes", "judged", "killed", "survived", "not judged"], [
        [what, str(judged(kinds)), "%d (%.1f %%)" % (kinds["killed"], share(kinds)), str(kinds["SURVIVED"]),
         ", ".join("%d %s" % (kinds[kind], why) for kind, why in NOT_JUDGED.items() if kinds[kind]) or "0"]
        for what, kinds in (("drawn", counts[Mutant]), ("old behaviours", counts[Planted])) if any(kinds.values())])
    left = Table("", ["survivor", "change"], [
        ["`%s`" % one.name, one.what if isinstance(one, Planted) else "`%s`" % one.what.replace("|", "\\|")]
        for one in sorted(survivors, key=lambda one: one.name)])
    print(report_of("", [left], True))
    for row in table.rows:
        print("seed %s, %s: %s judged, %s killed, %s survived; not judged: %s" % (options.seed, *row))
    write_figures(options.json, [table, left])
    drawn, old = counts[Mutant], counts[Planted]
    failed = old["SURVIVED"] + old["equal"] + old["no code"] > 0 or judged(drawn) > 0 and share(drawn) < options.least
    sys.exit(failed or judged(drawn) + judged(old) == 0)


if __name__ == "__main__":
    main()
