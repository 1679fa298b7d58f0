#!/usr/bin/env bats
# A server's replies are not trusted: when a lock is acquired, while it is held, while
# it is waited for.
load ../lib/common

# bytes TEXT: sets what the fake server sends, in the escapes of printf(1).
bytes() { printf '%b' "$1" >"$T/reply.new" && mv "$T/reply.new" "$T/reply"; }

repeat() { printf "%.0s$1" $(seq "$2"); }

bulk() { printf '$%s\\r\\n%s\\r\\n' "${#1}" "$1"; }

# Prints a reply of 14 elements to an acquire, as take.lua gives it; $1 replaces the first number.
held() {
    printf '*15\\r\\n%s%s%s' "$(bulk held)" "$1" "$(repeat ':1\\r\\n' 2)"
    repeat '$0\\r\\n\\r\\n' 11
}

# Each is the reply to a call, after "+OK" to CLIENT SETNAME if that lets
# dlock come further.
nonsense() {
    # Other services, or no service.
    echo 'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'
    echo 'SSH-2.0-OpenSSH_9.2p1\r\n'
    echo '220 mail.example ESMTP\r\n'
    echo '\x15\x03\x01\x00\x02\x02\x46'
    echo '\x00\x00\x00\x00'
    # Types in the wrong places.
    repeat '+OK\\r\\n' 6; echo
    repeat '$-1\\r\\n' 6; echo
    repeat '*-1\\r\\n' 6; echo
    repeat '*0\\r\\n' 6; echo
    repeat ':1\\r\\n' 6; echo
    repeat '-\\r\\n' 6; echo
    echo '+OK\r\n*1\r\n*1\r\n*0\r\n'
    echo '+OK\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:-1\r\n'
    echo '+OK\r\n*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nx\r\n$1\r\ny\r\n'
    echo '+OK\r\n*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n'
    echo '+OK\r\n*2\r\n$7\r\nmessage\r\n$1\r\nx\r\n'
    # RESP3, which nobody has requested.
    echo '+OK\r\n%1\r\n+taken\r\n+1\r\n'
    echo '+OK\r\n>3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n'
    echo '+OK\r\n~5\r\n$5\r\ntaken\r\n:1\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n,1.5\r\n'
    echo '+OK\r\n_\r\n'
    echo '+OK\r\n#t\r\n'
    echo '+OK\r\n(3492890328409238509324850943850943825024385\r\n'
    echo '+OK\r\n=7\r\ntxt:abc\r\n'
    echo '+OK\r\n!5\r\nERR x\r\n'
    # Sizes.
    echo '+OK\r\n$2147483647\r\nx'
    echo '+OK\r\n$9223372036854775807\r\nx'
    echo '+OK\r\n$-2\r\n'
    echo '+OK\r\n$99999999999999999999\r\n'
    echo '+OK\r\n*-2\r\n'
    echo '+OK\r\n*1073741825\r\n:1\r\n'
    echo '+OK\r\n*4294967297\r\n:1\r\n'
    echo '+OK\r\n*9223372036854775807\r\n'
    echo '+OK\r\n*262144\r\n*262144\r\n*262144\r\n'
    echo "+OK\\r\\n$(repeat '*1\\r\\n' 20000)"
    echo "+OK\\r\\n$(repeat '*1\\r\\n' 6):1\\r\\n"
    # Numbers.
    echo '+OK\r\n:9223372036854775808\r\n'
    echo '+OK\r\n:\r\n'
    echo '+OK\r\n:12a\r\n'
    # Replies that are almost right.
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n0\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$20\r\n99999999999999999999\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$2\r\n1\x00\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$6\r\ntaken\x00\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:-60000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n$7\r\n3600000\r\n:-1\r\n:1\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:4294967296\r\n:1\r\n'
    echo '+OK\r\n*6\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n:0\r\n'
    echo '+OK\r\n*5\r\n+taken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n'
    echo "+OK\\r\\n$(held ':-3\r\n')"
    echo "+OK\\r\\n$(held '$-1\r\n')"
    echo "+OK\\r\\n$(held '*0\r\n')"
    echo '*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n'
    # One reply too many, or part of one.
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n+OK\r\n'
    echo '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n*4\r\n$5\r\nta'
    # No number in a place that needs one.
    echo "+OK\\r\\n$(held '$0\r\n\r\n')"
}

# bats test_tags=slow
@test "whatever a server says while a lock is held and waited for, it stays held and is waited for" {
    start_redis
    bytes ''
    fake_redis "spoilt=$T/reply" "$T/redis.sock"
    hold_lock job -r "unix://$T/fake.sock" -t 60 --connect-timeout=200ms
    dlock -r "unix://$T/fake.sock" --retry-for=60 --connect-timeout=200ms job echo next >"$T/out" 2>&1 3>&- 4>&- &
    local waiter=$! line before
    wait_until 10 sh -c "[ \"\$(redis-cli -s '$T/redis.sock' zcard '{dlock:job}:queue')\" = 1 ]"
    while read -r line; do
        bytes "$line"
        before=$(connections)
        kill -USR1 "$(cat "$T/fake.pid")"
        wait_until 10 has_connections $((before + 2))
        kill -USR2 "$(cat "$T/fake.pid")"
        kill -0 "$HOLDER"
        kill -0 "$waiter"
    done < <(nonsense | sed -n '1p;6p;8p;11p;14,16p;18p;31p;35p;42p;56p')
    kill -0 "$(cat "$T/held")"
    not grep -q next "$T/out"
    if [ -z "$SANITIZER" ]; then
        # The 20,000 levels and the large sizes have left nothing behind.
        [ "$(awk '/VmHWM/ {print $2}' "/proc/$HOLDER/status")" -lt 12000 ]
        [ "$(awk '/VmHWM/ {print $2}' "/proc/$waiter/status")" -lt 12000 ]
    fi
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    equals "$(cat "$T/out")" next
}

