"""Proves a revision: builds it, runs everything that looks for faults by a plan that fits the minutes, and makes the tables.

    python3 tests/proof [OPTIONS] ROOT

What is proved is the revision that ROOT has checked out, in a clone of its own. All results go to one JSON file. A proof
that was interrupted goes on where it stopped if it is started again with the same revision and seed. With --verify nothing is
run: the status says whether FILE has the results of a whole proof of ROOT. Exit status: 0 all passed, 1 something failed,
2 nothing was begun, 130 interrupted.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

sys.path[:0] = [(HERE := os.path.dirname(os.path.abspath(__file__))), os.path.join(HERE, "..", "lib")]

# pylint: disable=wrong-import-position
from figures import report_of, Table, versions
from machine import PROGRAMS, Servers, machine
from parts import PARTS, plan
from results import Results, copy_plots, lacking, without_figures, write_pages, PLOTS
from runner import Runner

MARKED = ["proof", *(part.name for part in PARTS)]


class Refused(Exception):
    """Nothing is started."""


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], stdout=subprocess.PIPE, check=True, text=True).stdout


def changed_since(root, revision):
    """The files of ROOT that differ from a revision outside the markers of a proof."""
    for path in git(root, "diff", "--name-only", revision).splitlines():
        if os.path.basename(path) in PLOTS:
            continue
        if path.endswith(".md") and os.path.exists(os.path.join(root, path)) and git(root, "ls-tree", revision, path):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                if without_figures(file.read(), MARKED) == without_figures(git(root, "show", "%s:%s" % (revision, path)), MARKED):
                    continue
        yield path


def revision_of(root):
    """The revision that is checked out, to which the figures must belong."""
    for path in changed_since(root, "HEAD"):
        raise Refused("%s is changed, and the figures would belong to no revision; commit it first" % path)
    return git(root, "rev-parse", "HEAD").strip()


def verify(path, root):
    """Refuses results that are not those of a whole proof of what ROOT has."""
    results = Results(path, {})
    revision = results.facts["revision"]
    try:
        changed = list(changed_since(root, revision))
    except subprocess.CalledProcessError as error:
        raise Refused("%s is of revision %s, which is not here" % (path, revision[:12])) from error
    if changed:
        raise Refused("%s is of revision %s; changed since: %s" % (path, revision[:12], ", ".join(changed)))
    if results.failed() or not results.parts().issuperset(part.name for part in PARTS):
        raise Refused("%s: a part failed, or is missing" % path)
    return 0


def build(root, tree, revision):
    """A clone of the revision, built with everything that the tools need; an existing one is reused."""
    if not os.path.exists(tree):
        subprocess.run(["git", "clone", "-q", "--no-checkout", root, tree], check=True)
    subprocess.run(["git", "-C", tree, "checkout", "-q", revision], check=True)
    with open(tree + ".log", "wb") as log:
        for words in (["./bootstrap", "--no-install"], ["make", "-j2", "test-helpers", "tests/helpers/stamp"]):
            if subprocess.run(words, cwd=tree, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode != 0:
                raise Refused("%s failed, see %s.log" % (" ".join(words), tree))


def show_plan(jobs, not_run):
    rows = [[job.name, "%d s" % job.seconds, "alone" if job.part.alone else ""] for job in jobs]
    print(report_of("", [Table("The plan, in the order of the starts:", ["job", "time", ""], rows)], False,
                    ["not run: %s: %s" % item for item in not_run.items()]), flush=True)


def prove(options):
    """Returns the exit status."""
    revision = revision_of(options.root)
    seed = options.seed or revision[:12]
    folder = os.path.abspath(os.path.join(options.folder, "%s-%s" % (revision[:12], seed)))
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    missing = list(lacking(options.document, parts)) if options.document else []
    if missing:
        raise Refused("\n".join(missing))
    servers = Servers(options.servers)
    jobs, not_run = plan(parts, 60 * options.minutes, seed, folder, servers.lacks)
    show_plan(jobs, not_run)
    if options.plan:
        return 0
    os.makedirs(folder, exist_ok=True)
    results = Results(os.path.join(folder, "proof.json"), {
        "revision": revision, "seed": seed, "minutes": options.minutes, "machine": machine(), "versions": versions(*PROGRAMS),
        "servers": servers.paths, "begun": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())})
    if results.facts["minutes"] != options.minutes:
        raise Refused("%s is of a plan of %g minutes: go on with PROOF_MINUTES=%g, or remove it" % (
            results.path, results.facts["minutes"], results.facts["minutes"]))
    results.facts["servers"].update(servers.paths)
    build(options.root, os.path.join(folder, "tree"), revision)

    def done(job, result):
        results.add(job.name, **result)
        print("%s: %s (%d s)%s" % (job.name, result["status"], result["seconds"], ": " + result["why"] if "why" in result else ""), flush=True)

    for name, why in not_run.items():
        if results.lacks(name):
            results.add(name, status="not run", why=why)
    runner = Runner(os.path.join(folder, "tree"), folder, lambda job: servers.environment(job, folder), done)
    runner.run([job for job in jobs if results.lacks(job.name)])
    if options.document:
        write_pages(results, options.document, PARTS)
        copy_plots(folder, options.document)
    failed = results.failed()
    print("%s: %d jobs, %d failed%s" % (results.path, len(results.jobs), len(failed), ": " + ", ".join(failed) if failed else ""))
    return 1 if failed else 0


def parse_arguments():
    parser = argparse.ArgumentParser(prog="proof", description="Prove a revision.")
    parser.add_argument("--minutes", type=float, default=150, metavar="N", help="after the build (default: 150)")
    parser.add_argument("--seed", default="", metavar="TEXT", help="of all that is drawn (default: of the revision)")
    parser.add_argument("--folder", default="build-proof", metavar="FOLDER", help="for the clone and the results (default: build-proof)")
    parser.add_argument("--servers", type=str.split, default=[], metavar="'PATH...'", help="Redis 8 and Valkey, in the place of redis-server")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="PART,...", help="some of " + ",".join(part.name for part in PARTS))
    parser.add_argument("--document", metavar="FOLDER", help="put the tables into these pages")
    parser.add_argument("--plan", action="store_true", help="only show the plan")
    parser.add_argument("--verify", metavar="FILE", help="only check that these results are of ROOT's revision, but for its figures")
    parser.add_argument("root", metavar="ROOT")
    return parser.parse_args()


def on_terminate(_number, _frame):
    raise KeyboardInterrupt


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    try:
        options = parse_arguments()
        return verify(options.verify, options.root) if options.verify else prove(options)
    except Refused as refused:
        print("proof: %s" % refused, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("proof: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
