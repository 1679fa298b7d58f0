#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; URL=unix://$T/redis.sock; }

# doctor ARGUMENTS...: sets $output to what it finds, as lines "section name result: found -> advice".
doctor() {
    run dlock --doctor --json "$@"
    json=$output
    output=$(sed -E 's/\},\{"section"/\n"section"/g' <<<"$json" | sed -nE \
        's/.*"section":"([^"]*)","subject":.*,"name":"([^"]*)","result":"([a-z]+)","found":"(.*)","advice":("[^"]*"|null).*/\1 \2 \3: \4 -> \5/p')
}

# True if the last output was one JSON object, as in the manual.
is_json() {
    python3 -c 'import json, sys
answer = json.loads(sys.argv[1])
assert set(answer) == {"ok", "checks"} and answer["ok"] == (sys.argv[2] == "0"), answer
for check in answer["checks"]:
    assert list(check) == ["section", "subject", "name", "result", "found", "advice"]
    assert check["result"] in ("ok", "note", "warn", "fail") and check["found"], check' "$json" "$status"
}

# says PATTERN: one of the lines must match (extended regular expression).
says() {
    grep -qE -- "$1" <<<"$output" || {
        printf 'wanted /%s/ in:\n%s\n' "$1" "$output" >&2
        return 1
    }
}

# finds STATUS PATTERN ARGUMENTS...: checks the exit status, and that a line matches.
finds() {
    local want=$1 pattern=$2
    shift 2
    doctor "$@"
    equals "$status" "$want" && says "$pattern"
}

nothing_left() { equals "$(redis dbsize)" 0 && [ -z "$(redis pubsub channels)" ]; }

@test "a reliable Redis: exit 0, every check passes, nothing is left" {
    start_redis redis --appendonly yes
    doctor -r "$URL"
    equals "$status" 0
    is_json
    # On a busy machine, whatever takes time may be reported as slow.
    [ -z "$(grep -vE ' ok: |^redis (connect|latency) warn' <<<"$output")" ]
    for check in 'redis topology' 'redis tls' 'redis login' 'redis version' 'redis role' 'redis eviction' 'redis memory' \
        'redis persistence' 'redis replicas' 'permissions acquire, release' 'permissions queue' \
        'permissions tracking' 'trial acquire' 'trial second acquire refused' 'trial notified of a change' 'trial extend' 'trial release' \
        'trial handed over' 'trial look' 'trial release by force'; do
        says "^$check ok: "
    done
    nothing_left
}

@test "the table has a heading for each section, advice under each row, and a verdict; -q shows only what is wrong" {
    start_redis
    run dlock --doctor -r "$URL"
    equals "$status" 0
    [[ $output == backend$'\n'*$'\n\n'"redis unix://"*$'\n\n'permissions$'\n'*$'\n\n'trial$'\n'* ]]
    says '^  ok    version +(Redis [1-9]|Valkey )'
    says '^  warn  persistence +none: all locks are lost when Redis restarts$'
    says '^ +-> set appendonly yes and appendfsync always$'
    [[ ${lines[-1]} == 'A lock can be trusted here: 0 failed, 1 warning, 0 notes' ]]
    redis config set maxmemory 100mb maxmemory-policy allkeys-lru
    run dlock --doctor -r "$URL" -q
    equals "$status" 1
    [ -z "$(grep -E '^  (ok|note) ' <<<"$output")" ]
    says '^  fail  eviction +allkeys-lru: '
    run dlock --doctor -r "$URL"
    [[ ${lines[-1]} == 'A lock can NOT be trusted here: 1 failed, '[0-9]*', 0 notes' ]]
}

