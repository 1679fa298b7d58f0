#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; }
teardown() { common_teardown; }

@test "wrong usage: exit 64, what is wrong, nothing run, nothing left" {
    fails_with 64 'no lock name given; usage: dlock' dlock -n
    fails_with 64 'no command given; usage: dlock' dlock job
    fails_with 64 'no command given' dlock job --
    fails_with 64 'no command given' dlock job -n --
    fails_with 64 '^dlock: --nosuch: unknown option; dlock --help' dlock --nosuch job touch "$T/ran"
    fails_with 64 '--nosuch: unknown option' dlock job --nosuch touch "$T/ran"
    fails_with 64 '^dlock: -Z: unknown option' dlock -Z job touch "$T/ran"
    fails_with 64 '--ttl: it needs a value' dlock --ttl
    fails_with 64 '-c: it needs a value|--command: it needs a value' dlock job -c
    fails_with 64 '--command: it is the whole command; no further words' dlock -c true job touch "$T/ran"
    fails_with 64 '--command: it is the whole command' dlock job -c true touch "$T/ran"
    [ ! -e "$T/ran" ]
    [ ! -e "$T/locks" ]
}

@test "a wrong number, word or signal: exit 64 and what would be right" {
    local text
    for text in 256 -1 abc '' 1.5 7x; do
        fails_with 64 "^dlock: job: --conflict-exit-code: '$text': an exit status is a whole number from 0 to 255" \
            dlock "--conflict-exit-code=$text" job touch "$T/ran"
    done
    for text in NOSUCH 0 65 -9 '' SIG TERMX RTMIN+99; do
        fails_with 64 "--stop-signal: '.*': no such signal; TERM, SIGTERM or 15" dlock "--stop-signal=$text" job touch "$T/ran"
    done
    fails_with 64 "--backend: 'mysql': it must be auto\|redis\|file" dlock --backend=mysql job touch "$T/ran"
    fails_with 64 "--backend: 'fil': it must be" dlock --backend=fil job touch "$T/ran"
    fails_with 64 "--on-expire: 'explode': it must be stop\|warn" dlock --on-expire=explode job touch "$T/ran"
    fails_with 64 "--on-degraded: '': it must be warn\|warn-throttled\|proceed\|fail" dlock --on-degraded= job touch "$T/ran"
    fails_with 64 "--fallback: 'redis': it must be file" dlock --fallback=redis job touch "$T/ran"
    fails_with 64 "--lock-dir: '': the path is empty" dlock --lock-dir= job touch "$T/ran"
    fails_with 64 "--lock-file: '': the path is empty" dlock --lock-file= job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "signals are known by name and number, and named as one would expect" {
    local text
    for text in TERM SIGTERM term sigterm 15 USR1 RTMIN RTMIN+1 64; do
        run dlock "--stop-signal=$text" job true
        [ "$status" -eq 0 ]
    done
}

@test "a wrong lock name, scope or prefix: exit 64" {
    fails_with 64 'the lock name is empty' dlock '' touch "$T/ran"
    fails_with 64 'the lock name is 1025 bytes long; at most 1024' dlock "$(printf 'n%.0s' {1..1025})" touch "$T/ran"
    fails_with 64 'is not valid UTF-8 at byte 2' dlock $'a\xff' touch "$T/ran"
    fails_with 64 'is not valid UTF-8 at byte 1' dlock $'\xc0\xaf' touch "$T/ran"
    fails_with 64 'is not valid UTF-8 at byte 1' dlock $'\xed\xa0\x80' touch "$T/ran"
    fails_with 64 'is not valid UTF-8 at byte 1' dlock $'\xf4\x90\x80\x80' touch "$T/ran"
    fails_with 64 'is not valid UTF-8 at byte 2' dlock $'a\xe2\x98' touch "$T/ran"
    fails_with 64 'has a control character at byte 2' dlock $'a\nb' touch "$T/ran"
    fails_with 64 'has a control character at byte 1' dlock $'\x7f' touch "$T/ran"
    fails_with 64 'has a control character at byte 3' dlock $'ab\xc2\x9bc' touch "$T/ran"
    fails_with 64 '--scope: the scope is empty' dlock --scope= job touch "$T/ran"
    fails_with 64 '--prefix: the prefix .*control' dlock --prefix=$'\t' job touch "$T/ran"
    [ ! -e "$T/ran" ]
    run dlock --prefix= "$(printf 'n%.0s' {1..1024})" true
    [ "$status" -eq 0 ]
}

@test "foreign text in a message cannot disturb a terminal" {
    run dlock $'a\e[31mb' true
    [[ $output != *$'\e'* ]]
    [[ $output == *'a\x1B[31mb'* ]]
}

@test "a wrong owner token: exit 64" {
    fails_with 64 '--owner: it is 0 bytes long' dlock --owner= job touch "$T/ran"
    fails_with 64 '--owner: it is 257 bytes long' dlock "--owner=$(printf 'o%.0s' {1..257})" job touch "$T/ran"
    fails_with 64 '--owner: only printable ASCII' dlock '--owner=a b' job touch "$T/ran"
    fails_with 64 '--owner: only printable ASCII' dlock '--owner=ü' job touch "$T/ran"
    fails_with 64 '--owner: .*shared lock' dlock --owner=dlock:shared job touch "$T/ran"
    [ ! -e "$T/ran" ]
    run dlock "--owner=$(printf 'o%.0s' {1..256})" job true
    [ "$status" -eq 0 ]
}

@test "--lock-file and --backend=redis exclude each other" {
    fails_with 64 '--lock-file: it needs the file backend' dlock --lock-file="$T/f" --backend=redis job touch "$T/ran"
}

@test "Redis asked for but not configured: the option is named" {
    fails_with 64 '--backend: Redis is asked for, but none is configured; --redis=URL' dlock --backend=redis job touch "$T/ran"
    unset DLOCK_BACKEND
    DLOCK_BACKEND=redis fails_with 78 'DLOCK_BACKEND: Redis is asked for' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "--help, --usage and --version work whatever else is wrong, on stdout" {
    local option
    for option in --help -h --usage --version -V; do
        run sh -c "dlock --ttl=nonsense $option 2>/dev/null"
        [ "$status" -eq 0 ]
        [ -n "$output" ]
    done
    run dlock job --help
    [[ $output == *'Usage: dlock [OPTIONS] NAME'* ]]
    # A command's own are not ours.
    run dlock job sh -c 'echo "$1"' sh --help
    equals "$output" --help
}

@test "a value that looks like an option is a value" {
    run dlock --backend=file --owner --attach=5 job -- sh -c 'dlock --current --json'
    equals "$status" 0
    [[ $output == *'"owner":"--attach=5"'* ]]
    fails_with 64 "^dlock: job: --attach: '5x'" dlock --attach=5x --attach=99999999 job
}

@test "help that cannot be written is a failure" {
    [ -e /dev/full ] || skip 'no /dev/full'
    run sh -c 'dlock --help >/dev/full'
    [ "$status" -eq 73 ]
    run sh -c 'dlock --version >/dev/full'
    [ "$status" -eq 73 ]
}

@test "options of flock(1) that have no sense here are refused with the reason; -o is as it is anyway" {
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    fails_with 64 '--no-fork: dlock stays beside the command' dlock -F job touch "$T/ran"
    fails_with 64 '--unlock: .*released when the command ends' dlock --unlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    run dlock -o job echo ok
    equals "$output" ok
}

@test "what belongs to other actions, or to no lock file, is refused with where it belongs" {
    fails_with 64 'owner-file: it is for --acquire, --extend and --release' dlock --owner-file="$T/token" job touch "$T/ran"
    fails_with 64 'slots: a --lock-file holds nothing' dlock --lock-file="$T/file" --slots=2 job touch "$T/ran"
    fails_with 64 "hash: 'md5': it must be none.sha256.hmac-sha256" dlock --hash=md5 job touch "$T/ran"
    local hosts
    hosts=$(printf 'h%d,' {1..17})
    fails_with 64 'too many hosts' dlock --backend=redis -r "redis+cluster://${hosts%,}" job touch "$T/ran"
    fails_with 64 'the user name is too long or wrongly coded' dlock --backend=redis -r 'redis://%zz:x@h' job touch "$T/ran"
    local long
    printf -v long '/%04999d' 0
    fails_with 77 'the lock directory /0+ has too long a path' dlock --lock-dir="$long" job touch "$T/ran"
    fails_with 78 'a --lock-file has too long a path' dlock --lock-file="$long" job touch "$T/ran"
    fails_with 78 'the lock is in Redis, and none is configured here: repeat the --redis of the outer dlock, or set DLOCK_REDIS for both' \
        env -u DLOCK_BACKEND DLOCK_HELD='redis token take dlock:job' "$DLOCK" --extend
    [ ! -e "$T/ran" ]
}

@test "--heartbeat with --lock-file: the deadline moves on with each sign of life" {
    cat >"$T/beat" <<'E'
#!/bin/sh
for i in 1 2 3 4 5 6; do sleep 0.3; systemd-notify WATCHDOG=1 || exit; done
E
    chmod +x "$T/beat"
    run dlock --lock-file="$T/file" --heartbeat -t 1500ms --grace=100ms job -- "$T/beat"
    equals "$status $output" '0 '
}
