"""Old behaviours of dlock that a patch brings back: the rows of doc/defects.md that have one.

The page says what was wrong, and names the tests that must find it; planted/NAME.patch has the change alone.
"""

import pathlib
import re
from typing import NamedTuple

ROW = re.compile(r"^\| [^|]+ \| ([^|]+) \| (.+) \| \[([\w-]+)\]\(\.\./tests/mutants/planted/\3\.patch\) \|$", re.M)
TEST = re.compile(r'([a-z_]+/[a-z_]+): "([^"]+)"')
FILE = re.compile(r"^--- a/.+\n\+\+\+ b/(.+)\n", re.M)
HUNK = re.compile(r"^@@ .+\n((?:[ +-].*\n|\n)+)", re.M)


class Planted(NamedTuple):
    name: str
    what: str
    tests: list   # as in areas.py, and the one test of each
    patch: pathlib.Path

    target = "src/dlock"

    @property
    def changes(self):
        """Of each file: its name, and the hunks of its change."""
        parts = FILE.split(self.patch.read_text(encoding="utf-8"))
        return [(file, HUNK.findall(hunks)) for file, hunks in zip(parts[1::2], parts[2::2])]

    @property
    def files(self):
        return [file for file, _ in self.changes]

    def plant(self, root, dry=False):
        """ValueError: what it changes does not exist, or exists twice. A dry run changes nothing."""
        for file, hunks in self.changes:
            text = (root / file).read_text(encoding="utf-8")
            for hunk in hunks:
                before, after = (re.sub("(?m)^[ +-]", "", re.sub(r"(?m)^[%s].*\n" % other, "", hunk)) for other in "+-")
                if text.count(before) != 1:
                    raise ValueError("%s does not apply to %s any more:\n%s" % (self.patch.name, file, hunk))
                text = text.replace(before, after)
            if not dry:
                (root / file).write_text(text, encoding="utf-8")


def planted_in(root):
    """In the order of the page. A test of both stores runs on each until one finds it."""
    folder = root.resolve() / "tests/mutants/planted"
    return [Planted(name, what, [(file + store, test) for file, test in TEST.findall(tests)
                                 for store in ((":file", ":redis") if file.startswith("both/") else ("",))], folder / (name + ".patch"))
            for what, tests, name in ROW.findall((root / "doc/defects.md").read_text(encoding="utf-8"))]