@test "the key and variables that are no settings are shown, but no secret" {
    start_redis redis --requirepass topsecret
    export DLOCK_REDIS="unix://:topsecret@$T/redis.sock"
    DLOCK_REDSI=x DLOCK_TIMEOUT=3 DLOCK_HELD_KEY=/x DLOCK_HOST=x doctor --owner=hidden jobs
    equals "$status" 0
    says '^configuration key ok: dlock:jobs'
    says '^configuration DLOCK_REDSI warn: no such setting; did you mean DLOCK_REDIS\? '
    says '^configuration DLOCK_TIMEOUT warn: .*DLOCK_WAIT'
    says '^configuration DLOCK_HOST note: '
    [[ $output != *DLOCK_HELD_KEY* && $output != *secret* && $output != *hidden* && $json != *topsecret* ]]
    doctor --tree 2>/dev/null # without a name no key is shown
    equals "$status" 64
    doctor
    [[ $output != *configuration* ]]
}

@test "settings that give up the lock on purpose are reported" {
    mkdir "$T/locks"
    DLOCK_FALLBACK=file finds 0 '^configuration fallback warn: ' --lock-dir="$T/locks" --backend=file --on-expire=warn
    says '^configuration on-expire warn: '
}

@test "invalid options: the exit status is that of the command line or configuration error, and nothing is tried" {
    DLOCK_TTL=never fails_with 78 'DLOCK_TTL' dlock --doctor
    fails_with 64 'doctor runs no command' dlock --doctor job true
    fails_with 64 'report has no effect with --doctor' dlock --doctor --report="$T/x" job
    DLOCK_REDIS=http://topsecret@x finds 78 '^backend store fail: DLOCK_REDIS: .*an unknown scheme'
    [[ $json != *topsecret* ]]
}

@test "file locks: a real lock is tried, the directory is judged, and only its table is left" {
    finds 0 '^backend file note: chosen by --backend=file; a lock holds on this host only' --backend=file --lock-dir="$T/locks"
    says '^files other users note: other users have directories of their own'
    says '^trial second acquire refused ok: '
    says '^trial notified of a change ok: '
    says '^trial handed over ok: '
    equals "$(ls "$T/locks")" ''
    finds 1 "^backend file fail: no Redis is configured \(DLOCK_REDIS, $HOME/.config/dlock/dlock.conf, .*: locks hold on this host only" --lock-dir="$T/locks"
    says '^trial handed over ok: '
    finds 0 '^backend file warn: no Redis is configured' --lock-dir="$T/locks" --on-degraded=proceed
    finds 78 '^backend store fail: .*--on-degraded=fail forbids' --lock-dir="$T/locks" --on-degraded=fail
    chmod 777 "$T/locks"
    finds 77 '^backend store fail: .*is writable by others' --backend=file --lock-dir="$T/locks"
}

@test "a directory for all users is distinguished from a private one" {
    mkdir "$T/locks"
    chmod 1777 "$T/locks"
    finds 0 '^files shared note: the first user to create a file' --backend=file --lock-dir="$T/locks"
}

@test "the file of --lock-file is checked, but neither created nor locked" {
    finds 0 '^files lock file ok: does not exist' --lock-file="$T/exact"
    [ ! -e "$T/exact" ]
    touch "$T/exact"
    flock "$T/exact" sleep 60 3>&- 4>&- &
    echo $! >"$T/flock.pid"
    finds 0 '^files lock file ok: can be opened' --lock-file="$T/exact"
    [[ $output != *trial* ]]
}

@test "no server or no such host: 69; a refused login: 77; a database that does not exist: 78" {
    finds 69 '^redis connect fail: Connection refused' -r "redis://127.0.0.1:$(free_port)"
    finds 69 '^redis connect fail: No such file' -r "$URL"
    finds 69 '^redis name fail: ' -r redis://no-such-host.invalid --connect-timeout=1
    start_redis redis --requirepass topsecret
    finds 77 '^redis login fail: .*WRONGPASS' -r "unix://:wrong@$T/redis.sock"
    [[ $json != *wrong@* ]]
    finds 77 '^redis login fail: .*NOAUTH' -r "$URL"
    finds 78 '^redis login fail: .*DB index' -r "unix://:topsecret@$T/redis.sock?db=999"
    [[ $output != *topsecret* ]]
}

