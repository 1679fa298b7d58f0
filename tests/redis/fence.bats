#!/usr/bin/env bats
# The fence of a lock keeps rising whatever happens to the server.
BACKEND=redis
load ../both/backend
load ../lib/fence

@test "the fence keeps rising after a restart of the server: without its data, with it, and with a clock that is behind" {
    rises
    stop_redis
    start_redis redis
    equals "$(redis dbsize)" 0
    rises
    redis shutdown save || true
    wait_until 10 gone "$(cat "$T/redis.pid")"
    start_redis redis
    equals "$(redis exists '{dlock:job}:meta')" 1
    rises
    redis shutdown save || true
    wait_until 10 gone "$(cat "$T/redis.pid")"
    set_wall -7200
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis redis
    equals "$(redis exists '{dlock:job}:meta')" 1
    rises
}

@test "the fence keeps rising after a switch to a server with older data or with a clock that is behind" {
    # A replica that takes over without the last writes.
    start_redis replica --replicaof 127.0.0.1 1
    redis-cli -s "$T/replica.sock" replicaof no one
    rises
    meta_to() { redis --raw dump '{dlock:job}:meta' | head -c -1 | redis-cli -s "$T/$1.sock" -x restore '{dlock:job}:meta' 0; }
    equals "$(meta_to replica)" OK
    rises
    rises
    rises -r "unix://$T/replica.sock"
    rises
    # A server with all the data, and a clock that is behind.
    set_wall -7200
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis behind
    off_by -7200 "$(redis-cli -s "$T/behind.sock" time | head -1)000000"
    equals "$(meta_to behind)" OK
    rises -r "unix://$T/behind.sock"
    rises -r "unix://$T/behind.sock"
}
