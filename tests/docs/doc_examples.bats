#!/usr/bin/env bats
# Every block of README and manual is run, or is listed below with the reason why not.
# (doc/cookbook.md has tests/docs/cookbook.bats.)
load ../lib/common
# shellcheck source=tests/lib/tls.bash
. "$TESTS/lib/tls.bash"

PAGES='README.md doc/dlock.1 doc/dlock-actions.7 doc/dlock-clients.7 doc/dlock-leases.7 doc/dlock-process.7 doc/dlock-redis.7 doc/dlock-json.5 doc/dlock.conf.5'

# Makes files of each page's blocks, BLOCKS/PAGE; `list` there has their names and first lines.
setup_file() {
    local page
    export BLOCKS=$BATS_FILE_TMPDIR
    for page in $PAGES; do
        mkdir -p "$BLOCKS/$page"
        python3 "$TESTS/helpers/doc_blocks.py" "$TESTS/../$page" "$BLOCKS/$page" >"$BLOCKS/$page/list"
    done
}

setup() {
    common_setup
    SRC=$(realpath "$TESTS/..")
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock DLOCK_LOCK_DIR=$T/locks DLOCK_RETRY_FOR=0 PATH=$T/work:$PATH
    mkdir -p "$T/work" "$HOME/.config/dlock"
    cd "$T/work" || return
}

# block PAGE LINE [FROM TO]...: prints the block whose first line starts like this, with some words replaced.
block() {
    local directory=$BLOCKS/$1 name
    name=$(awk -F '\t' -v line="$2" 'index($2, line) == 1 { print $1; exit }' "$directory/list")
    [ -n "$name" ] || { echo "no such block in $1: $2" >&2; return 1; }
    shift 2
    reword "$(cat "$directory/$name")" "$@"
}

# example PAGE LINE [FROM TO]...: runs the block as a script of sh.
example() {
    local script
    script=$(mktemp "$T/script.XXXXXX")
    block "$@" >"$script" || return
    sh "$script"
}

# configure PAGE LINE [FROM TO]...: uses the block as the user's configuration file.
configure() {
    block "$@" >"$HOME/.config/dlock/dlock.conf"
    unset DLOCK_REDIS
}

# stub NAME [SCRIPT]: makes a command of the examples, which records in $T/ran that it ran.
stub() {
    printf '#!/bin/sh\necho %s >>"%s"\n%s\n' "$1" "$T/ran" "${2:-}" >"$T/work/$1"
    chmod +x "$T/work/$1"
}
ran() { equals "$(tr '\n' ' ' <"$T/ran" 2>/dev/null)" "${1:+$1 }"; rm -f "$T/ran"; }

is_free() { not dlock --status -q "$1"; }

# Blocks that are not run: the page, the first line, and the reason.
not_run() {
    cat <<'LIST'
README.md|./bootstrap --tests && make check|it is what runs this
README.md|autoreconf -i|the build itself; make distcheck and packaging/check do it from the tarball
doc/dlock-process.7|dlock: job: stored in format 3 by a newer dlock, but dlock|it needs a newer dlock; tests/both/versions.bats has one
LIST
}

@test "every block of the README and the manual is run here or listed as not run" {
    # A block is identified by the start of its first line.
    not_run | python3 -c '
import re, sys
blocks, tests, pages = *sys.argv[1:3], sys.argv[3:]
left_out = [line.split("|")[:2] for line in sys.stdin]
named = re.findall(r"(?:example|block|configure) (\S+) \x27([^\x27]+)\x27", open(tests, encoding="utf-8").read())
found = [[page, line.rstrip("\n").split("\t")[1]] for page in pages for line in open(f"{blocks}/{page}/list", encoding="utf-8")]
bad = [f"neither run nor listed: {page}: {line}" for page, line in found if [page, line] not in left_out
       and not any(page == here and line.startswith(begin) for here, begin in named)]
bad += [f"listed, and not there: {page}: {line}" for page, line in left_out if [page, line] not in found]
assert len(found) >= 30, found
sys.exit("\n".join(bad) or 0)' "$BLOCKS" "$TESTS/docs/doc_examples.bats" $PAGES
}