@test "a host name is shown with its addresses and the time that the lookup took" {
    local port=$(free_port)
    start_redis redis --port "$port"
    finds 0 '^redis name ok: localhost is .*127\.0\.0\.1.* \([0-9.]+ ms\)' -r "redis://localhost:$port"
    says '^redis tls ok: not used; the connection does not leave this host'
    says "^redis topology ok: one server: localhost, port $port"
    LD_PRELOAD=$HELPERS/fault_resolver.so finds 69 '^redis name fail: the host name localhost was not resolved in time' \
        -r "redis://localhost:$port" --connect-timeout=300ms
}

@test "a replica grants no locks: 69; one replica too few for --wait-replicas: 69" {
    start_redis
    finds 69 '^redis replicas fail: 0 online, but --wait-replicas needs 1' -r "$URL" --wait-replicas=1
    says '^redis persistence warn: none: .*the replicas then copy'
    redis replicaof 127.0.0.1 "$(free_port)"
    finds 69 '^redis role fail: this server is a replica of 127.0.0.1, and replicas keep no locks' -r "$URL"
    says '^permissions acquire, release fail: no lock can be acquired: SET: READONLY.* -> "use the URL of the master, or redis\+sentinel://"'
    [[ $output != *trial* ]]
}

@test "replicas: too few for the server's own limit, enough for --wait-replicas, and unused without it" {
    local port=$(free_port)
    start_redis redis --port "$port" --repl-diskless-sync-delay 0 --min-replicas-to-write 1
    finds 69 '^redis min-replicas-to-write warn: 1' -r "$URL"
    says '^permissions acquire, release fail: no lock can be acquired: .*NOREPLICAS'
    start_redis replica --replicaof 127.0.0.1 "$port"
    wait_until 20 sh -c "redis-cli -s '$T/redis.sock' info replication | grep -q state=online"
    finds 0 '^redis replicas note: 1 online: a failover loses' -r "$URL"
    says '^redis min-replicas-to-write ok: 1'
    doctor -r "$URL" --wait-replicas=1
    says '^redis replicas ok: 1 online'
}

@test "data that a restart would lose is reported" {
    start_redis redis --save '3600 1'
    finds 0 '^redis persistence note: snapshots only \(3600 1\)' -r "$URL"
    redis config set save '' >/dev/null
    finds 0 '^redis persistence warn: none: all locks are lost when Redis restarts ->' -r "$URL"
    fake_redis 'instead=INFO=bulk:redis_version:7.0.0\r\naof_enabled:1\r\naof_last_write_status:err' "$T/redis.sock"
    finds 0 '^redis persistence ok: append-only file, fsync everysec' -r "unix://$T/fake.sock"
    says '^redis aof_last_write_status warn: err'
    fake_redis 'instead=INFO=bulk:redis_version:7.0.0\r\nmaxmemory_policy:some-other' "$T/redis.sock"
    finds 0 '^redis eviction note: some-other' -r "unix://$T/fake.sock"
}

@test "two servers behind one address do not exclude each other: exit 1" {
    start_redis
    start_redis second
    fake_redis balance "$T/redis.sock" "$T/second.sock"
    finds 1 '^trial second acquire refused fail: two holders acquired the same lock' -r "unix://$T/fake.sock"
    equals "$(redis dbsize) $(redis-cli -s "$T/second.sock" dbsize)" '0 0'
}

@test "an unencrypted connection, or a login without a password, is warned about" {
    local address=$(hostname -I 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+){3}' | grep -vm1 '^127\.') port=$(free_port)
    [ -n "$address" ] || skip 'no address but the loopback'
    start_redis redis --port "$port" --bind "$address" --protected-mode no
    finds 0 '^redis tls note: not used: owner tokens can be read' -r "redis://$address:$port"
    says '^redis login warn: user default, without a password: anyone who reaches'
    redis config set requirepass topsecret >/dev/null
    finds 0 '^redis tls warn: not used: password and owner tokens' -r "redis://:topsecret@$address:$port"
    says '^redis login ok: user default ->'
}

