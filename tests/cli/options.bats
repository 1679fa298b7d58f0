#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; }

# Valid and invalid values of each option are tested in tests/unit/test_options.c.
@test "wrong usage: exit 64 with the lock, the option, its value and what would be right; nothing is run or left" {
    fails_with 64 '^dlock: no lock name given; usage: dlock' dlock -n
    fails_with 64 '^dlock: --ttl: needs a value$' dlock --ttl
    fails_with 64 '^dlock: -n: takes no value$' dlock -n=3 job touch "$T/ran"
    fails_with 64 '^dlock: /file: --bogus: unknown option' dlock --lock-file=/file --bogus -- touch "$T/ran"
    fails_with 64 "the lock name 'a.*' is not valid UTF-8 at byte 2" dlock $'a\xff' touch "$T/ran"
    local option
    for option in ttl wait grace retry-for connect-timeout; do
        fails_with 64 "^dlock: job: --$option: '1x': unknown unit; use ms, s, m, h, d or w$" \
            dlock "--$option=1x" job touch "$T/ran"
    done
    fails_with 64 "^dlock: job: --ttl: '99ms': a lease must last from 100ms to 30d$" dlock --ttl=99ms job touch "$T/ran"
    fails_with 64 "^dlock: job: --stop-signal: 'NOSUCH': no such signal; " dlock --stop-signal=NOSUCH job touch "$T/ran"
    fails_with 64 "^dlock: job: --backend: 'mysql': must be auto\|redis\|file$" dlock --backend=mysql job touch "$T/ran"
    fails_with 64 '^dlock: job: --owner: only printable ASCII' dlock '--owner=a b' job touch "$T/ran"
    fails_with 64 '^dlock: job: --no-fork: dlock must keep running' dlock -F job touch "$T/ran"
    [ ! -e "$T/ran" ]
    [ ! -e "$T/locks" ]
}

@test "the longest name, the longest token and a lease of days are accepted unchanged" {
    run dlock --prefix= "--owner=$(printf 'o%.0s' {1..256})" --ttl=1d12h "$(printf 'n%.0s' {1..1024})" -- sh -c 'echo $DLOCK_HELD_TTL'
    equals "$status $output" '0 129600'
}

@test "Redis is requested but not configured: the message names the option and where a URL was looked for" {
    local places="\(DLOCK_REDIS, $T/home/.config/dlock/dlock.conf, /.*/dlock.conf.d/\*.conf, /.*/dlock.conf\)"
    fails_with 78 "--backend: Redis is requested, but no Redis is configured $places; use --redis=URL" dlock --backend=redis job touch "$T/ran"
    fails_with 78 "--backend: Redis is requested, but no Redis is configured $places" dlock --backend=redis --status job
    unset DLOCK_BACKEND
    DLOCK_BACKEND=redis fails_with 78 "DLOCK_BACKEND: Redis is requested, .*$places" dlock job touch "$T/ran"
    fails_with 78 "no Redis is configured $places, and --on-degraded=fail forbids a file lock" dlock --on-degraded=fail job touch "$T/ran"
    equals "$(dlock --backend=redis --json job true | python3 -c 'import json, sys; print(json.load(sys.stdin)["error"]["code"])')" INVALID_CONFIG
    [ ! -e "$T/ran" ]
}

@test "--help, --usage and --version work whatever else is wrong, print to stdout, and fail if that cannot be written" {
    local option
    for option in --help -h --usage --version -V; do
        run sh -c "dlock --ttl=nonsense $option 2>/dev/null"
        [ "$status" -eq 0 ]
        [ -n "$output" ]
    done
    run dlock job --help
    [[ $output == *'Usage: dlock [OPTIONS] NAME'* ]]
    # The command's own options do not count.
    run dlock job sh -c 'echo "$1"' sh --help
    equals "$output" --help
    [ -e /dev/full ] || skip 'no /dev/full'
    run sh -c 'dlock --help >/dev/full'
    [ "$status" -eq 73 ]
    run sh -c 'dlock --version >/dev/full'
    [ "$status" -eq 73 ]
}

@test "a value that looks like an option is a value" {
    run dlock --backend=file --owner --attach=5 job -- sh -c 'dlock --current --json'
    equals "$status" 0
    [[ $output == *'"owner":"--attach=5"'* ]]
    fails_with 64 "^dlock: job: --attach: '5x'" dlock --attach=5x --attach=99999999 job
}

