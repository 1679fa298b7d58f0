# A master, its replica and Sentinels, for the tests of failovers.
# shellcheck shell=bash

# start_pair [ARGUMENTS...]: starts a master "a" (with these arguments) and its replica "b", on Unix sockets and
# the ports $A and $B.
start_pair() {
    A=$(free_port) B=$(free_port)
    start_redis a --port "$A" --repl-diskless-sync no "$@"
    start_redis b --port "$B" --repl-diskless-sync no --replica-read-only no
    at_b replicaof 127.0.0.1 "$A" >/dev/null
    wait_until 10 has_synced
}
has_synced() { at_b info replication | grep -q 'master_link_status:up'; }
at_a() { redis-cli -s "$T/a.sock" "$@"; }
at_b() { redis-cli -s "$T/b.sock" "$@"; }

# start_sentinel NAME [LINES...]: starts a Sentinel that watches the master "prime" on port $A, and decides alone.
# Its port is $PORT.
start_sentinel() {
    local name=$1
    shift
    PORT=$(free_port)
    printf '%s\n' "port $PORT" "dir $T" "sentinel resolve-hostnames no" "sentinel monitor prime 127.0.0.1 $A 1" \
        "sentinel down-after-milliseconds prime 300" "sentinel failover-timeout prime 2000" "$@" >"$T/$name.conf"
    redis-server "$T/$name.conf" --sentinel >"$T/$name.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    disown
    wait_until 10 sentinel_answers "$PORT"
}
sentinel_answers() { redis-cli -p "$1" ping 2>&1 | grep -qE 'PONG|NOAUTH'; }
sentinel_knows_replica() { redis-cli -p "$1" sentinel replicas prime | grep -q 'slave-repl-offset'; }
# If the Sentinel refuses, it only says so: redis-cli exits with 0 even then.
fails_over() { [ "$(redis-cli -p "$1" sentinel failover prime)" = OK ]; }
has_switched() { grep -q '+switch-master' "$T/$1.log"; }

# fake_sentinel NAME REPLY...: starts a Sentinel that answers its questions with these replies in turn (with
# printf(1)'s escapes), and repeats the last one. Its port is $PORT.
fake_sentinel() {
    local name=$1
    shift
    rm -f "$T/$name.port"
    python3 "$TESTS/fakes/fake_sentinel.py" "$T/$name.port" "$@" >"$T/$name.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    echo $! >"$T/$name-$!.pid" # a test may start several of this name, one after the other
    disown
    wait_until 10 test -e "$T/$name.port"
    PORT=$(cat "$T/$name.port")
}

# address HOST PORT: prints a master's address as a Sentinel replies it, for fake_sentinel.
address() { printf '*2\\r\\n$%s\\r\\n%s\\r\\n$%s\\r\\n%s\\r\\n' "${#1}" "$1" "${#2}" "$2"; }