@test "a server that may evict locks: exit 1; one that could at its memory limit: a warning" {
    start_redis redis --maxmemory 100mb --maxmemory-policy volatile-ttl
    finds 1 '^redis eviction fail: volatile-ttl: .*Redis may evict a held lock' -r "$URL"
    says '^trial release by force ok'
    redis config set maxmemory 0 maxmemory-policy allkeys-lru
    finds 0 '^redis eviction warn: allkeys-lru: ' -r "$URL"
    redis config set maxmemory-policy noeviction maxmemory 1mb
    doctor -r "$URL"
    says '^redis memory warn: [0-9.]+ MB used of 1 MB'
    redis config set maxmemory 1
    finds 69 '^permissions acquire, release fail: no lock can be acquired: SET: OOM.* -> null' -r "$URL"
}

@test "an answer that a minimal user may not get is shown as unknown, not as a failure" {
    start_redis
    manual_user
    finds 0 "^redis server note: unknown: NOPERM .*'info'" -r "unix://locker:secret@$T/redis.sock"
    says "^redis settings note: unknown: NOPERM .*'config\|get'"
    says '^redis login ok: user locker'
    [ -z "$(grep -E ' (warn|fail): ' <<<"$output")" ]
    nothing_left
    # The permissions that the manual adds for this.
    redis acl setuser locker $(manual_adds doctor)
    finds 0 '^redis version ok: ' -r "unix://locker:secret@$T/redis.sock"
    [[ $output != *NOPERM* ]]
}

# without RULE: sets up the manual's user without this command.
without() {
    redis acl setuser locker ${MISSING:++$MISSING} "-$1" >/dev/null
    MISSING=$1
}

@test "each missing permission is reported with what does not work without it" {
    start_redis
    manual_user
    local user=unix://locker:secret@$T/redis.sock command MISSING=
    for command in evalsha eval get set pttl hset pexpire hmget del time; do
        without "$command"
        finds 77 "^permissions acquire, release fail: no lock can be acquired: .*NOPERM .*'$command'.* -> \"grant the permissions in dlock-redis" -r "$user"
        [[ $output != *trial* ]]
    done
    for command in zadd zrange; do
        without "$command"
        doctor -r "$user"
        says "^permissions shared, slots warn: .*NOPERM .*'$command'"
    done
    without zrank
    finds 0 "^permissions queue warn: .*'zrank'" -r "$user"
    without publish
    finds 0 "^permissions wake channel warn: .*'publish'" -r "$user"
    says '^trial handed over ok: ' # the first waiter is notified of the change
    without subscribe
    finds 0 "^permissions tracking warn: .*'subscribe'" -r "$user"
    says '^permissions wake channel warn: '
    says "^trial notified of a change warn: no: .*SUBSCRIBE"
    says '^trial handed over warn: .*without a notification: .*SUBSCRIBE'
    without 'client|tracking'
    finds 0 "^permissions tracking warn: .*'client[|]tracking' command, and 1 more" -r "$user"
    says '^trial notified of a change warn: no: .*CLIENT TRACKING'
    without hincrby
    finds 0 "^permissions counters note: .*'hincrby'" -r "$user"
    without scan
    finds 0 "^permissions --list note: .*'scan'" -r "$user"
    redis acl setuser locker +scan resetchannels '&__redis__:invalidate'
    finds 0 '^permissions wake channel warn: ' -r "$user"
    says '^trial notified of a change ok'
    redis acl setuser locker resetkeys '~dlock:*'
    finds 77 '^permissions acquire, release fail: .*NOPERM .*key' -r "$user"
    wait_until 5 nothing_left
}

