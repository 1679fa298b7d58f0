#!/usr/bin/env bats
# bats file_tags=long
# Runs this build on the inputs that fuzzing starts from, and on those that it once
# found. `make fuzz` searches for more.
load ../lib/common
# shellcheck source=tests/fuzz/fuzzers.bash
. "$BATS_TEST_DIRNAME/fuzzers.bash"

@test "no input in the fuzzers' corpus breaks its parser or a promise about it" {
    local name
    cd "$T"
    for name in $fuzzers; do
        run "$HELPERS/../fuzz/fuzz_$name" "$TESTS/fuzz/corpus/$name"/*
        equals "$name $status" "$name 0"
        [ "${output##*$'\n'}" = "$(ls "$TESTS/fuzz/corpus/$name" | wc -l) inputs" ]
    done
}

@test "slightly changed copies of the same inputs break nothing either" {
    local name
    cd "$T"
    for name in $fuzzers; do
        run "$HELPERS/../fuzz/fuzz_$name" -runs=500 -seed=7 "$TESTS/fuzz/corpus/$name"/*
        equals "$name $status" "$name 0"
    done
}
