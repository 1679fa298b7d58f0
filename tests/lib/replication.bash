# A master, its replica and Sentinels, for the tests of failovers.
# shellcheck shell=bash

# start_pair [ARGUMENTS...]: a master "a" (these arguments are its own) and its
# replica "b", on Unix sockets and the ports $A and $B.
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

# start_sentinel NAME [LINES...]: one that watches the master "prime" on port $A,
# and decides alone. Its port is $PORT.
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
# A Sentinel that refuses says so, and redis-cli ends with 0 all the same.
fails_over() { [ "$(redis-cli -p "$1" sentinel failover prime)" = OK ]; }
has_switched() { grep -q '+switch-master' "$T/$1.log"; }

# fake_sentinel NAME REPLY...: one that gives these replies (printf(1)'s escapes) to
# one question after the other, the last one for ever. Its port is $PORT.
fake_sentinel() {
    local name=$1
    shift
    rm -f "$T/$name.port"
    python3 "$TESTS/fakes/fake_sentinel.py" "$T/$name.port" "$@" >"$T/$name.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    echo $! >"$T/$name-$!.pid" # there may be several of this name in one test, one after the other
    disown
    wait_until 10 test -e "$T/$name.port"
    PORT=$(cat "$T/$name.port")
}

# address HOST PORT: as a Sentinel names a master.
address() { printf '*2\\r\\n$%s\\r\\n%s\\r\\n$%s\\r\\n%s\\r\\n' "${#1}" "$1" "${#2}" "$2"; }