@test "a proxy that closes the connection instead of refusing: locks work, and what is missing is reported" {
    start_redis
    fake_redis closing=SUBSCRIBE "$T/redis.sock"
    finds 0 '^permissions tracking warn: .*: SUBSCRIBE or CLIENT TRACKING: the server closed the connection' -r "unix://$T/fake.sock"
    says '^permissions wake channel warn: '
    says '^trial notified of a change warn: no: the connection ended during'
    says '^trial handed over warn: .*without a notification: '
    wait_until 5 sh -c "redis-cli -s '$T/redis.sock' dbsize | grep -qx 0"
}

@test "commands that a provider has renamed: CONFIG is a note, one needed to acquire is a failure" {
    start_redis redis --rename-command CONFIG '' --rename-command PEXPIRE ''
    finds 78 "^permissions acquire, release fail: .*PEXPIRE: ERR unknown command" -r "$URL"
    says "^redis settings note: unknown: ERR unknown command"
    wait_until 5 nothing_left
}

@test "an old version is reported: 5 with a warning, 4 as unreliable; other servers are named" {
    start_redis
    local info='role:master\r\n'
    fake_redis "instead=INFO=bulk:redis_version:5.0.14\\r\\n$info" "$T/redis.sock"
    finds 0 '^redis version warn: Redis 5\.0\.14 cannot report changed keys' -r "unix://$T/fake.sock"
    says '^redis eviction note: unknown'
    says '^redis persistence note: unknown'
    says '^redis replicas note: unknown'
    fake_redis "instead=INFO=bulk:redis_version:4.0.9\\r\\n$info" "$T/redis.sock"
    finds 1 '^redis version fail: Redis 4\.0\.9' -r "unix://$T/fake.sock"
    fake_redis "instead=INFO=bulk:redis_version:7.2.4\\r\\nvalkey_version:8.0.1\\r\\n$info" "$T/redis.sock"
    finds 0 '^redis version ok: Valkey 8\.0\.1' -r "unix://$T/fake.sock"
    fake_redis "instead=INFO=bulk:redis_version:7.2.0\\r\\ndragonfly_version:df-v1.2\\r\\n$info" "$T/redis.sock"
    finds 0 '^redis version note: Dragonfly df-v1\.2: dlock was not tested' -r "unix://$T/fake.sock"
}

@test "a Sentinel and a Cluster node are recognized by their mode" {
    start_redis
    fake_redis 'instead=INFO=bulk:redis_version:7.0.0\r\nredis_mode:sentinel' "$T/redis.sock"
    finds 78 '^redis mode fail: this server is a Sentinel' -r "unix://$T/fake.sock"
    fake_redis 'instead=INFO=bulk:redis_version:7.0.0\r\nredis_mode:cluster' "$T/redis.sock"
    finds 0 '^redis mode warn: this server is one node of a Cluster' -r "unix://$T/fake.sock"
}

@test "a slow server is warned about" {
    start_redis
    fake_redis delay=30 "$T/redis.sock"
    finds 0 '^redis latency warn: min [0-9.]+ ms' -r "unix://$T/fake.sock" -t 2s
    says '^trial acquire ok: [0-9]{2,}\.'
}

@test "no answer is trusted: nonsense in place of any answer never crashes dlock and never counts as good" {
    start_redis
    local text mode
    for text in '$-1\r\n' '*-1\r\n' ':9223372036854775807\r\n' '*2\r\n*0\r\n:1\r\n' '-ERR \x07no\r\n' \
        'bulk:maxmemory:99999999999999999999\r\nrole:\r\nredis_version:x\x1b[31m\r\nslave0:\r\nconnected_slaves:-1'; do
        fake_redis "instead=ACL,INFO,CONFIG,TIME=$text" "$T/redis.sock"
        finds 0 '^redis latency (ok|warn): ' -r "unix://$T/fake.sock" --connect-timeout=2
        is_json
        kill "$(cat "$T/fake.pid")"
    done
    says '^redis version note: unknown'
    says '^redis role note: unknown'
    fake_redis 'instead=INFO=bulk:redis_version:7\x1b[31m\r\nrole:master' "$T/redis.sock"
    run dlock --doctor -r "unix://$T/fake.sock"
    [[ $output == *'7\x1B[31m'* ]]
    fake_redis nonsense
    finds 69 '^(trial acquire|redis answer) fail: .*(the answer|more replies)' -r "unix://$T/fake.sock" --connect-timeout=2
    for mode in garbage huge endless cut close; do
        fake_redis $mode
        doctor -r "unix://$T/fake.sock" --connect-timeout=500ms
        equals "$mode $status" "$mode 69"
        kill "$(cat "$T/fake.pid")"
    done
}

