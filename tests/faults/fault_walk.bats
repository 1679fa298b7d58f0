#!/usr/bin/env bats
# bats file_tags=long
# A small version of `make fault-walk`, and a test that it finds what it looks for.
load ../lib/common
setup() {
    common_setup
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
}

# walk ARGUMENTS...: draws the same samples each time, so a change is judged by what it changes; `make fault-walk` draws
# different ones.
walk() {
    local seed=${WALK_SEED:-bats}
    echo "seed $seed"
    run timeout --kill-after=10 120 python3 "$TESTS/faults/fault_walk.py" --seed "$seed" "$@" "$DLOCK" "$HELPERS/fail_nth.so"
    echo "$output"
}

@test "whatever call fails on files: no command without its lock, no lock left, no hang, but a status and a message" {
    walk --scenarios file,file_held --kinds error,short,limit,back --most 2
    [ "$status" -eq 0 ]
    grep -qE '^2 scenarios .* 0 findings$' <<<"$output"
}

@test "whatever call fails on Redis: no command without its lock, no lock left, no hang, but a status and a message" {
    walk --scenarios redis,redis_watched --kinds error,short --most 1
    [ "$status" -eq 0 ]
    grep -qE '^2 scenarios .* 0 findings$' <<<"$output"
}

@test "whatever call fails: a lock stays paused until it is resumed, and --pause and --resume report the truth" {
    walk --scenarios file_pause,file_resume,file_paused,redis_pause --functions pread64,pwrite64,openat64,rename,send,recv --kinds error,rest --most 2
    [ "$status" -eq 0 ]
    grep -qE '^4 scenarios .* 0 findings$' <<<"$output"
}

@test "whatever call fails: --ran-within and --once-per do not forget a run" {
    walk --scenarios file_ran_within_done,file_once_done,redis_ran_within_done,redis_once_done --functions fstat64,openat64,mmap,recv --kinds error,rest --most 3
    [ "$status" -eq 0 ]
    grep -qE '^4 scenarios .* 0 findings$' <<<"$output"
}

@test "OpenSSL without memory for its start: a hashed name is refused, and dlock does not crash" {
    # These calls of malloc are OpenSSL's: it had no memory for its default context, and crashed when it used it.
    local at
    for at in 45 60 75; do
        walk --case=redis_hash:malloc:$at:error:12
        [ "$status" -eq 0 ]
        grep -q 'exit statuses: 78:1; 0 findings$' <<<"$output"
    done
}

@test "the walk covers each call of the C library, or lists it as not covered" {
    command -v nm >/dev/null || skip 'needs nm'
    run python3 "$TESTS/faults/fault_walk.py" --unknown "$DLOCK" "$HELPERS/fail_nth.so"
    equals "$output" ""
}

@test "a call is known under each name that a C library gives it, and a new call is found" {
    mkdir "$T/tools"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nprintf "                 U %%s\\n" %s\n' "malloc@GLIBC_2.2.5 __isoc23_strtoul@GLIBC_2.38 __isoc2y_strtol@GLIBC_2.50 \
        __stat64_time64 __fcntl_time64 __clock_gettime64 __open64_2 __snprintf_chk _exit __read_chk vmsplice __isoc23_strange preadv64v2" >"$T/tools/nm"
    chmod +x "$T/tools/nm"
    PATH=$T/tools:$PATH run python3 "$TESTS/faults/fault_walk.py" --unknown "$DLOCK" "$HELPERS/fail_nth.so"
    equals "$output" $'__isoc23_strange\npreadv64v2\nvmsplice'
}

# A script in place of dlock breaks the promises on purpose.
plant() {
    printf '#!/bin/sh\n%s\n' "$1" >"$T/planted"
    chmod +x "$T/planted"
    run timeout --kill-after=10 60 python3 "$TESTS/faults/fault_walk.py" --scenarios file --functions "${2:-limits}" "$T/planted" "$HELPERS/fail_nth.so"
    echo "$output"
    [ "$status" -eq 1 ]
}

@test "the walk finds a command without a lock, a lock that is left, and a failure without a message" {
    plant 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    [[ $output == *'the command runs without its lock'* ]]
    plant "'$DLOCK' \"\$@\"; status=\$?; mkdir -p \"\$WALK/locks\"; : >\"\$WALK/locks/dlock:job.lock\"; exit \$status"
    [[ $output == *'the lock file is left'* ]]
    plant 'exit 71'
    [[ $output == *'a failure without a word'* ]]
}

@test "a limit on file sizes is an ordinary error, and kills no dlock that runs no command" {
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    dlock --acquire --owner=token job
    fails_with 0 '' bash -c 'ulimit -f 0; exec dlock --release --owner=token job'
    fails_with 1 '^job: free' dlock --status job
}

@test "without memory, --status never reports a free lock" {
    walk --scenarios file_status --functions malloc,calloc,realloc --kinds error
    [ "$status" -eq 0 ]
    grep -qE '^1 scenarios .* 71:[1-9].* 0 findings$' <<<"$output"
}
