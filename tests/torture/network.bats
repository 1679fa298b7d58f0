#!/usr/bin/env bats
# bats file_tags=long
# The proxies and networks between dlock and its servers in a campaign do what they say, and a lock
# on three servers survives them.
load ../lib/common
setup() { common_setup; export PYTHONPATH=$TESTS/torture:$TESTS/lib PYTHONDONTWRITEBYTECODE=1; }

ping_through() { timeout "${1:-5}" redis-cli -s "$T/redis.proxy" ping 2>&1 </dev/null; }

@test "the proxy passes on, delays, holds back, cuts a reply, resets, refuses, and heals" {
    start_redis
    torture_proxy redis
    equals "$(ping_through)" PONG
    ask_proxy redis delay 0.15
    local start=$(now)
    equals "$(ping_through)" PONG
    [ $(($(now) - start)) -ge 300 ] # there and back
    ask_proxy redis heal
    ask_proxy redis cut 3
    not grep -q PONG <<<"$(ping_through)"
    ask_proxy redis heal
    ask_proxy redis refuse
    ping_through | grep -qE 'refused|No such file'
    ask_proxy redis heal
    equals "$(ping_through)" PONG
    # Nothing comes back; the request is carried out all the same, and answered in the end.
    ask_proxy redis partition 0 1
    timeout 10 redis-cli -s "$T/redis.proxy" set key value >"$T/answer" 3>&- 4>&- &
    wait_until 5 eval '[ "$(redis exists key)" = 1 ]'
    [ ! -s "$T/answer" ]
    ask_proxy redis heal
    wait $!
    equals "$(cat "$T/answer")" OK
    # Nothing passes in either direction: the request does not even arrive.
    ask_proxy redis partition
    timeout 10 redis-cli -s "$T/redis.proxy" del key >"$T/answer" 2>&1 3>&- 4>&- &
    wait_until 5 eval '[ "$(grep -c "$T/redis.proxy" /proc/net/unix)" -ge 2 ]' # it listens, and has one connection
    equals "$(redis exists key)" 1
    ask_proxy redis reset
    not wait $!
    equals "$(redis exists key)" 1
    ask_proxy redis heal
}

@test "the hosts' network loses, delays, reorders, duplicates and cuts off packets, and leaves nothing behind" {
    local reason
    reason=$(python3 -c 'import network; print(network.why_not() or "")')
    [ -z "$reason" ] || skip "$reason"
    timeout 60 python3 - <<'P'
import socket, subprocess, sys, time
from network import Link, Network

ECHO = """import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7))
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""

def answers(network, count, seconds, most):
    """The packets that come back within these seconds, at most so many."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        for number in range(count):
            stream.sendto(b"%d" % number, (network.address("a"), 7))
        got, end = [], time.monotonic() + seconds
        while time.monotonic() < end and len(got) < most:
            stream.settimeout(max(end - time.monotonic(), 0.001))
            try:
                got.append(int(stream.recv(100)))
            except TimeoutError:
                break
        return got

before = open("/proc/net/dev").read()
with Network(["a", "b"]) as network:
    server = subprocess.Popen(network.within("a") + [sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    every = list(range(100))
    # The first packet finds the neighbour; processors that take turns may swap two of the others.
    assert answers(network, 1, 10, 1) == [0]
    assert sorted(answers(network, 100, 10, 100)) == every
    network.between(["a"], ["client"], Link(loss=0.3))
    assert 10 < len(answers(network, 100, 1, 100)) < 90
    network.rule(["a"], ["client"], Link(cut=True))
    assert answers(network, 10, 0.2, 1) == []
    network.between(["a"], ["b"], Link(cut=True))
    network.between(["a"], ["client"], Link(delay=0.1))
    begin = time.monotonic()
    assert answers(network, 1, 10, 1) == [0] and time.monotonic() - begin > 0.19
    network.between(["a"], ["client"], Link(delay=0.02, jitter=0.02))
    got = answers(network, 100, 10, 100)
    assert sorted(got) == every and got != every
    network.rule(["a"], ["client"], Link(twice=1))
    network.rule(["client"], ["a"], Link())
    assert sorted(answers(network, 20, 10, 40)) == sorted(2 * list(range(20)))
    network.heal()
    assert sorted(answers(network, 100, 10, 100)) == every
    server.kill()
    server.wait()
assert open("/proc/net/dev").read().count("\n") == before.count("\n")
assert not [line for line in open("/proc/self/task/%d/children" % __import__("os").getpid()).read().split()]
P
}

@test "three servers, one of them killed, frozen or out of reach: never two at once, and somebody always gets the lock" {
    run timeout 60 python3 "$TESTS/torture" --stage quorum3 --seed bats --takes 200 --seconds 20 --locks 4 --pace 10 \
        --only kill-minority,freeze-minority,partition-replies-minority,delay-one "$DLOCK" "$HELPERS"
    echo "$output"
    [ "$status" -eq 0 ]
    grep -qE '^quorum3: [1-9][0-9]* takes, .*, 0 overlaps, 0 wrong$' <<<"$output"
    grep -qE '^  faults drawn: delay-one [0-9]+, freeze-minority [0-9]+, kill-minority [0-9]+, partition-replies-minority [0-9]+$' <<<"$output"
    not grep -q 'could not be played' <<<"$output"
}

# taken_away OPTION...: acquires the lock, which is removed on the first server before the highest fence is written there:
# that of the second server, which answers later.
taken_away() {
    local status=0
    redis-cli -s "$T/2.sock" hset '{dlock:job}:meta' fence "$(($(date +%s) + 600))000000" format 2 >/dev/null
    dlock "$@" job -- true 2>"$T/said" 3>&- 4>&- &
    wait_until 5 eval '[ "$(redis-cli -s "$T/2.sock" exists dlock:job)" = 1 ]'
    equals "$(redis-cli -s "$T/1.sock" del dlock:job)" 1
    wait $! || status=$?
    cat "$T/said"
    return "$status"
}

@test "a lock that is removed while it is being acquired is requested again, and no server is reported as unreachable" {
    start_redis 1
    start_redis 2
    torture_proxy 2
    ask_proxy 2 delay 0.4
    export DLOCK_REDIS="unix://$T/1.sock unix://$T/2.proxy unix://$T/none.sock"
    fails_with 75 '' taken_away -n -v
    not grep -q 'cannot be reached' <<<"$output"
    fails_with 0 '' taken_away -w 30 -v
    not grep -q 'cannot be reached' <<<"$output"
}
