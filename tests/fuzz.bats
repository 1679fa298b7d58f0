#!/usr/bin/env bats
# The inputs that fuzzing starts from, and those that it once found, in this
# build. `make fuzz` looks for more.
load common
setup() { common_setup; }
teardown() { common_teardown; }

@test "no reply, URL, configuration or duration of the fuzzers' corpus breaks its reader" {
    local name
    cd "$T"
    for name in reply url config duration; do
        run "$HELPERS/../fuzz/fuzz_$name" "$TESTS/fuzz/corpus/$name"/*
        equals "$name $status" "$name 0"
        [ "${output% inputs}" -eq "$(ls "$TESTS/fuzz/corpus/$name" | wc -l)" ]
    done
}

@test "the same inputs, changed a little, break nothing either" {
    local name
    cd "$T"
    for name in reply url config duration; do
        run "$HELPERS/../fuzz/fuzz_$name" -seconds=1 -seed=7 "$TESTS/fuzz/corpus/$name"/*
        equals "$name $status" "$name 0"
    done
}
