#!/usr/bin/env bats
# bats file_tags=long
# A small version of `make mutants`: a mistake in a rule is made and found.
load ../lib/common
setup() {
    common_setup
    ROOT=$(realpath "$TESTS/..")
    export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$TESTS/mutants
}

# changes FILE: prints each mutant of it, as "LINE FUNCTION: CHANGE".
changes() {
    (cd "$T" && python3 -c 'import sys, mutate
for mutant in mutate.mutants_of(sys.argv[1], open(sys.argv[1]).read()): print(f"{mutant.line} {mutant.function}: {mutant.what}")' "$1" | sort)
}

@test "mutations are made in conditions, constants and statements, but not in comments or messages" {
    cat >"$T/a.c" <<'C'
static int limit = 3; /* if (a < b) */
static int most(int a, int b)
{
    int sum = a; /* a < b && !b */
    if (a < b && !b) {
        sum = 2;
        say_error("a < 3: %d",
                  a + 1);
    }
    return sum;
}
C
    diff <(changes a.c) <(sort <<'M'
5 most: && -> ||
5 most: (a < b && !b) -> (!(a < b && !b))
5 most: < -> <=
5 most: ! -> nothing
6 most: 2 -> 3
6 most: sum = 2; -> ;
M
    )
    printf '%s\n' '-- if a < b then' 'local function f(a)' "  if not a then return 'a == b' end" "  redis.call('DEL', a)" end >"$T/a.lua"
    diff <(changes a.lua) <(sort <<'M'
3 f: not -> nothing
3 f: not a -> not (not a)
4 f: redis.call('DEL', a) -> do end
M
    )
}

# mutants OPTION...: runs it on the built tree, in place.
mutants() { python3 "$TESTS/mutants/mutants.py" "$@" "$ROOT"; }
is_built_in_place() { [ "$(realpath "$DLOCK")" = "$ROOT/src/dlock" ] && [ -x "$HELPERS/../unit/test_lease" ]; }

@test "a patch that brings an old behaviour back is caught by the test that doc/defects.md names" {
    is_built_in_place || skip 'not built in its tree'
    run mutants --planted --count=0 --only=locale-without-utf-8
    [ "$status" -ne 77 ] || skip 'no pid namespace can be made here'
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '^killed locale-without-utf-8: .* | cli/security: in a locale that is not UTF-8, ' <<<"$output"
    grep -q ', old behaviours: 1 judged, 1 (100.0 %) killed, 0 survived; ' <<<"$output"
}

@test "an old behaviour whose tests pass counts as not found" {
    is_built_in_place || skip 'not built in its tree'
    mkdir -p "$T/root"
    cp -a "$ROOT/." "$T/root"
    echo '| x | what was wrong | cli/durations: "'"$(sed -n 's/^@test "\(.*\)" {/\1/p;T;q' "$TESTS/cli/durations.bats")"'" | [locale-without-utf-8](../tests/mutants/planted/locale-without-utf-8.patch) |' >"$T/root/doc/defects.md"
    ROOT=$T/root run mutants --planted --count=0
    [ "$status" -ne 77 ] || skip 'no pid namespace can be made here'
    echo "$output"
    [ "$status" -eq 1 ]
    grep -q '^SURVIVED locale-without-utf-8: what was wrong' <<<"$output"
}

@test "a mutated rule is caught by its unit test, an untested one is not, and the seed reproduces both" {
    local rule=(--only=src/lock/lease.c --seed=2 --count=2 --least=100)
    is_built_in_place || skip 'not built in its tree'
    run mutants "${rule[@]}" --tests=unit/test_lease
    [ "$status" -ne 77 ] || skip 'no pid namespace can be made here'
    echo "$output"
    [ "$status" -eq 0 ]
    equals "$(grep -c '^killed src/lock/lease\.c:[0-9]* .* | unit/test_lease: ' <<<"$output")" 2
    grep -q '^seed 2, drawn: 2 judged, 2 (100.0 %) killed, 0 survived; ' <<<"$output"
    local drawn
    drawn=$(grep '^killed' <<<"$output" | cut -d' ' -f2)
    run mutants "${rule[@]}" --tests=unit/test_json
    [ "$status" -eq 1 ]
    equals "$(grep '^SURVIVED' <<<"$output" | cut -d' ' -f2)" "$drawn"
}