@test "README: the first command holds a lock" {
    unset DLOCK_REDIS
    fails_with 0 '^I hold the lock$' example README.md './bootstrap && src/dlock' './bootstrap && src/dlock' dlock
    [[ $output == *'no Redis'* ]]
    run example README.md './bootstrap && src/dlock' './bootstrap && src/dlock' 'dlock --backend=file'
    equals "$status $output" '0 I hold the lock'
}

@test "README: the example with two terminals and the crontab line work" {
    stub bill
    local first second
    first=$(block README.md 'export DLOCK_REDIS' redis://127.0.0.1:6379 "unix://$T/redis.sock" 'sleep 60 ' 'sleep 5 ' 10s 100ms | sed -n 1,2p)
    second=$(block README.md 'export DLOCK_REDIS' redis://127.0.0.1:6379 "unix://$T/redis.sock" 'sleep 60 ' 'sleep 5 ' 10s 100ms | sed -n '1p;3p')
    sh -c "$first" 3>&- 4>&- &
    wait_until 10 dlock --status -q nightly
    fails_with 75 'held by' sh -c "$second"
    kill %1
    local line
    line=$(block README.md '0 3 * * *' /usr/local/bin/ '')
    run sh -c "${line#'0 3 * * *  '} && ${line#'0 3 * * *  '}"
    equals "$status $output" '0 '
    ran bill
    # A host without a URL must not run the job too.
    not env -u DLOCK_REDIS sh -c "${line#'0 3 * * *  '}"
    ran ''
}

@test "README: the password file and the configuration are accepted, and the section matches" {
    redis acl setuser locker on '>secret' '~*' '+@all' '&*' >/dev/null
    redis acl setuser default off >/dev/null
    (umask 0 && example README.md 'install -m 600' /etc/dlock "$T/work/dlock" <<<secret)
    equals "$(stat -c %a dlock.password)" 600
    configure README.md 'redis = rediss' rediss://locker@locks.example:6380/0 "unix://locker@$T/redis.sock" /etc/dlock "$T/work/dlock"
    equals "$(dlock deploy:web printenv DLOCK_HELD_TTL)" 1200
    equals "$(dlock other printenv DLOCK_HELD_TTL)" 3600
}

@test "dlock(1): the crontab line runs once, and the script holds the lock until it ends" {
    stub rollup
    local line
    line=$(block doc/dlock.1 'DLOCK_REDIS=redis://locks' | sed -n 's/^0 3 \* \* \*  //p')
    sh -c "$line; $line"
    ran rollup
    dlock --force-release nightly
    example doc/dlock.1 'dlock -w 10m -t 2h nightly'
    ran rollup
    # shellcheck disable=SC2016
    sh -c "$(block doc/dlock.1 'dlock --attach nightly')"'
        dlock --status -q nightly || echo free'
    wait_until 10 is_free nightly
    sh -c "$(block doc/dlock-actions.7 'dlock --attach deploy:prod')"
    wait_until 10 is_free deploy:prod
}

@test "the lines for acquire, extend and release run; the unit is the one shipped; the waiting line looks as in the picture" {
    example doc/dlock-actions.7 'token=$(dlock --acquire -n' >"$T/out"
    is_free deploy
    block doc/dlock-actions.7 'RuntimeDirectory=importer' /usr/bin/dlock /usr/local/bin/dlock /usr/bin/importer /usr/local/bin/importer |
        sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' >"$T/lines"
    [ "$(wc -l <"$T/lines")" -ge 6 ]
    equals "$(grep -vxF -f "$SRC/doc/examples/importer.service" "$T/lines")" ''
    shape() { sed -E 's/[0-9]+/0/g; s/(next|0rd) in line/you are next/; s/█/#/g; s/░/./g'; }
    local pictured
    pictured=$(sed -n 's|^.*<desc.* / \(waiting .*\)$|\1|p' "$SRC/doc/waiting.svg")
    equals "$(block doc/dlock-process.7 'waiting 12s' | shape)" "$(shape <<<"$pictured")"
}

@test "a failure as JSON has the members that the manual lists" {
    local members='import json, sys; e = json.load(sys.stdin)["error"]; print(e["code"], e["retryable"], sorted(e), sorted(e["details"]))'
    dlock --acquire deploy >/dev/null
    run dlock --json -w 50ms deploy true
    equals "$status $(python3 -c "$members" <<<"$output")" "75 $(block doc/dlock-json.5 '{"error"' | tr -d '\n' | python3 -c "$members")"
}

@test "a password as a credential: both units and the configuration with a password file work" {
    redis acl setuser locker on '>secret' '~*' '+@all' '&*' >/dev/null
    redis acl setuser default off >/dev/null
    unset DLOCK_REDIS
    stub rollup
    mkdir credentials && (umask 077 && printf secret >credentials/dlock.password)
    block doc/dlock-redis.7 'LoadCredential=' redis://locker@locks.example "unix://locker@$T/redis.sock" >unit
    CREDENTIALS_DIRECTORY=$PWD/credentials sh -c "$(sed -n 's/^ExecStart=//p' unit)"
    ran rollup
    equals "$(block doc/dlock.conf.5 'LoadCredential=')" "$(sed /ExecStart/d unit)"
    configure doc/dlock.conf.5 'redis = redis://locker@' redis://locker@locks.example:6379/0 "unix://locker@$T/redis.sock" \
        /etc/dlock.password "$PWD/credentials/dlock.password"
    dlock nightly rollup
    ran rollup
}

@test "the permissions in the manual are enough, and a Sentinel knows those for its user" {
    equals "$(block doc/dlock-redis.7 'redis-cli ACL SETUSER' "on '>secret'" "on '>other'" redis-cli "redis-cli -s $T/redis.sock" | sh)" OK
    DLOCK_REDIS=unix://locker:other@$T/redis.sock dlock job true
    local sentinel=$T/sentinel.sock
    touch "$T/sentinel.conf" # a Sentinel writes to it
    redis-server "$T/sentinel.conf" --sentinel --port 0 --unixsocket "$sentinel" --dir "$T" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/sentinel.pid"
    wait_until 20 redis_answers sentinel
    # shellcheck disable=SC2046
    equals "$(redis-cli -s "$sentinel" acl setuser watch on $(block doc/dlock-redis.7 '+sentinel|get-master'))" OK
}

@test "dlock understands each URL in the manual's comparison of servers" {
    local url urls
    mapfile -t urls < <(sed -n '/^\.Sh DESCRIPTION/,/^\.Sh URLS/s/^\.It Li //p' "$SRC/doc/dlock-redis.7")
    equals "${#urls[@]}" 4
    for url in "${urls[@]}"; do
        run env DLOCK_REDIS="$url" dlock --print-config
        [[ $output == *$'\n'"redis = ${url%%:*}://"* ]]
    done
}

@test "a quorum can be set on the command line, and in two ways in configuration files" {
    local i hosts=()
    for i in a b c; do
        start_redis $i
        hosts+=("redis://$i.example" "unix://$T/$i.sock")
    done
    # The last of the three may get the lock a moment after the command has started.
    stub command "for i in a b c; do
        n=0
        until [ \"\$(redis-cli -s '$T/'\$i.sock exists dlock:job)\" = 1 ]; do [ \$((n += 1)) -le 300 ] || exit 1; sleep 0.01; done
    done"
    DLOCK_REDIS='' example doc/dlock-redis.7 'dlock -r redis://a.example -r redis://b.example -r redis://c.example' "${hosts[@]}"
    configure doc/dlock-redis.7 'redis = redis://a.example redis://b.example' "${hosts[@]}"
    dlock job command
    configure doc/dlock.conf.5 'redis = redis://a.example' "${hosts[@]}"
    dlock job command
    ran 'command command command'
}

@test "TLS: dlock accepts the same files as redis-cli, and both connect" {
    make_certificates
    make_certificate host ca DNS:host
    cp "$CERTS/host.pem" "$CERTS/host.key" "$CERTS/ca.pem" .
    stop_redis # setup's server, whose pid file the next one reuses
    start_tls_redis --tls-auth-clients yes
    equals "$(printf 'ping\n' | sh -c "$(block doc/dlock-redis.7 'redis-cli --tls' locks.example "localhost -p $PORT")")" PONG
    cat host.key >>host.pem
    chmod 600 host.pem
    (umask 077 && echo 0123456789abcdef >secret)
    block doc/dlock-redis.7 'dlock -r rediss://locks.example' locks.example "localhost:$PORT" /etc/dlock "$PWD" | head -2 >line
    run sh line
    equals "$status" 0
}

# An address at which nobody answers: an invalid URL would be reported before (64, 78).
@test "Sentinels and a Cluster: the lines and the configuration are understood" {
    local three=s1.example,s2.example,s3.example file
    block doc/dlock-redis.7 'dlock -r rediss://locks.example' "$three" 127.0.0.1:1,127.0.0.1:2 c1.example,c2.example 127.0.0.1:1 >lines
    sed -i -e 1,2d -e :a -e '/\\$/N; s/ *\\\n */ /; ta' lines
    equals "$(wc -l <lines)" 2
    while read -r line; do fails_with 69 'Connection refused' sh -c "$line"; done <lines
    mkdir etc && for file in password sentinel-password; do (umask 077 && echo secret >etc/$file); done
    CERTS=$T/work/etc make_authority ca
    configure doc/dlock.conf.5 'redis = rediss+sentinel://' "$three" 127.0.0.1:1 /etc/dlock "$T/work/etc"
    fails_with 69 'Connection refused' dlock job true
}

@test "the configuration in the manual: each section applies to its locks" {
    configure doc/dlock.conf.5 'redis = redis://locks' redis://locks.example:6379/0 "unix://$T/redis.sock"
    equals "$(dlock cron:x printenv DLOCK_HELD_TTL)" 21600
    equals "$(dlock deploy:x printenv DLOCK_HELD_TTL)" 1800
    equals "$(dlock gpu printenv DLOCK_SLOT)" 0
    dlock --acquire cron:x >/dev/null
    fails_with 0 '^$' dlock cron:x echo ran
    dlock --print-config deploy:x >"$T/settings"
    grep -qE '^wait = 10m ' "$T/settings"
    grep -qE '^stop-signal = INT ' "$T/settings"
    grep -qE '^grace = 30s ' "$T/settings"
}

@test "examples: a lock is shared with flock, and a held lock is distinguished from a failure" {
    local told='dlock --backend=file -n -E 200 nightly'
    equals "$(example doc/dlock.1 'dlock --backend=file -n -E 200 nightly')" 'done'
    dlock --backend=file --acquire nightly >/dev/null
    equals "$(example doc/dlock.1 "$told")" 'held by another'
    dlock --backend=file --force-release nightly >/dev/null
    equals "$(example doc/dlock.1 "$told" '-- true' '-- false')" 'failed'
    equals "$(example doc/dlock.1 "$told" '-- true' '-t 300ms -- sleep 20' 2>/dev/null)" 'stopped: the lease ended'
    local today
    today=$(date +%Y)
    equals "$(example doc/dlock.1 'flock -n /tmp/backup.lock' /tmp/ "$T/" | grep -c "$today")" 2
}

@test "examples: a lock is extended before each part and released early, checked, and examined by --doctor" {
    stub uptime 'dlock --status -q build || echo free'
    example doc/dlock-actions.7 'dlock -t 10m parts' >"$T/out"
    equals "$(wc -l <"$T/out") $(tail -1 "$T/out")" '5 free'
    dlock --force-release build >/dev/null 2>&1 || true
    dlock deploy true
    dlock --acquire deploy:web >/dev/null
    run example doc/dlock.1 'dlock --status deploy'
    equals "$status" 0
    [[ ${lines[0]} == 'deploy: free'* && $output == *deploy:web* && $output == *$'\ntrial'* ]]
}
