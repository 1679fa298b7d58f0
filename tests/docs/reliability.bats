#!/usr/bin/env bats
# The pages on reliability, faults, defects and threats name a test for each statement; all of these tests exist.
load ../lib/common
setup() { common_setup; DOC=$TESTS/../doc; }

# named PAGE: prints a line "FILE NAME" for each test that the page names, even if the name is wrapped.
named() { tr '\n' ' ' <"$1" | grep -oE '[a-z_/]+: "[^"]+"' | sed -E 's/^([a-z_\/]+): "([^"]*)"$/\1 \2/; s/  +/ /g'; }

# standing: prints a line "FILE NAME" for each test that exists and does not start with an unconditional skip.
standing() {
    (cd "$TESTS" && awk '
        name != "" { if ($0 !~ /^ *(skip( .*)?|}|true|:)$/) print name; name = "" }
        /^@test "/ {
            file = FILENAME; sub(/\.bats$/, "", file)
            text = $0; sub(/^@test "/, "", text); sub(/" \{.*/, "", text)
            if ($0 ~ /\{$/) name = file " " text; else print file " " text
        }' ./*/*.bats) | sed 's,^\./,,'
}

# all_stand PAGE LEAST: the page names at least LEAST tests, and all of them exist.
all_stand() {
    named "$1" | sort -u >"$T/named"
    standing | sort -u | comm -23 "$T/named" - >"$T/missing"
    [ "$(wc -l <"$T/named")" -ge "$2" ] || { echo "too few tests are named"; return 1; }
    [ ! -s "$T/missing" ] || { sed 's/^/no such test, or an empty one: /' "$T/missing"; return 1; }
}

@test "every test named in the fault matrix and the threat model exists" {
    all_stand "$DOC/faults.md" 60
    all_stand "$DOC/reliability.md" 15
    all_stand "$DOC/defects.md" 40
    all_stand "$DOC/threat-model.md" 20
}

@test "the fault matrix has a test for at least 45 faults, and a promise for each" {
    grep -E '^\| ' "$DOC/faults.md" | grep -vE '^\| (---|fault )' >"$T/rows"
    equals "$(grep -cvE '^\| [^|]+ \| [^|]+ \| ([a-z_/]+: ".*"|campaign only) \|$' "$T/rows")" 0
    [ "$(grep -c ': "' "$T/rows")" -ge 45 ]
}

@test "a missing or empty test is found" {
    printf 'cli/one: "is here", cli/one: "is empty" and two:\n"is\nnowhere"\n' >"$T/page.md"
    mkdir -p "$T/tests/both" "$T/tests/cli"
    printf '@test "is here" {\n    true && [ 1 ]\n}\n@test "is empty" {\n    skip\n}\n' | tee "$T/tests/both/x.bats" >"$T/tests/cli/one.bats"
    TESTS=$T/tests fails_with 1 'no such test, or an empty one: cli/one is empty' all_stand "$T/page.md" 1
    [[ $output == *'empty one: two is nowhere'* && $output != *'is here'* ]]
}

@test "the page on reliability is short enough to read at one sitting, and names the limits" {
    [ "$(wc -l <"$DOC/reliability.md")" -le 350 ]
    grep -q '^## What is promised' "$DOC/reliability.md"
    grep -q '^## What cannot be promised' "$DOC/reliability.md"
}
