#!/usr/bin/env bats
# The rules of the sources: the order of folders, names, sizes, cycles; and rules of the tests.
load ../lib/common
setup() { common_setup; SRC=$(realpath "$TESTS/../src"); }

# layers: prints the folders from low to high, as in doc/design.md.
layers() { sed -nE 's/^\| `([a-z/]+)\/` \|.*/\1/p' "$SRC/../doc/design.md"; }

# upward FOLDER-OF-SOURCES: prints each include that leads to a higher layer.
upward() {
    python3 - "$1" $(layers) <<'END'
import os, re, sys
root, layers = sys.argv[1], sys.argv[2:]
height = {folder: number for number, folder in enumerate(layers)}
for folder, _, names in os.walk(root):
    own = os.path.relpath(folder, root)
    if own in (".", "store/redis/scripts"):
        continue
    for name in sorted(names):
        if not name.endswith((".c", ".h")):
            continue
        for path in re.findall(r'^#include "([^"]+)"', open(os.path.join(folder, name)).read(), re.M):
            there = os.path.dirname(path).removesuffix("/scripts") if path.endswith("embedded.h") else os.path.dirname(path)
            if there and height[there] > height[own]:
                print(f"{own}/{name}: {path}")
END
}

@test "every source folder is a layer of the design page, and no file includes from a higher layer" {
    equals "$(upward "$SRC")" ''
    mkdir -p "$T/src/util"
    echo '#include "run/retry.h"' >"$T/src/util/clock.c"
    equals "$(upward "$T/src")" 'util/clock.c: run/retry.h'
    diff <(layers | sort) <(cd "$SRC" && find . -name '*.[ch]' -mindepth 2 ! -name embedded.h -printf '%h\n' | sed 's,^\./,,' | sort -u)
}

