#!/usr/bin/env bats
# The pictures in README.md show what the program shows.
load ../lib/common

@test "the pictures in doc/ are those that make picture makes of this program" {
    local picture
    for picture in waiting history; do
        "$TESTS/../doc/make-picture" "$DLOCK" "$picture" >"$T/$picture.svg" 3>&- 4>&-
        python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$T/$picture.svg"
        diff "$TESTS/../doc/$picture.svg" "$T/$picture.svg" || { echo 'make picture, and look at it' >&2; false; }
    done
}

@test "each picture has a title and a description, and runs or fetches nothing" {
    grep -q '<title id="title">Waiting for a lock' "$TESTS/../doc/waiting.svg"
    grep -q '<desc id="desc">.*usually 12m, about 4m left; held by ann@web3' <(tr '\n' ' ' <"$TESTS/../doc/waiting.svg")
    grep -q '<title id="title">The history of a lock' "$TESTS/../doc/history.svg"
    grep -q ' / 9 runs in 8 days, 8 succeeded; usually 12m ' "$TESTS/../doc/history.svg"
    not grep -qE '<script|<image|href|url\(|@import' "$TESTS"/../doc/{waiting,history}.svg
}
