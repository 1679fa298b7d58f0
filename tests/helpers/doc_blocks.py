#!/usr/bin/env python3
"""The blocks of code in a page: fenced and indented ones of Markdown, .Bd -literal and .Dl of mdoc.

    doc_blocks.py PAGE DIRECTORY

writes each into DIRECTORY as a file, 01 and so on, as a reader sees it; and prints a line for each: the name of the
file, a tab, and the first line that is neither a comment nor the head of a section.
"""

import os
import re
import sys

ESCAPES = {r"\e": "\\", r"\-": "-", r"\&": "", r"\(dq": '"', r"\(aq": "'", r"\(bs": "\\", r"\ ": " "}


def read_escapes(line):
    return re.sub(r"\\(?:\([a-z]{2}|[e& -])", lambda found: ESCAPES[found[0]], line)


def mdoc_blocks(lines):
    block = None
    for line in lines:
        if line.startswith(".Bd -literal"):
            block = []
        elif line.startswith(".Ed"):
            yield block
            block = None
        elif block is not None:
            if not line.startswith('.'):
                block.append(read_escapes(line))
        elif line.startswith((".Dl ", ".D1 ")):
            yield [read_escapes(line[4:])]


def markdown_blocks(lines):
    block, fence = None, None
    for line in lines + [""]:
        if fence is not None:
            if line.strip() == fence:
                yield block
                block = fence = None
            else:
                block.append(line)
        elif re.match(r"`{3,}", line):
            block, fence = [], re.match(r"`+", line)[0]
        elif line.startswith("    ") and line.strip():
            block = (block or []) + [line[4:]]
        elif block is not None:
            yield block
            block = None


def main():
    page, directory = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    blocks = markdown_blocks if page.endswith(".md") else mdoc_blocks
    for number, block in enumerate(blocks(lines), 1):
        name = "%02d" % number
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write("\n".join(block) + "\n")
        first = next((line for line in block if line.strip() and not line.startswith(("#", ";", "["))), block[0])
        print("%s\t%s" % (name, first.strip()))


if __name__ == "__main__":
    main()