@test "redis/ knows nothing of locks: from lock/ it includes only the results of a request" {
    equals "$(grep -rhoE '^#include "[^"]+' "$SRC/redis" --include='*.[ch]' | grep -vE '"(util|redis)/' | sort -u)" '#include "lock/result.h'
}

# cycles FOLDER-OF-SOURCES: prints each group of files there, x.c with x.h as one, that include each other or call each
# other's functions, however indirectly.
cycles() {
    python3 - "$1" <<'END'
import collections, pathlib, re, sys
root = pathlib.Path(sys.argv[1])
NOT_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
EXTERNAL = re.compile(r"^(?!static )(?:[a-z]\w*[ *]+)+?(\w+)\([^;{}]*\)\s*\{", re.M)
includes, words, home = collections.defaultdict(set), {}, {}
for path in sorted(root.rglob("*.[ch]")):
    text, name = path.read_text(), str(path.relative_to(root).with_suffix(""))
    includes[name] |= set(re.findall(r'^#include "([^"]+)\.h"', text, re.M)) - {name}
    if path.suffix == ".c":
        code = NOT_CODE.sub("", text)
        words[name] = set(re.findall(r"(?<![.>\w])\w+", code))
        home.update(dict.fromkeys(EXTERNAL.findall(code), name))
calls = {name: {home[word] for word in words[name] & home.keys()} - {name} for name in words}

def reached(graph, start):
    found, ahead = set(), [start]
    while ahead:
        more = graph.get(ahead.pop(), set()) - found
        found |= more
        ahead += more
    return found

groups = set()
for graph in includes, calls:
    reach = {name: reached(graph, name) for name in graph}
    groups |= {" ".join(sorted(other for other in reach[name] if name in reach.get(other, ()))) for name in graph if name in reach[name]}
print(*sorted(groups), sep="\n")
END
}

@test "no two files include each other or call each other's functions, even through others" {
    mkdir -p "$T/src/run"
    echo '#include "run/b.h"' >"$T/src/run/a.h"
    echo '#include "run/c.h"' >"$T/src/run/b.h"
    echo '#include "run/a.h"' >"$T/src/run/c.c"
    printf '#include "run/all.h"\nint d_go(void)\n{\n    return e_go();\n}\n' >"$T/src/run/d.c"
    printf '#include "run/all.h"\nint e_go(void)\n{\n    return d_go();\n}\n' >"$T/src/run/e.c"
    printf '#include "run/all.h"\n/* d_go() */\nint f_go(void)\n{\n    return d_go() + at->e_go;\n}\n' >"$T/src/run/f.c"
    equals "$(cycles "$T/src")" $'run/a run/b run/c\nrun/d run/e'
    equals "$(cycles "$SRC")" ''
}

@test "no folder has more than 20 C files; only config/ and actions/ know the options of all actions" {
    local folder count
    for folder in $(layers); do
        count=$(find "$SRC/$folder" -maxdepth 1 -name '*.c' | wc -l)
        [ "$count" -le 20 ] || { echo "$folder: $count"; false; }
    done
    equals "$(cd "$SRC" && grep -rl --include='*.[ch]' 'struct options' | cut -d/ -f1 | sort -u)" $'actions\nconfig\nmain.c'
}

@test "dlock never changes its own environment, which other threads may read" {
    not grep -rnE --include='*.[ch]' '\<(setenv|unsetenv|putenv|clearenv)\(' "$SRC"
    not grep -rnE --include='*.[ch]' '\<environ(\[[^]]*\])? *=[^=]' "$SRC"
}

# twice FOLDER-OF-SOURCES: prints each external function, and function or struct in a header, whose name another file defines, too.
twice() {
    python3 - "$1" <<'END'
import collections, pathlib, re, sys
FUNCTION = re.compile(r"^((?:[a-z]\w*[ *]+)+?)(\w+)\([^;{}]*\)\s*\{", re.M)
STRUCT = re.compile(r"^(struct )(\w+) \{", re.M)
for pattern in FUNCTION, STRUCT:
    places, shared = collections.defaultdict(set), set()
    for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.[ch]")):
        if path.name != "embedded.h":
            for before, name in pattern.findall(path.read_text()):
                places[name].add(str(path.relative_to(sys.argv[1])))
                if path.suffix == ".h" or not before.startswith(("static ", "struct ")):
                    shared.add(name)
    for name in shared:
        if len(places[name]) > 1:
            print(name, *sorted(places[name]))
END
}

@test "an external function, and a function or struct in a header, has a name of its own; static ones may share names" {
    mkdir "$T/src"
    printf '%s\n' 'static int add(int a)' '{' '    return a;' '}' 'struct pair {' '    int a;' '};' | tee "$T/src/a.c" >"$T/src/b.c"
    equals "$(twice "$T/src")" ''
    cp "$T/src/a.c" "$T/src/c.h"
    equals "$(twice "$T/src" | sort)" $'add a.c b.c c.h\npair a.c b.c c.h'
    rm "$T/src/c.h"
    sed -i 's/^static //' "$T/src/a.c"
    equals "$(twice "$T/src")" 'add a.c b.c'
    equals "$(twice "$SRC")" ''
}

# large FOLDER-OF-SOURCES: prints each file there of more than 700 lines, and each function of more than 60.
large() {
    find "$1" -name '*.[ch]' ! -name embedded.h -printf '%P\n' | sort | (cd "$1" && xargs awk '
        FNR == 701 { print FILENAME }
        /^\{/ { start = FNR }
        /^}/ && start { if (FNR - start > 60) print FILENAME ":" start; start = 0 }')
}

@test "no source file has more than 700 lines, and no function more than 60" {
    mkdir "$T/src"
    { printf 'int one(void)\n{\n'; yes '    step();' | head -n 59; printf '}\n\nint two(void)\n{\n'; yes '    step();' | head -n 60; echo '}'; } >"$T/src/a.c"
    yes | head -n 701 >"$T/src/b.h"
    yes | head -n 700 >"$T/src/c.c"
    equals "$(large "$T/src")" $'a.c:65\nb.h'
    equals "$(large "$SRC")" ''
}

# missing FOLDER: prints what a page or a comment there names and that does not exist: each "folder/file.c" or "folder/part_*.c",
# from the root of the tree, src/, tests/ or beside it, and each "some_function()" of src/.
missing() {
    python3 - "$1" <<'END'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
FILE = re.compile(r"(?<![\w./$*{}<-])(?!sys/|linux/)(?:[a-z][\w-]*/)+[a-z][\w*-]*\.(?:c|h|lua|py|bats|bash|sh|md)\b(?![\w/*])")
FUNCTION = re.compile(r"(?<![\w.])([a-z]\w*_\w+)\(\)")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
code = "".join(COMMENT.sub("", path.read_text()) for path in (root / "src").rglob("*.[chl]*") if path.suffix in (".c", ".h", ".lua"))
known = set(re.findall(r"\w+", code))
for path in sorted(file for part in ("doc", "src", "tests", "CONTRIBUTING.md", "Makefile.am")
                   for file in [root / part, *(root / part).rglob("*")]
                   if file.is_file() and file.suffix in (".md", ".c", ".h", ".lua", ".py", ".bats", ".bash", ".am") and file.parent != root / "tests/source"):
    text, found = path.read_text(), []
    for name in FILE.finditer(text):
        if not any(any(folder.glob(name[0])) for folder in (root, root / "src", root / "tests", path.parent)):
            found.append((name.start(), name[0]))
    for part in [re.match(r"[\s\S]*", text)] if path.name in ("design.md", "reliability.md", "faults.md", "defects.md", "CONTRIBUTING.md") else COMMENT.finditer(text) if "src" in path.parts else []:
        found += [(part.start() + name.start(), name[0]) for name in FUNCTION.finditer(part[0]) if name[1] not in known]
    for at, name in sorted(found):
        print(f"{path.relative_to(root)}:{text.count(chr(10), 0, at) + 1}: {name}")
END
}

@test "the files and functions that pages and comments name exist" {
    mkdir -p "$T/src/run" "$T/tests/cli" "$T/doc"
    touch "$T/src/run/a.c" "$T/tests/cli/b.bats"
    printf '`run/a.c`, `src/run/a.c`, cli/b.bats, `run/a*.c`, `run_all()`\n`run/b.c` or run/c_*.c, `run_none()`\n' >"$T/doc/design.md"
    printf '#include <sys/stat.h>\n/* (cli/a.bats), run_all(),\n * run_more() */\nint run_all(void);\n' >"$T/src/run/a.c"
    equals "$(missing "$T" | tr '\n' ' ')" \
        'doc/design.md:2: run/b.c doc/design.md:2: run/c_*.c doc/design.md:2: run_none() src/run/a.c:2: cli/a.bats src/run/a.c:3: run_more() '
    equals "$(missing "$TESTS/..")" ''
}

# unknown REASONS: prints each function there that its file does not have, and each line that names none.
unknown() {
    PYTHONDONTWRITEBYTECODE=1 python3 - "$TESTS" "$SRC" "$1" <<'END' 2>&1
import pathlib, re, sys
sys.path.insert(0, sys.argv[1])
import coverage
for name, function in coverage.read_reasons(sys.argv[3]):
    path = pathlib.Path(sys.argv[2], name)
    if not path.exists() or not re.search(rf"^\w.*\b{function}\(", path.read_text(), re.M):
        print(f"{name}: {function}")
END
}

@test "tests/uncovered.txt lists only functions that exist" {
    equals "$(unknown "$TESTS/uncovered.txt")" ''
    printf '%s\n' '# Why.' 'util/clock.c: read_clock gone?' 'util/none.c: one' >"$T/reasons"
    equals "$(unknown "$T/reasons")" $'util/clock.c: gone\nutil/none.c: one'
    echo '<<<<<<< HEAD' >>"$T/reasons"
    equals "$(unknown "$T/reasons")" "$T/reasons: not 'FILE: FUNCTION...': <<<<<<< HEAD"
}

# ignored FOLDER: prints checks in the middle of a test whose failure '&&' ignores.
ignored() {
    python3 - "$1" <<'END'
import pathlib, re, sys
CHECK = re.compile(r"""\s+(\[ [^|]* \]|(equals|ended|gone|leave|not|within|wait_until) [^'|]*?) && (?!skip|break|return)[^|]*$""")
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.bats")):
    inside, lines = False, path.read_text().splitlines() + [""]
    for number, line in enumerate(lines[:-1], 1):
        inside = line.startswith("@test") or (inside and line != "}")
        if inside and CHECK.match(line) and lines[number].strip() != "}" and "$(cd " not in line:
            print(f"{path.name}:{number}")
END
}

@test "no check in the middle of a test is followed by '&&', which ignores it" {
    mkdir "$T/tests"
    printf '@test "%s" {\n    [ -e a ] && [ -e b ]\n    [ -e c ]\n    ended a && ended b\n}\n' a b >"$T/tests/a.bats"
    equals "$(ignored "$T/tests")" $'a.bats:2\na.bats:7'
    equals "$(ignored "$TESTS")" ''
}

# lost_skips FOLDER: prints each skip that only ends a subshell, and each call there of a function that may skip: the test
# does not learn of it.
lost_skips() {
    python3 - "$1" <<'END'
import pathlib, re, sys
FUNCTION = re.compile(r"^( *)(\w+)\(\) \{(?:(.*)\}$|((?:\n.*)*?)\n\1\}$)", re.M)

def calls(before, names, after=""):
    return re.compile(rf"{before}(?:{'|'.join(names)})(?![\w./=(-]){after}", re.M)

# The functions of a file that may skip, and those that call them.
def skipping(text, known):
    names = set(known)
    while more := {name for _, name, line, lines in FUNCTION.findall(text)
                   if calls(r"(?:^|[;&|{])[ \t]*", names).search(line or lines)} - names:
        names |= more
    return names - {"setup", "setup_file"}

folder = pathlib.Path(sys.argv[1])
common = set().union({"skip"}, *(skipping(path.read_text(), {"skip"}) for path in folder.rglob("*.bash")))
for path in sorted(folder.rglob("*.bats")):
    text = path.read_text()
    names = skipping(text, common)
    # $(NAME, (NAME, | NAME, run NAME, fails_with STATUS PATTERN NAME, in WORDS... NAME; NAME &, NAME | ...
    inside = calls(r"(?:\(|(?<!\|)\| *|\b(?:run|wait_until \d+|fails_with \d+ (?:'[^']*'|\"[^\"]*\"))(?: not)? |\bfor \w+ in .*\s|^\s*\w+=)", names)
    ahead = calls(r"^\s*", names, r".*(?:[^&]&|[^|]\|(?!\|)[^']*)$")
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"^\s*#.*|\s# .*", "", line)
        if inside.search(code) or ahead.search(code):
            print(f"{path.name}:{number}")
END
}

@test "no test skips in a subshell, which would end only the subshell" {
    mkdir "$T/tests"
    printf 'needs_it() { [ -e it ] || skip; }\n' >"$T/tests/lib.bash"
    # bats takes a line that begins with @test for a test of this file.
    printf '%s\n' 'it() {' '    needs_it' '    cat it' '}' '@test "one" {' '    needs_it' '    it || skip' '    run it' '    [ "$(it)" = it ]' \
        '    it | grep -q it' '    echo it | it' '    it &' "    fails_with 1 '' it" "    for one in '' it; do \$one true; done" \
        '    run grep it' '    (cd it && [ -e it ]) || skip' '    (needs_it)' '}' >"$T/tests/a.bats"
    equals "$(lost_skips "$T/tests" | tr '\n' ' ')" "$(printf 'a.bats:%s ' 8 9 10 11 12 13 14 17)"
    equals "$(lost_skips "$TESTS")" ''
}

# speed_decides FOLDER: prints each upper bound on a measured time there, in bash or in Python, that has no
# slack; a comparison of two measured times is not a bound. tests/model and tests/torture judge by
# their own rules.
speed_decides() {
    python3 - "$1" <<'END'
import pathlib, re, sys
CLOCK = r"\$\(now\)|\bnow\(\)|\$\{?EPOCH(REALTIME|SECONDS)|\$\{?SECONDS\b|\bdate \+%s|\btime\.(monotonic|time|perf_counter)(_ns)?\(\)"
SETS = re.compile(r"(?:^|[\s;(])(\w+)(?:=|\s+=\s+)(?=(.*))")
COMPARES = re.compile(r"(?:\[\[? |\(\(|\b(?:assert|if|print|return|and|or)\b)(.*?)(?: (-l[te]) | (-g[te]) |(?<![<-])(<=?)(?![<(])|(?<![->=])(>=?)(?![>(&]))(.*)")
SOON = re.compile(r"\btimeout (-[ks] \S+ |--kill-after=\S+ )*[0-4](\.\d+)?s? |\.(wait|communicate)\((timeout=)?[0-4](\.\d+)?\)|\bnot within [\d$]+ ")
ENDS = re.compile(r" \]|\)\)(?!\)| )|:$| \|\|? | && | or | and |, ")
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    if path.suffix not in (".bats", ".bash", ".py") or {"bench", "model", "torture"} & set(path.parts):
        continue
    times = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if code.startswith(("@test", "def ", "class ")) or re.match(r"\w+\(\) ", code):
            times = set()
        is_time = lambda text: re.search(CLOCK, text) or any(re.search(rf"(?<!['\"\w-]){name}\b", text) for name in times)
        found = SOON.search(code) and "-eq 124" not in code # it lets something run for that long
        for left, *signs, right in [] if re.match(r"\s*(local )?\w+=", code) else COMPARES.findall(code):
            sides = re.split(r" \|\| | && | or | and |, ", left)[-1], ENDS.split(right)[0]
            above = bool(signs[1] or signs[3]) != code.lstrip().startswith("if ") # the part after an `if` is the failure
            least, most = sides[::-1] if above else sides
            found = found or is_time(least) and not is_time(most) and "SLACK" not in most and re.search(r"\d", most)
        if found:
            print(f"{path.relative_to(sys.argv[1])}:{number}")
        for name, value in SETS.findall(code):
            if is_time(value):
                times.add(name)
END
}

@test "no test depends on the machine's speed: every upper bound on a time gets its slack from within" {
    mkdir "$T/tests"
    # Each line starts with #, because bats takes a line that begins with @test for a test of this file.
    sed 's/^#//' >"$T/tests/a.bats" <<'END'
#@test "bounds" {
#    start=$(now)
#    took=$(($(now) - start))
#    [ "$took" -lt 1000 ]
#    [ $(($(now) - start)) -le 900 ]
#    [ 1000 -gt "$took" ]
#    ((took < 1000))
#    [ "$SECONDS" -lt 3 ]
#    wait_until 9 not within 3000 "$start"
#    run timeout -k 1 3 dlock job true
#    python3 -c '
#begin = time.monotonic()
#assert time.monotonic() - begin < 1
#print(code, time.monotonic() - begin < 3)
#took = time.monotonic() - begin
#assert 5 > took, took
#if took > 5: raise SystemExit(1)
#child.wait(3)'
#}
#@test "none" {
#    within 0 "$start"
#    [ "$took" -lt 1000 ]
#    start=$(now)
#    [ $(($(now) - start)) -ge 1000 ]
#    one=$(($(now) - start)) other=$(($(now) - start))
#    [ "$one" -lt "$other" ]
#    wait_until 9 eval '(($(now) > start + 3000))'
#    python3 -c '
#end = time.monotonic() + 20
#while time.monotonic() < end: look()
#assert time.monotonic() - begin >= 3
#assert child.wait(20) == 3'
#}
END
    equals "$(speed_decides "$T/tests" | tr '\n' ' ')" "$(printf 'a.bats:%s ' 4 5 6 7 8 9 10 13 14 16 17 18)"
    equals "$(speed_decides "$TESTS")" ''
}

@test "each mutation listed as equivalent (tests/mutants/equivalent.py) can still be made" {
    (cd "$SRC/.." && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/mutants python3 - <<'END') >"$T/gone"
from equivalent import EQUIVALENT, line_of
from mutate import mutants_of
for path, lines in EQUIVALENT.items():
    made = {line_of(mutant) for mutant in mutants_of(path, open(path, encoding="utf-8").read())}
    for line in lines.keys() - made:
        print(f"{path}: {line}")
END
    equals "$(cat "$T/gone")" ''
}

# not_planted ROOT: prints each patch of an old behaviour that does not apply to ROOT, or that no row of doc/defects.md names.
not_planted() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$TESTS/mutants python3 - "$1" <<'END'
import pathlib, sys
from planted import planted_in
root = pathlib.Path(sys.argv[1])
old = planted_in(root)
for one in old:
    try:
        one.plant(root, dry=True)
    except (OSError, ValueError) as error:
        print(error)
for patch in sorted({path.stem for path in root.glob("tests/mutants/planted/*")} - {one.name for one in old}):
    print(f"{patch}: no row of doc/defects.md has this patch and a test")
END
}

@test "each patch of an old behaviour (tests/mutants) applies to the sources, and doc/defects.md names a test for it" {
    equals "$(not_planted "$SRC/..")" ''
    mkdir -p "$T/doc" "$T/src" "$T/tests/mutants/planted"
    printf '%s\n' '| x | what | cli/one: "name" | [a](../tests/mutants/planted/a.patch) |' >"$T/doc/defects.md"
    printf '%s\n' '--- a/src/a.c' '+++ b/src/a.c' '@@ -1 +1 @@' '-one' '+two' | tee "$T/tests/mutants/planted/a.patch" >"$T/tests/mutants/planted/b.patch"
    echo one >"$T/src/a.c"
    equals "$(not_planted "$T")" 'b: no row of doc/defects.md has this patch and a test'
    rm "$T/tests/mutants/planted/b.patch"
    echo one >>"$T/src/a.c"
    not_planted "$T" | grep -qx 'a.patch does not apply to src/a.c any more:'
}
