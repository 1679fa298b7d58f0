#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; }
teardown() { common_teardown; }

@test "durations are read as people write them" {
    local text seconds
    while read -r text seconds; do
        run dlock --ttl="$text" job -- sh -c 'echo $DLOCK_LOCK_TTL'
        equals "$text $output" "$text $seconds"
    done <<'T'
90 90
1.5s 1.500
100ms 0.100
.5 0.500
1m 60
1h30m 5400
1h30 3630
1d 86400
30d 2592000
0.5h 1800
1.0005s 1
1s500ms 1.500
2h3m4s5ms 7384.005
007s 7
T
}

@test "a wrong duration: exit 64, the option, the text, what would be right; nothing run" {
    local text pattern option
    while IFS='|' read -r text pattern; do
        for option in ttl wait grace outage connect-timeout; do
            fails_with 64 "^dlock: job: --$option: '.*': .*$pattern" dlock "--$option=$text" job touch "$T/ran"
            [[ $output == *"'$text'"* ]]
            [ ! -e "$T/ran" ]
        done
    done <<'T'
|it is empty; a duration is needed
-1|cannot be negative
-0|cannot be negative
abc|not a number
nan|not a number
inf|not a number
s|not a number
1x|unit is unknown; ms, s, m, h and d
5sec|unit is unknown
1e3|unit is unknown
1 s|unit is unknown
1s |not a number
+5|not a number
1.|not a number
1.s|not a number
1..5|not a number
0x10|unit is unknown
1,5|unit is unknown
99999999999999999999|too large
99999999999d|too large
9223372036s9223372036s|too large
1.5.5|unit is unknown
T
}

@test "a lease is 100ms to 30d: its borders are in, beyond them nothing is clamped" {
    run dlock --ttl=100ms job true
    [ "$status" -eq 0 ]
    run dlock --ttl=30d job true
    [ "$status" -eq 0 ]
    local text
    for text in 99ms 0 30d1ms 31d 0.0999; do
        fails_with 64 "--ttl: '$text': a lease lasts from 100ms to 30d" dlock --ttl=$text job touch "$T/ran"
    done
    [ ! -e "$T/ran" ]
}

@test "a grace as long as the lease makes no sense: exit 64" {
    fails_with 64 '--grace: it must be shorter than the lease' dlock --ttl=10 --grace=10 job touch "$T/ran"
    fails_with 64 '--grace: it must be shorter' dlock --ttl=10 --grace=1h job touch "$T/ran"
    [ ! -e "$T/ran" ]
    run dlock --ttl=10 --grace=9.9 job true
    [ "$status" -eq 0 ]
}

@test "a connect timeout of nothing is refused" {
    fails_with 64 "--connect-timeout: '0': it must be at least 1ms" dlock --connect-timeout=0 job true
}

@test "figures for people are cut to what they read; times are local, with their offset" {
    export DLOCK_BACKEND=file
    TZ=XYZ-5:30 dlock -v --acquire --ttl=1h30m59s long >"$T/token" 2>"$T/said"
    grep -qE ', until .*[0-9]{2}:[0-9]{2}:[0-9]{2} \+0530$' "$T/said"
    [[ $(dlock --list) == *' 1h30m '* ]]
    [[ $(TZ=XYZ-5:30 dlock --status long) == *'since '*' +0530, lease ends in 1h30m'* ]]
    fails_with 75 ', whose lease ends in 1h30m$' dlock -nv long true
    dlock --acquire --ttl=10s short >/dev/null
    fails_with 75 '; not taken after (10?[0-9]{2}ms|1(\.[0-9])?s)$' dlock -v -w 100ms short true
    fails_with 69 'tried [0-9]+ times? in ([0-9]+ms|less than 1ms); ' dlock -r "unix://$T/none" --backend=redis --outage=0 job true
}