@test "options for other actions or stores, and values that are too long, are refused with the reason" {
    fails_with 64 'owner-file is only for --acquire, --extend and --release' dlock --owner-file="$T/token" job touch "$T/ran"
    fails_with 64 'slots: a --lock-file has no record of the lock' dlock --lock-file="$T/file" --slots=2 touch "$T/ran"
    fails_with 64 "hash: 'md5': must be none.sha256.hmac-sha256" dlock --hash=md5 job touch "$T/ran"
    local hosts
    hosts=$(printf 'h%d,' {1..17})
    fails_with 64 'too many hosts' dlock --backend=redis -r "redis+cluster://${hosts%,}" job touch "$T/ran"
    fails_with 64 'the user name is too long or wrongly encoded' dlock --backend=redis -r 'redis://%zz:x@h' job touch "$T/ran"
    local long
    printf -v long '/%04999d' 0
    fails_with 77 'the lock directory /0+ has a path that is too long' dlock --lock-dir="$long" job touch "$T/ran"
    fails_with 78 'a --lock-file has a path that is too long' dlock --lock-file="$long" --name=job touch "$T/ran"
    fails_with 78 'the lock is in Redis, but no Redis is configured here; repeat the --redis of the outer dlock, or set DLOCK_REDIS for both' \
        env -u DLOCK_BACKEND DLOCK_HELD='redis token take dlock:job' "$DLOCK" --extend
    [ ! -e "$T/ran" ]
}

@test "options that contradict each other or the action are refused, in JSON too, and nothing is changed" {
    local before json='^\{"error":\{"code":"INVALID_ARGUMENT","message":"[^"].*","retryable":(true|false),"details":\{"key":.*\}\}$'
    state() { dlock --status --json job | sed -E 's/"(ttl_remaining|expires_at)":[^,]*,//g; s/"counts":\{[^}]*\},//'; }
    dlock --acquire --owner=me -t 1h job >/dev/null
    before=$(state)
    table <<'ROWS'
64 "$json" dlock --release --extend --owner=me job --json
64 "$json" dlock --acquire --json
64 "$json" dlock --status --json
64 "$json" dlock --force-release --json
64 "$json" dlock --owner=me --release --json
64 "$json" dlock --owner-file="$T/x" --extend --json
64 "$json" dlock --release --owner=me --owner-file="$T/x" job --json
64 "$json" dlock --slots=0 --acquire other --json
64 "$json" dlock --slots=x --acquire other --json
64 "$json" dlock --acquire --owner=dlock:shared other --json
64 "$json" dlock --json --force-release --owner=me job
64 "$json" dlock --status --ttl=5 job --json
64 "$json" dlock --release --shared --owner=me job --json
64 "$json" dlock --wait-until-free --owner=me job --json
64 "$json" dlock --acquire --tree job --json
64 "$json" dlock --owner-file="$T/x" job --json
64 "$json" dlock --attach=0 job --json
64 "$json" dlock --attach=x job --json
64 '--release runs no command' dlock --release job touch "$T/ran"
64 '--current takes no lock name' dlock --current job
64 'needs|has no effect|stores no record' dlock --acquire --lock-file="$T/x"
ROWS
    equals "$(state)" "$before"
    [ ! -e "$T/ran" ]
    dlock --release --owner=me job
}

