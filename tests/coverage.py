#!/usr/bin/env python3
"""Sums up what gcov(1) knows of a build, by file, and holds it against the
reasons for what no test reaches.

Usage: coverage.py [--json FILE] [--by-chance N] BUILD REASONS

REASONS has paragraphs: lines of a reason that begin with "# ", then lines of
"FILE: FUNCTION FUNCTION...", each with lines that no test reaches. A function with a
"?" behind its name is one that some runs reach and others do not.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from figures import Table, add_options, report_of, write_figures


class Source:
    """One file: how often each of its lines and branches ran."""

    def __init__(self):
        self.lines = collections.Counter()
        self.branches = {}
        self.functions = {}  # of each line

    def add(self, line):
        number = line["line_number"]
        self.lines[number] += line["count"]
        self.functions.setdefault(number, line.get("function_name", "?"))
        counts = [branch["count"] for branch in line["branches"]]
        known = self.branches.setdefault(number, [0] * len(counts))
        if len(known) == len(counts):  # an inline function may differ from object to object
            self.branches[number] = [a + b for a, b in zip(known, counts)]

    def totals(self):
        branches = [count for counts in self.branches.values() for count in counts]
        return [len(self.lines), sum(count > 0 for count in self.lines.values()),
                len(branches), sum(count > 0 for count in branches)]

    def missed(self):
        """The lines of each function that never ran."""
        found = collections.defaultdict(list)
        for number in sorted(self.lines):
            if self.lines[number] == 0:
                found[self.functions[number]].append(number)
        return found


def add_lines(source, path, lines):
    """An opening brace alone is no code, whatever gcov makes of the checks there."""
    texts = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        if texts[line["line_number"] - 1].strip() != "{":
            source.add(line)


def read_counts(build):
    sources = collections.defaultdict(Source)
    notes = sorted(pathlib.Path(build).glob("*.gcno"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["gcov", "--branch-probabilities", "--json-format", *map(str, notes)], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in sorted(os.listdir(folder)):
            with gzip.open(os.path.join(folder, name)) as file:
                for part in json.load(file)["files"]:
                    path = pathlib.Path(part["file"])
                    if "src" in path.parts:
                        name = "/".join(path.parts[path.parts.index("src") + 1:])
                        add_lines(sources[name], path, part["lines"])
    return sources


def percent(some, of):
    return f"{100 * some / of:5.1f} %" if of else "      -"


def show_table(sources):
    """Prints the files, then the folders and all. Returns the latter."""
    folders = collections.defaultdict(lambda: [0, 0, 0, 0])
    print(f"{'file':28} {'lines':>7} {'reached':>9} {'branches':>9} {'taken':>9}")
    for name, source in sorted(sources.items()):
        totals = source.totals()
        for folder in os.path.dirname(name) + "/", "all":
            folders[folder] = [a + b for a, b in zip(folders[folder], totals)]
        print(f"{name:28} {totals[0]:7} {percent(totals[1], totals[0]):>9} {totals[2]:9} {percent(totals[3], totals[2]):>9}")
    everything = folders.pop("all")
    table = Table("", ["folder", "lines", "reached", "branches", "taken"], [
        [f"`{name}`" if name.endswith("/") else name, f"{sums[0]:,}", percent(sums[1], sums[0]).strip(), f"{sums[2]:,}",
         percent(sums[3], sums[2]).strip()] for name, sums in [*sorted(folders.items()), ("all", everything)]])
    print("\n" + report_of("", [table], True))
    return table


def read_reasons(path):
    """The functions that need no test, and whether each is sometimes reached."""
    reasons = {}
    with open(path, encoding="utf-8") as file:
        for text in file:
            if text.strip() == "" or text.startswith("#"):
                continue
            name, colon, functions = text.partition(":")
            if not colon:
                sys.exit(f"{path}: not 'FILE: FUNCTION...': {text}")
            for function in functions.split():
                key = name, function.rstrip("?")
                if key in reasons:
                    sys.exit(f"{path}: {name} {function} stands there twice")
                reasons[key] = function.endswith("?")
    return reasons


def ranges(numbers):
    """[1, 2, 3, 7] as '1-3, 7'."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def compare(sources, reasons):
    faults = 0
    missed = {(name, function): lines for name, source in sources.items()
              for function, lines in source.missed().items()}
    for (name, function), lines in sorted(missed.items()):
        if (name, function) not in reasons:
            print(f"no test reaches src/{name}:{ranges(lines)} ({function}), and no reason is given")
            faults += 1
    for (name, function), at_times in sorted(reasons.items()):
        if (name, function) not in missed and not at_times:
            print(f"a reason is given for {name} {function}, but all of it is reached")
            faults += 1
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, seed=None)
    parser.add_argument("--by-chance", type=int, default=0, metavar="N",
                        help="no error up to N differences: timing decides which rare lines a run reaches (default: 0)")
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("reasons", metavar="REASONS")
    options = parser.parse_args()
    sources = read_counts(options.build)
    table = show_table(sources)
    faults = compare(sources, read_reasons(options.reasons))
    said = f"Functions that differ from tests/uncovered.txt: {faults}; up to {options.by_chance} may by chance."
    write_figures(options.json, [table], after=[said])
    print(f"{faults} faults")
    return 1 if faults > options.by_chance else 0


if __name__ == "__main__":
    sys.exit(main())
