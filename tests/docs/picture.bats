#!/usr/bin/env bats
# The picture in README.md shows what the program shows.
load ../lib/common

@test "doc/waiting.svg is what make picture makes of this program" {
    "$TESTS/../doc/make-picture" "$DLOCK" >"$T/waiting.svg" 3>&- 4>&-
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$T/waiting.svg"
    diff "$TESTS/../doc/waiting.svg" "$T/waiting.svg" || { echo 'make picture, and look at it' >&2; false; }
}

@test "the picture has a title and a description, and nothing that runs or is fetched" {
    local picture=$TESTS/../doc/waiting.svg
    grep -q '<title id="title">Waiting for a lock' "$picture"
    grep -q '<desc id="desc">.*held by ann@web3' "$picture"
    not grep -qE '<script|<image|href|url\(|@import' "$picture"
}