@test "--hold-at-least, --pause and --wait-replicas refuse an invalid value or action, and nothing is run" {
    table <<'ROWS'
64 '--hold-at-least: must not be longer than the lease'     dlock --hold-at-least=2m -t 1m job touch "$T/ran"
64 '--hold-at-least: a --lock-file has no record of the lock'     dlock --lock-file="$T/x" --hold-at-least=1s touch "$T/ran"
64 '--hold-at-least'                                           dlock --hold-at-least=-1s job touch "$T/ran"
64 '--pause needs --message=TEXT'                              dlock --pause=5s job
64 '--pause needs --message=TEXT'                              dlock --pause=5s --message= job
64 'no lock name given'                                        dlock --pause=5s --message=why
64 'no lock name given'                                        dlock --resume
64 "--pause: 'infinity': a pause can last at most 30d" dlock --pause=infinity --message=why job
64 "--pause: '0': a pause can last at most 30d"                          dlock --pause=0 --message=why job
64 "--pause: '31d': a pause can last at most 30d"                        dlock --pause=31d --message=why job
64 '--pause: .soon'                                            dlock --pause=soon --message=why job
64 '--pause runs no command'                                   dlock --pause=5s --message=why job touch "$T/ran"
64 '--message has no effect with --resume'                     dlock --resume --message=why job
64 '--pause needs a record of the lock'                     dlock --lock-file="$T/file" --pause=5s --message=why
64 '--pause and --resume cannot be combined'                                          dlock --pause=5s --resume --message=why job
64 "--wait-replicas: 'x': must be a whole number"           dlock --wait-replicas=x job touch "$T/ran"
64 "--wait-replicas: '101'"                                    dlock --wait-replicas=101 job touch "$T/ran"
64 '--wait-replicas has no effect with --status'               dlock --wait-replicas=1 --status job
78 "DLOCK_WAIT_REPLICAS: '-1'"                                 env DLOCK_WAIT_REPLICAS=-1 dlock job touch "$T/ran"
ROWS
    [ ! -e "$T/ran" ]
}

@test "--heartbeat with --lock-file: each sign of life moves the deadline" {
    command -v systemd-notify >/dev/null || skip 'no systemd-notify'
    cat >"$T/beat" <<'E'
#!/bin/sh
for i in 1 2 3 4 5 6; do sleep 0.3; systemd-notify WATCHDOG=1 || exit; done
E
    chmod +x "$T/beat"
    run dlock --lock-file="$T/file" --heartbeat -t 1500ms --grace=100ms -- "$T/beat"
    equals "$status $output" '0 '
}

@test "an invalid URL gets a suggestion, but no text that may be a password is repeated" {
    local text
    for text in 127.0.0.1:6379 localhost locks.example '[::1]:6379'; do
        run dlock -r "$text" --backend=redis job touch "$T/ran"
        [[ $status == 64 && $output == *"'$text' has an unknown scheme; did you mean redis://$text?"* ]]
    done
    fails_with 64 "'/run/redis.sock' has .*did you mean unix:///run/redis.sock\?" dlock -r /run/redis.sock --backend=redis job true
    # Text that may be a password is not repeated.
    for text in topsecret bob:topsecret bob:topsecret@host http://bob:topsecret@host /run@topsecret; do
        run dlock -r "$text" --backend=redis job touch "$T/ran"
        [[ $status == 64 && $output != *topsecret* ]]
    done
    fails_with 69 'redis://127.0.0.1:1/0: ' dlock -r valkey://127.0.0.1:1 --backend=redis --retry-for=0 job touch "$T/ran"
    fails_with 69 'rediss://127.0.0.1:1/0: ' dlock -r valkeys://127.0.0.1:1 --backend=redis --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "--syslog: messages go to syslog as well, and none waits for the log daemon" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    cat >"$T/logger.py" <<'P'
import os, socket, subprocess, sys
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
run = lambda *words: subprocess.run(("dlock", "--backend=file") + words, capture_output=True, text=True, timeout=60)
print(run("--syslog", "-v", "job", "true").returncode)
log.setblocking(False)
said = []
try:
    while True:
        said.append(log.recv(9999).decode())
except BlockingIOError:
    pass
print(*said, sep="\n")
run("-v", "job", "true")
try:
    print("unasked", log.recv(9999))
except BlockingIOError:
    pass
# Nobody reads: a socket's queue has few places.
print(run("--syslog", "-v", "job", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do dlock --syslog -v n$i true; done").returncode)
P
    mkdir "$T/dev"
    run unshare -m sh -c "mount -t tmpfs none '$T/dev' && touch '$T/dev/null' '$T/dev/urandom' &&
        mount --bind /dev/null '$T/dev/null' && mount --bind /dev/urandom '$T/dev/urandom' &&
        mount --rbind '$T/dev' /dev && exec python3 '$T/logger.py'"
    equals "${lines[0]} ${lines[-1]}" '0 0'
    grep -qE '^<78>[A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} dlock\[[0-9]+\]: job: started true [(]pid [0-9]+[)]$' <<<"$output"
    [[ $output != *unasked* ]]
}
