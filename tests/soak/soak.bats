#!/usr/bin/env bats
# bats file_tags=long
# A small version of `make soak`, and a test that it finds what it looks for.
load ../lib/common
setup() { common_setup; export PYTHONDONTWRITEBYTECODE=1; }

# It ends its own children on TERM.
soak() { timeout --kill-after=10 150 python3 "$TESTS/soak/soak.py" --seed bats --slow-most 1 "$@" "$DLOCK"; }

@test "cron on many hosts, for several times of day: each job runs once, nothing grows, nothing is left" {
    run soak --slots 4 --draw 5 --hold 1
    echo "$output"
    [ "$status" -eq 0 ]
    equals "$(grep -cE '^(file|redis): 4 slots, .* 0 wrong$' <<<"$output")" 2
}

@test "cron on many hosts while Redis restarts with its data and hangs: no job runs twice, all end, nothing grows" {
    run soak --slots 4 --draw 5 --hold 1.5 --backend redis --fail-every 2
    echo "$output"
    [ "$status" -eq 0 ]
    grep -qE '^redis: 4 slots, .* 2 failures of the server, .* 0 wrong$' <<<"$output"
}

@test "the soak finds what is left after each time of day" {
    run soak --slots 3 --draw 2 --hold 0.5 --backend redis --plant key
    [ "$status" -eq 1 ]
    [[ $output == *'WRONG: left behind: dlock:left-'* ]]
    run soak --slots 3 --draw 2 --hold 0.5 --backend file --plant process
    [ "$status" -eq 1 ]
    [[ $output == *'WRONG: 3 processes left behind'* ]]
}

@test "growth is distinguished from fluctuation and from a single rise" {
    growth() { python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import soak; print(round(soak.growth(eval(sys.argv[2]))[0]))' "$TESTS/soak" "$1"; }
    equals "$(growth '[9] * 100')" 0
    equals "$(growth '[9, 12, 10] * 40')" 0
    equals "$(growth '[1] * 15 + [50] * 85')" 0
    equals "$(growth 'list(range(101))')" 80
    equals "$(growth '[n // 2 + n % 3 for n in range(101)]')" 40
}
