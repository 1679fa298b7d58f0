#!/usr/bin/env bats
# bats file_tags=long
# A small version of `make model`, and a test that it finds what it looks for.
load ../lib/common

# model ARGUMENTS...: runs it with the seed in the output. It ends its own children on TERM.
model() {
    run timeout --kill-after=10 300 python3 "$TESTS/model/model.py" "$@"
    echo "$output"
}

as_the_model_says='^(redis|file): [0-9]+ steps, .* all as the model says$'

@test "on Redis, several clients get the results that the model predicts, whatever they do" {
    model --backend redis --steps 600 "$DLOCK"
    [ "$status" -eq 0 ]
    equals "$(grep -cE "$as_the_model_says" <<<"$output")" 1
}

@test "on files, several clients get the results that the model predicts, whatever they do" {
    model --backend file --steps 600 "$DLOCK"
    [ "$status" -eq 0 ]
    equals "$(grep -cE "$as_the_model_says" <<<"$output")" 1
}

@test "the same seed draws the same steps, which have the same results on both backends" {
    model --steps 200 --seed bats "$DLOCK"
    [ "$status" -eq 0 ]
    equals "$(grep -cE "$as_the_model_says" <<<"$output")" 2
    drawn() { python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import model; print(list(model.draw("bats", 200)))' "$TESTS/model"; }
    export PYTHONDONTWRITEBYTECODE=1
    equals "$(drawn)" "$(drawn)"
}

@test "the model finds every change to what a step saw" {
    model --plants --backend redis --steps 500 --seed bats "$DLOCK"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^redis: planted .*: found' <<<"$output")" -ge 30 ]
    not grep -q 'NOT FOUND' <<<"$output"

    model --plant fence --backend redis --steps 200 --seed bats "$DLOCK"
    [ "$status" -eq 1 ]
    grep -qE '^redis: wrong at step [0-9]+ of seed bats: fence: [0-9]+ does not rise above [0-9]+$' <<<"$output"
}

@test "the model reproduces, in two steps, a dlock that lets a stranger release" {
    cat >"$T/wrong" <<H
#!/bin/sh
case " \$* " in *" --release "*" --owner=nobody "*)
    for word; do
        shift
        case \$word in
            --release) set -- "\$@" --force-release ;;
            --owner=* | --exit-status=*) ;;
            *) set -- "\$@" "\$word" ;;
        esac
    done ;;
esac
exec "$DLOCK" "\$@"
H
    chmod +x "$T/wrong"
    model --backend redis --steps 200 --seed bats "$T/wrong"
    [ "$status" -eq 1 ]
    grep -qE '^the shortest found, 2 of [0-9]+ steps, .*: code: 0 None, wanted LOCK_OWNERSHIP_MISMATCH' <<<"$output"
    sed -n '/^the shortest/,$p' <<<"$output" | grep -qE '^ +2  dlock --release --json --owner=nobody '
}