@test "whatever a server replies to an acquire: exit 69, nothing is run" {
    local line
    bytes ''
    fake_redis "$T/reply"
    while read -r line; do
        bytes "$line"
        run dlock -r "unix://$T/fake.sock" --connect-timeout=100ms --retry-for=0 -n job touch "$T/ran"
        equals "$status ${line::80}" "69 ${line::80}"
        [ ! -e "$T/ran" ]
    done < <(nonsense)
}

@test "a valid reply from the fake server is accepted" {
    # The test above relies on this: its fake server can be believed.
    bytes "+OK\\r\\n$(held ':1\r\n')"
    fake_redis "$T/reply"
    fails_with 75 '' dlock -r "unix://$T/fake.sock" --retry-for=0 -n job touch "$T/ran"
    bytes '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n'
    dlock -r "unix://$T/fake.sock" --retry-for=0 job touch "$T/ran" 2>/dev/null 3>&- 4>&- &
    wait_until 10 test -e "$T/ran"
    kill %1
}

@test "a surplus reply is not taken for the next one: no lock" {
    bytes '+OK\r\n*5\r\n$5\r\ntaken\r\n$1\r\n1\r\n:3600000\r\n:-1\r\n:1\r\n+OK\r\n'
    fake_redis "$T/reply"
    fails_with 69 'the server sent more replies than requests' \
        dlock -r "unix://$T/fake.sock" --connect-timeout=100ms --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "replies that arrive byte by byte or never end are cut off at the call's timeout" {
    local mode start
    for mode in drip flood; do
        bytes '+OK\r\n*4\r\n$9999\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
        fake_redis "$mode=$T/reply"
        start=$(now)
        fails_with 69 "fake.sock.*: (the reply is longer than 16 MB or has no end|the reply is not in the Redis protocol|no answer in time);" \
            dlock -r "unix://$T/fake.sock" --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
        within 0 "$start"
        kill "$(cat "$T/fake.pid")"
    done
    # Messages, but no reply among them.
    bytes "$(repeat '*3\\r\\n$7\\r\\nmessage\\r\\n$1\\r\\nx\\r\\n$1\\r\\ny\\r\\n' 400)"
    fake_redis "flood=$T/reply"
    start=$(now)
    fails_with 69 "(the reply is longer than 16 MB or has no end|no answer in time);" \
        dlock -r "unix://$T/fake.sock" --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 0 "$start"
    [ ! -e "$T/ran" ]
}

@test "a reply with endless elements uses hardly any memory" {
    [ -z "$SANITIZER" ] || skip 'a sanitizer needs memory of its own'
    { printf '+OK\r\n*262000\r\n'; yes '+' | head -n 261000 | sed 's/$/\r/'; } >"$T/reply"
    fake_redis "$T/reply"
    (ulimit -v 120000; fails_with 69 'no answer in time|the server closed' \
        dlock -r "unix://$T/fake.sock" --connect-timeout=500ms --retry-for=0 job touch "$T/ran")
    # Sixteen million elements would be a gigabyte.
    { printf '+OK\r\n'; printf '*200000\r\n%.0s' 1 2 3 4 5 6; yes '+' | head -n 1000000 | sed 's/$/\r/'; } >"$T/reply"
    (ulimit -v 120000; fails_with 69 'the reply is not in the Redis protocol' \
        dlock -r "unix://$T/fake.sock" --connect-timeout=500ms --retry-for=0 job touch "$T/ran")
    [ ! -e "$T/ran" ]
}

connections() { grep -c connection "$T/fake.log"; }
has_connections() { [ "$(connections)" -ge "$1" ]; }

@test "a flood of messages keeps neither a holder nor a waiter from what is due" {
    start_redis
    fake_redis "spoil=flood" "$T/redis.sock"
    hold_lock job -r "unix://$T/fake.sock" -t 3 --grace=100ms
    local start=$(now) status=0
    dlock -r "unix://$T/fake.sock" -w 1500ms job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 sh -c "[ \"\$(redis-cli -s '$T/redis.sock' zcard '{dlock:job}:queue')\" = 1 ]"
    kill -USR1 "$(cat "$T/fake.pid")"
    wait "$waiter" || status=$?
    [ "$status" -eq 75 ] || [ "$status" -eq 69 ]
    within 1000 "$start"
    status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 2000 "$start"
    [ ! -e "$T/ran" ]
}