@test "a server that hangs at the start or at any question: 69 within the connect timeout" {
    start_redis
    local start=$(now) command
    fake_redis mute
    finds 69 '^redis answer fail: no answer in time' -r "unix://$T/fake.sock" --connect-timeout=300ms
    within 2000 "$start"
    for command in INFO CONFIG TIME EVALSHA; do
        start=$(now)
        fake_redis "instead=$command=" "$T/redis.sock"
        finds 69 'fail: no answer in time|fail: .*: no answer in time' -r "unix://$T/fake.sock" --connect-timeout=300ms
        within 2000 "$start"
        kill "$(cat "$T/fake.pid")"
    done
}

@test "a connection that breaks in the middle of the trial lock leaves nothing" {
    start_redis
    local call
    for call in 3 4 5 8; do
        fake_redis "lose=$call" "$T/redis.sock"
        doctor -r "unix://$T/fake.sock" --connect-timeout=2
        wait_until 5 sh -c "redis-cli -s '$T/redis.sock' dbsize | grep -qx 0"
        kill "$(cat "$T/fake.pid")"
    done
}

@test "Ctrl-C ends --doctor at once and leaves nothing" {
    start_redis
    fake_redis instead=TIME= "$T/redis.sock"
    run python3 "$TESTS/helpers/ctrl_c.py" asleep --doctor -r "unix://$T/fake.sock" --connect-timeout=60
    equals "$status$output" 0
    nothing_left
}

@test "a lock that is in use is not touched" {
    start_redis
    hold_lock job -r "$URL"
    local before=$(redis get dlock:job)
    finds 0 '^trial acquire ok' -r "$URL" job
    equals "$(redis get dlock:job)" "$before"
    equals "$(redis --scan | grep -c doctor)" 0
    end_hold
    wait "$HOLDER"
}

@test "output that cannot be written is not a success" {
    start_redis
    fails_with 73 'cannot write' sh -c "dlock --doctor -r '$URL' >/dev/full"
}

@test "a quorum: a minority that is down is a warning, a majority a failure" {
    start_redis a
    start_redis b
    finds 0 '^quorum majority warn: 2 of 3 servers can be trusted; 2 are needed' -r "unix://$T/a.sock unix://$T/b.sock unix://$T/none.sock"
    stop_redis b
    finds 69 '^quorum majority fail: 1 of 3 servers can be trusted; 2 are needed' -r "unix://$T/a.sock unix://$T/b.sock unix://$T/none.sock"
}

@test "a lock directory on a network file system or in a container is warned about" {
    local type
    for type in 'ceph=0x00C36400 warn: ceph: the effect of flock' 'overlay=0x794C7630 note: overlay.* belongs to this container'; do
        FAULT_TYPE=$(sed 's/[^=]*=\([^ ]*\) .*/\1/' <<<"$type") LD_PRELOAD=$HELPERS/fault_fstatfs.so doctor --lock-dir="$T/locks"
        says "^files file system ${type#* }"
    done
}

@test "a lock directory on a file system whose flock(2) is a byte-range lock is a failure, such a lock file a warning" {
    export LD_PRELOAD=$HELPERS/fault_fstatfs.so FAULT_TYPE=0x6969
    doctor --lock-dir="$T/locks"
    equals "$status" 77
    says '^backend store fail: .* is on nfs; flock.2. conflicts'
    : >"$T/exact"
    finds 0 '^files file system warn: nfs: the effect of flock' --lock-file="$T/exact"
}
