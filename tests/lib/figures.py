"""Figures: how the programs that search for faults are asked for them, and how tables of them get into a page.

Each of these programs has --seed, --seconds and --json, and writes to that file
{"head": TEXT, "tables": [{"title", "header", "rows"}], "after": [LINE]}. Its exit status is 0 if nothing was wrong, and
CANNOT_RUN if something is missing here.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
from collections import namedtuple

CANNOT_RUN = 77

Table = namedtuple("Table", "title header rows")


def add_options(parser, seed="", seconds=None):
    """--seed, --seconds and --json; a program that draws nothing, or has a length of its own, passes None."""
    if seed is not None:
        parser.add_argument("--seed", default=seed, metavar="TEXT", help="default: %s" % (seed or "drawn, and printed"))
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds, metavar="N",
                            help="end after so long (default: %s)" % ("%g" % seconds if seconds else "no limit"))
    parser.add_argument("--json", metavar="FILE", type=os.path.abspath, help="write the figures to this file")


def write_figures(path, tables, head="", after=()):
    """Writes nothing without a path."""
    if path:
        replace_file(path, json.dumps({"head": head, "tables": [table._asdict() for table in tables], "after": list(after)},
                                      indent=1, ensure_ascii=False) + "\n")


def replace_file(path, text):
    """Replaces the file atomically: an interruption leaves the old file or the new one."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def first_line(*words):
    """The first line of the program's output; empty if it cannot be run."""
    try:
        said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.decode("utf-8", "replace").split("\n")[0]


def versions(*programs):
    """The versions of the installed ones, as they print them."""
    found = [(name, re.search(r"\d+(\.\d+)+|\d{8}", first_line(name, "version" if name == "consul" else "--version")))
             for name in programs if shutil.which(name)]
    return ", ".join("%s %s" % (name, number.group() if number else "?") for name, number in found)


def show(table, markdown):
    if markdown:
        print("\n".join((["### %s\n" % table.title] if table.title else []) + ["| %s |" % " | ".join(map(str, line)) for line in (
            table.header, ["---"] * len(table.header), *table.rows)]))
    else:
        print(table.title.replace("`", ""))
        lines = [[cell.replace("`", "") for cell in line] for line in [table.header] + table.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
        for line in lines:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print(flush=True)


def report_of(head, tables, markdown, after=()):
    """Everything that a program prints, as text."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if head:
            print(head + "\n")
        for table in tables:
            show(table, markdown)
        for words in after:
            print(words)
    return said.getvalue().strip()


def markers(name):
    return "<!-- %s -->" % name, "<!-- /%s -->" % name


def has_markers(text, name):
    lines = text.splitlines()
    return all(lines.count(marker) == 1 for marker in markers(name))


def put_between_markers(text, name, figures):
    begin, end = markers(name)
    before, rest = text.split(begin)
    return "%s%s\n%s\n%s%s" % (before, begin, figures.strip(), end, rest.split(end)[1])
