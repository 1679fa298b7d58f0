#!/usr/bin/env bats
# The folders of src/: their order, and how much stands in each.
load ../lib/common
setup() { common_setup; SRC=$(realpath "$TESTS/../src"); }
teardown() { common_teardown; }

# floors: the folders from low to high, as doc/design.md has them.
floors() { sed -nE 's/^\| `([a-z/]+)\/` \|.*/\1/p' "$SRC/../doc/design.md"; }

# upward FOLDER-OF-SOURCES: each include that leads to a higher floor.
upward() {
    python3 - "$1" $(floors) <<'END'
import os, re, sys
root, floors = sys.argv[1], sys.argv[2:]
height = {folder: number for number, folder in enumerate(floors)}
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

@test "every folder of the sources is a floor of the design page, and the other way round" {
    diff <(floors | sort) <(cd "$SRC" && find . -name '*.[ch]' -mindepth 2 ! -name embedded.h -printf '%h\n' | sed 's,^\./,,' | sort -u)
}

@test "no file includes from a higher floor" {
    equals "$(upward "$SRC")" ''
    mkdir -p "$T/src/util"
    echo '#include "run/wait.h"' >"$T/src/util/clock.c"
    equals "$(upward "$T/src")" 'util/clock.c: run/wait.h'
}

@test "the options of all verbs are known to config/ and actions/ alone" {
    equals "$(cd "$SRC" && grep -rl --include='*.[ch]' 'struct options' | cut -d/ -f1 | sort -u)" $'actions\nconfig\nmain.c'
}

@test "no folder has more than 20 files of C" {
    local folder count
    for folder in $(floors); do
        count=$(find "$SRC/$folder" -maxdepth 1 -name '*.c' | wc -l)
        [ "$count" -le 20 ] || { echo "$folder: $count"; false; }
    done
}
