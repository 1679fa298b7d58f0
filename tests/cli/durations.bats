#!/usr/bin/env bats
# The parsing and rounding of durations is tested in tests/unit/test_duration.c.
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; }

@test "times are rounded for people; times of day are local, with their UTC offset" {
    export DLOCK_BACKEND=file
    TZ=XYZ-5:30 dlock -v --acquire --ttl=1h30m59s long >"$T/token" 2>"$T/said"
    grep -qE '; the lease ends at .*[0-9]{2}:[0-9]{2}:[0-9]{2} \+0530$' "$T/said"
    [[ $(dlock --list) == *' 1h30m '* ]]
    [[ $(TZ=XYZ-5:30 dlock --status long) == *'since '*' +0530, lease ends in 1h30m'* ]]
    fails_with 75 ', lease ends in 1h30m$' dlock -nv long true
    dlock --acquire --ttl=10s short >/dev/null
    fails_with 75 'gave up after ([0-9]{3}ms|[0-9]+(\.[0-9])?s): held by' dlock -v -w 100ms short true
    fails_with 69 'tried [0-9]+ times in [0-9]+(ms|(\.[0-9])?s); ' dlock -r "unix://$T/none" --backend=redis --retry-for=500ms job true
}
