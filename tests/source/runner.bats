#!/usr/bin/env bats
# Which files tests/run passes to bats, in which order, and how it reads the output.
load ../lib/common
setup() {
    common_setup
    RUNNER=$(realpath "$TESTS/run")
    unset BACKENDS AGAIN JOBS
    # A bats that records its files, and prints $T/tap.
    printf '#!/bin/sh\nfor file; do case $file in *.bats) echo "$file" >>"%s"; esac; done\ncat "%s"\n' "$T/ran" "$T/tap" >"$T/bin/bats"
    chmod +x "$T/bin/bats"
    printf '1..1\nok 1 one\n' >"$T/tap"
}

# ran ARGUMENTS...: prints the files that tests/run passes to bats, as FOLDER/FILE or BACKEND/both/FILE.
ran() {
    rm -f "$T/ran"
    "$RUNNER" "$@" >/dev/null
    awk -F/ '{ sub(/\.bats$/, ""); print ($(NF - 1) == "both" ? $(NF - 2) "/" : "") $(NF - 1) "/" $NF }' "$T/ran"
}

@test "each test file runs by default or with --long; those in both/ run once for each backend" {
    ran | sort >"$T/usual"
    ran --long | sort >"$T/long"
    ran --all | sort >"$T/all"
    (cd "$TESTS" && printf '%s\n' */*.bats) | sed -E 's/\.bats$//; s,^both/.*,file/&\nredis/&,' | sort >"$T/there"
    diff "$T/there" "$T/all"
    equals "$(sort "$T/usual" "$T/long" | diff - "$T/all")" ''
    equals "$(comm -12 "$T/usual" "$T/long")" ''
    grep -qx torture/torture "$T/long"
    equals "$(BACKENDS=redis ran "$TESTS/both/fence.bats" "$TESTS/cli/options.bats" | sort)" $'cli/options\nredis/both/fence'
}

@test "a file with slow tests starts before one with a few more quick ones" {
    mkdir "$T/some"
    printf '@test "%s" {\n    true\n}\n' one two three >"$T/some/quick.bats"
    printf '# bats test_tags=slow\n@test "one" {\n    true\n}\n' >"$T/some/slow.bats"
    equals "$(ran "$T/some/quick.bats" "$T/some/slow.bats")" $'some/slow\nsome/quick'
}

@test "in each file the slow tests come first" {
    equals "$(cd "$TESTS" && awk 'FNR == 1 { quick = 0 } /^# bats test_tags=slow/ && quick { print FILENAME ":" FNR }
        /^@test / && last !~ /^# bats test_tags=slow/ { quick = 1 } { last = $0 }' */*.bats)" ''
}

@test "a suite that is interrupted fails, and so does one in which no test ran" {
    printf '1..3\nok 1 one\nok 2 two\n' >"$T/tap"
    fails_with 1 '2 of 3 tests ran' "$RUNNER" "$TESTS/cli/options.bats"
    grep -qx '# ok 2 two' <<<"$output"
    grep -qx '2 passed, 1 failed' <<<"$output"
    echo 1..0 >"$T/tap"
    fails_with 1 '^0 passed, 1 failed' "$RUNNER" "$TESTS/cli/options.bats"
}

@test "with AGAIN, a test that passes when run alone is named and does not count as failed" {
    printf '1..2\nnot ok 1 one\n# (in test file %s, line 3)\nok 2 two # skip why\n' "$TESTS/cli/options.bats" >"$T/tap"
    fails_with 1 '^0 passed, 1 failed, 1 skipped' "$RUNNER" "$TESTS/cli/options.bats"
    # When run alone, it is the first test.
    printf '#!/bin/sh\n[ "$2" != -f ] || { echo 1..1; echo "ok 1 $3"; exit; }\ncat "%s"\n' "$T/tap" >"$T/bin/bats"
    AGAIN=1 fails_with 0 '^UNSTEADY: failed among others, passed alone: one$' "$RUNNER" "$TESTS/cli/options.bats"
    grep -qx '1 passed, 0 failed, 1 skipped' <<<"$output"
    printf '1..2\nnot ok 1 one\nnot ok 2 two\n' >"$T/tap"
    AGAIN=1 fails_with 1 '^0 passed, 2 failed' "$RUNNER" "$TESTS/cli/options.bats"
}
