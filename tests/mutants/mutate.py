"""Finds what can be changed in a source of C or Lua: one small mistake on one line each.

Only code within functions is changed: no declarations, and nothing that only makes a message.
"""

import re
from typing import NamedTuple


class Mutant(NamedTuple):
    file: str  # below the root
    line: int
    function: str
    what: str
    before: str  # the whole line
    after: str

    @property
    def name(self):
        return "%s:%d %s" % (self.file, self.line, self.function)

    @property
    def files(self):
        return [self.file]

    @property
    def target(self):
        """What is built from it, for tests of rows or units that do not need dlock."""
        return "src/store/redis/scripts/embedded.h" if self.file.endswith(".lua") else self.file[:-1] + "o"

    def plant(self, root):
        source = root / self.file
        lines = source.read_text(encoding="utf-8").split("\n")
        assert lines[self.line - 1] == self.before
        lines[self.line - 1] = self.after
        source.write_text("\n".join(lines), encoding="utf-8")


C_WORDS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
LUA_WORDS = re.compile(r'--[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
MESSAGE = re.compile(r"\b(say_\w+|errmsg_(?:set|fail)|snprintf|text_copy|error)\(|\{err = |_Static_assert")

# The room that calloc(3) allocates may be larger.
NUMBER = (r"(?<![\w.\[{])(?<!calloc\()\d(?![\w.\]])", lambda number: str(int(number) + 1))
TRUTH = (r"\b(?:true|false)\b", {"true": "false", "false": "true"}.get)
C_CHANGES = (
    (r" (?:<=|>=|<|>|==|!=) ", {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ",
                                " != ": " == "}.get),
    (r" (?:&&|\|\|)(?= |$)", {" &&": " ||", " ||": " &&"}.get),
    (r" [+-] ", {" + ": " - ", " - ": " + "}.get),
    (r"!(?=[\w(])", lambda _: ""),
    (r"(?<=\bif )\(.*\)(?=$| \{$)", "(!%s)".__mod__),
    (r"^(?:\(void\))?[*a-z_][\w.>\[\]-]*(?: [+|&-]?= .*|\(.*\)|\+\+|--);$", lambda _: ";"),
    NUMBER, TRUTH)
LUA_CHANGES = (
    (r" (?:<=|>=|<|>|==|~=) ", {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " ~= ",
                                " ~= ": " == "}.get),
    (r" (?:and|or)(?= |$)", {" and": " or", " or": " and"}.get),
    (r" [+-] ", {" + ": " - ", " - ": " + "}.get),
    (r"\bnot (?=\w)", lambda _: ""),
    (r"(?<=\bif ).*?(?= then\b)", "not (%s)".__mod__),
    (r"^(?!return\b|local\b|if\b|for\b)[a-z_][\w.]*(?:, [\w.]+)*(?: = .*|\(.*\))$", lambda _: "do end"),
    NUMBER, TRUTH)


def blank(match):
    return re.sub(r"[^\n]", "\0", match.group())


def is_balanced(text):
    return all(text.count(one) == text.count(other) for one, other in ("()", "{}", "[]"))


def functions_of_c(lines):
    """The function of each line, or None; a definition ends its parameters before the "{" on a line of its own."""
    named = inside = None
    for line in lines:
        if re.match(r"[a-z]", line):
            named = re.search(r"(\w+)\(", line) or named
        if line == "}":
            inside = None
        yield inside
        if line == "{" and named:
            inside = named.group(1)


def functions_of_lua(lines):
    inside = "the script"
    for line in lines:
        started = re.match(r"local function (\w+)", line)
        if started:
            inside = started.group(1)
        yield None if started else inside
        if line == "end":
            inside = "the script"


def statement(lines, number):
    """The lines up to this one that belong to the same statement, and the rest of it."""
    first = last = number
    while first > 0 and not re.search(r"[;{}:]\s*$", lines[first - 1]):
        first -= 1
    while last + 1 < len(lines) and not re.search(r"[;{}]\s*$", lines[last]):
        last += 1
    return "\n".join(lines[first:last + 1])


def mutants_of(path, text):
    """All mutants of the text of the file `path`."""
    is_lua = path.endswith(".lua")
    code = (LUA_WORDS if is_lua else C_WORDS).sub(blank, text).split("\n")
    whole = text.split("\n")
    functions = (functions_of_lua if is_lua else functions_of_c)(code)
    for number, (line, function) in enumerate(zip(code, functions)):
        said = line if is_lua else statement(code, number)
        if function is None or MESSAGE.search(said) or re.match(r"\s*(static|const|enum)\b", line):
            continue
        begin = len(line) - len(line.lstrip())
        for pattern, change in LUA_CHANGES if is_lua else C_CHANGES:
            for match in re.finditer(pattern, line[begin:]):
                old = whole[number][begin:][match.start():match.end()]
                if pattern.startswith("^") and not (is_balanced(old) and (is_lua or starts_statement(code, number))) or \
                        "(?<=\\bif )" in pattern and not is_balanced(old):
                    continue
                after = whole[number][:begin + match.start()] + change(old) + whole[number][begin + match.end():]
                yield Mutant(path, number + 1, function, "%s -> %s" % (old.strip(), change(old).strip() or "nothing"),
                             whole[number], after)


def starts_statement(code, number):
    before = next((line for line in reversed(code[:number]) if line.strip(" \0")), "")
    return re.search(r"([;{}):]|\belse)[ \0]*$", before) is not None
