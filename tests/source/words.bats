#!/usr/bin/env bats
# dlock's words are plain, idiomatic technical English. These patterns match what readers stumble over: most of it, not all.

load ../lib/common
setup() { common_setup; cd "$TESTS/.." || return; }

PATTERNS=(
    '(^|[.;:*] +)(Who|Whoever|What) [a-z]+s? '
    '(, where |^where |\bwhere (it|there|that|this|a|an|the|no|nothing|somebody|none)\b)'
    '\b(to be had|is had|had by|not had)\b'
    '\b(is|are|be|was|were) told\b|\btells? (of|what|whether|who|why)\b'
    '\belse[.;,]|, also (where|of|in|with|after|if|over)\b'
    '\b(is|are|was|were) to be\b'
    '\b(somebody|nobody|anybody)\b'
    '\b(stands?|stood) (in|there|for|beside|before|behind|still)\b'
    '\b(so is that|so it is|so are those|and so may)\b'
)

# at_most COUNT FILE...: these files have at most COUNT matches of the patterns; more are shown.
at_most() {
    local most=$1 pattern
    shift
    for pattern in "${PATTERNS[@]}"; do
        grep -onEi -- "$pattern" "$@" /dev/null || true
    done >"$T/found"
    [ "$(wc -l <"$T/found")" -le "$most" ] || { cat "$T/found" >&2; return 1; }
}

sources() {
    find src -name '*.[ch]' ! -name embedded.h | sort
}

@test "the patterns match the words that they are made for" {
    echo 'Who waits is told of it, where it is to be had; so it is, or else.' >"$T/bad"
    not at_most 6 "$T/bad" 2>/dev/null
    at_most 7 "$T/bad"
}

@test "messages, --help and advice are in plain words" {
    # shellcheck disable=SC2046 # no blanks in the names
    python3 tests/source/messages.py $(sources) >"$T/all"
    [ "$(wc -l <"$T/all")" -gt 500 ]
    sed -E 's/^[^ ]*: //; /^what to do /d' "$T/all" >"$T/messages"
    at_most 0 "$T/messages"
}

@test "the manual and README are in plain words" {
    at_most 20 doc/*.1 doc/*.5 doc/*.7 README.md
}

@test "the sources are in plain words" {
    # shellcheck disable=SC2046
    at_most 80 $(sources)
}
