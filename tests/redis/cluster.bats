#!/usr/bin/env bats
# One Cluster for all tests of this file. Its nodes 1 to 3 have a quarter of the
# slots each, and stay; node 4 has none until one test gives it some and kills it; node 5 and
# its replica 6, which have the rest, change places in another test. Each test has names
# of its own, by the node that owns them; those that list all locks tolerate
# what the others do to nodes meanwhile.
load ../lib/common

# --- the Cluster -------------------------------------------------------------

# Ports that nobody listens on, below those that connections get.
free_ports() {
    python3 - "$1" <<'P'
import random, socket, sys
sockets = []
while len(sockets) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(15000, 32000)))
    except OSError:
        continue
    sockets.append(s)
print(*(s.getsockname()[1] for s in sockets))
P
}

start_node() {
    local number=$1 dir=$BATS_FILE_TMPDIR/node$1
    shift
    mkdir -p "$dir"
    redis-server --port "${PORT[number]}" --cluster-port "${PORT[number + 6]}" --bind 127.0.0.1 --cluster-enabled yes \
        --cluster-config-file nodes.conf --cluster-node-timeout 2000 --cluster-require-full-coverage no \
        --repl-diskless-sync-delay 0 --daemonize no --save '' --appendonly no --dir "$dir" --logfile "$dir/log" "$@" \
        >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$dir/pid"
    disown
}

# cli NODE COMMAND...: runs redis-cli on this node.
cli() { redis-cli -p "${PORT[$1]}" "${@:2}"; }

node_is() { cli "$1" "${@:3}" | grep -q "$2"; }

setup_file() {
    local number
    read -ra PORT <<<"0 $(free_ports 12)"
    echo "${PORT[@]}" >"$BATS_FILE_TMPDIR/ports"
    for number in 1 2 3 4; do start_node $number; done
    for number in 5 6; do
        start_node $number --cluster-announce-hostname localhost --cluster-preferred-endpoint-type hostname --cluster-replica-no-failover yes
    done
    for number in {1..6}; do wait_until 20 node_is $number PONG ping; done
    local first=0 last masters=(1 2 3 5)
    for number in 0 1 2 3; do
        last=$(((number + 1) * 4096 - 1))
        cli "${masters[number]}" cluster addslotsrange $first $last
        cli "${masters[number]}" cluster set-config-epoch $((number + 1))
        first=$((last + 1))
    done
    for number in {2..6}; do cli $number cluster meet 127.0.0.1 "${PORT[1]}" "${PORT[7]}"; done
    wait_until 20 node_is 6 "$(cli 5 cluster myid)" cluster nodes
    wait_until 20 node_is 6 OK cluster replicate "$(cli 5 cluster myid)"
    for number in {1..6}; do
        wait_until 20 node_is $number cluster_state:ok cluster info
        wait_until 20 node_is $number cluster_known_nodes:6 cluster info
    done
    wait_until 20 node_is 6 master_link_status:up info replication
}

teardown_file() {
    local file
    for file in "$BATS_FILE_TMPDIR"/node*/pid; do kill -KILL "$(cat "$file")" 2>/dev/null || true; done
}

setup() {
    common_setup
    read -ra PORT <"$BATS_FILE_TMPDIR/ports"
    URL=redis+cluster://127.0.0.1:${PORT[1]},127.0.0.1:${PORT[2]}
    export DLOCK_REDIS=$URL
}

# name NODE [TEXT]: prints the name of a lock in a slot of this node, which only this test uses.
name() {
    python3 - "$1" "${2:-$BATS_TEST_NUMBER}" <<'P'
import binascii, itertools, sys
node, text = int(sys.argv[1]), sys.argv[2]
for i in itertools.count():
    tag = f"t{text}.{i}"
    if binascii.crc_hqx(tag.encode(), 0) % 16384 // 4096 == {1: 0, 2: 1, 3: 2, 5: 3}[node]:
        print("{" + tag + "}job")
        break
P
}

slot() { cli 1 cluster keyslot "dlock:$1"; }
is_free() { [ "$(cli "$1" exists "dlock:$2")" = 0 ]; }

# told NODE NUMBER: at least NUMBER connections of dlock listen there.
told() { [ "$(cli "$1" client list | grep -cE 'name=dlock .* sub=[12] ')" -ge "$2" ]; }

# begin_move SLOT FROM TO, move_key SLOT FROM TO, end_move SLOT FROM TO: the steps of a slot's move.
begin_move() {
    cli "$3" cluster setslot "$1" importing "$(cli "$2" cluster myid)"
    cli "$2" cluster setslot "$1" migrating "$(cli "$3" cluster myid)"
}
move_key() { cli "$2" migrate 127.0.0.1 "${PORT[$3]}" "$1" 0 5000; }
keys_of() { cli "$2" cluster getkeysinslot "$1" 100; }
end_move() {
    local node id
    id=$(cli "$3" cluster myid)
    for node in "$3" "$2" 1 2 3 5; do cli "$node" cluster setslot "$1" node "$id" || true; done
}

# --- locks in a Cluster ------------------------------------------------------

@test "a lock on any node can be acquired, shared, nested and released, whichever node is asked first" {
    local node seed lock
    for node in 1 2 3; do
        lock=$(name $node)
        for seed in 1 2 3; do
            export DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[seed]}
            equals "$(dlock "$lock" -- sh -c 'echo "$DLOCK_HELD_BACKEND"; dlock "$0" echo nested' "$lock")" $'redis\nnested'
            equals "$(dlock -s "$lock" -- dlock -s -n "$lock" echo shared)" shared
            equals "$(dlock --slots=2 "$lock" -- sh -c 'echo "$DLOCK_SLOT"')" 0
        done
        is_free $node "$lock"
        equals "$(cli $node hget "{${lock#\{}" nothing; cli $node hget "${lock%job}dlock:$lock:meta" takes)" $'\n9'
    done
}

@test "a lock on any node can be paused and resumed, whichever node is asked first; waiters acquire it then" {
    local node lock
    for node in 1 2 3; do
        lock=$(name $node)
        DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[1]} dlock --pause=60s --message='disk swap' "$lock"
        export DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[2]}
        fails_with 75 'paused by .*; message: disk swap' dlock -n "$lock" touch "$T/ran$node"
        dlock -w 60 "$lock" touch "$T/ran$node" 3>&- 4>&- &
        wait_until 10 waiting "$node" "$lock" a
        [ ! -e "$T/ran$node" ]
        DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[3]} dlock --resume "$lock"
        wait $!
        [ -e "$T/ran$node" ]
        fails_with 1 'the lock is not paused' dlock --resume "$lock"
        is_free $node "$lock"
    done
}

@test "the computed slot of a key matches the specification and the server" {
    # 0x31C3 is the check value of CRC16; the others are from the specification.
    equals "$(cli 1 cluster keyslot 123456789)" $((0x31C3))
    local lock seed
    for lock in 123456789 '{user1000}.following' 'foo{{bar}}zap' 'foo{bar}{zap}' 'x{y' 'ü{ä}' "$(printf 'x%.0s' {1..1000})"; do
        for seed in 1 2 3; do # at least two nodes report the slot's owner, which is believed for this slot alone
            run dlock -r "redis+cluster://127.0.0.1:${PORT[seed]}" --prefix= --retry-for=0 -n "$lock" true
            equals "$lock $status $output" "$lock 0 "
        done
    done
}

@test "a name whose keys would fall into two slots is refused, and the message says why" {
    local lock
    for lock in 'a}b' '{}x' 'foo{}{bar}'; do
        fails_with 78 "the key dlock:.* cannot be a lock in a Cluster: the key contains '}' but no \{tag\}" dlock "$lock" touch "$T/ran"
        [[ $output == *"dlock:$lock"* ]]
        fails_with 78 'cannot be a lock' dlock --status "$lock"
    done
    [ ! -e "$T/ran" ]
}

@test "a dead or silent node is skipped; if none is left: exit 69 with how many were tried" {
    local lock dead start
    lock=$(name 3)
    dead=$(free_ports 2)
    run dlock -r "redis+cluster://127.0.0.1:${dead% *},127.0.0.1:${PORT[1]}" --retry-for=0 "$lock" echo ran
    equals "$status $output" '0 ran'
    fake_nodes mute
    start=$(now)
    run dlock -r "redis+cluster://127.0.0.1:${FAKE[0]},127.0.0.1:${PORT[1]}" --connect-timeout=500ms "$lock" echo ran
    equals "$status $output" '0 ran'
    within 0 "$start"
    fails_with 69 'none of 2 nodes can be reached, the last one: node 127.0.0.1:[0-9]*: Connection refused' \
        dlock -r "redis+cluster://127.0.0.1:${dead% *},127.0.0.1:${dead#* }" --retry-for=0 "$lock" true
    fails_with 69 'none of 2 nodes can be reached.*; tried [2-9] times' \
        dlock -r "redis+cluster://127.0.0.1:${dead% *},127.0.0.1:${dead#* }" --retry-for=500ms "$lock" true
}

@test "waiters are called in the order in which they came, whichever node they asked first" {
    local lock label
    lock=$(name 3)
    hold_lock "$lock"
    for label in a b c; do
        # shellcheck disable=SC2016
        DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[$((1 + $(wc -c <<<"$label") % 3))]} \
            dlock "$lock" -- sh -c 'echo "$0" >>"$T/order"' $label 3>&- 4>&- &
        wait_until 10 waiting 3 "$lock" "$label"
    done
    end_hold
    wait
    equals "$(tr '\n' ' ' <"$T/order")" 'a b c '
}
queue_of() { echo "${1%job}dlock:$1:queue"; }
waiting() {
    local count
    count=$(printf '%d' "'$3")
    [ "$(cli "$1" zcard "$(queue_of "$2")")" = $((count - 96)) ]
}

@test "--list merges the locks of all nodes in one order, and omits keys that cannot be dlock's" {
    local node locks=("$(name 1)" "$(name 2)" "$(name 3)") others=()
    export DLOCK_PREFIX=list:
    for node in 1 2 3; do
        dlock --acquire -t 60s --owner=me "${locks[node - 1]}" >/dev/null
        others+=("${locks[node - 1]}:other")
        cli $node set "list:${others[node - 1]}" x >/dev/null
    done
    cli 1 -c set 'list:a}b' x >/dev/null
    run dlock --list --retry-for=60s
    equals "$(awk 'NR > 1 { print $1 }' <<<"$output")" "$(printf '%s\n' "${locks[@]}" "${others[@]}" | LC_ALL=C sort)"
    for node in 1 2 3; do
        run dlock --status "${locks[node - 1]}"
        equals "$status" 0
        fails_with 75 '' dlock --wait-until-free -n "${locks[node - 1]}"
        dlock --extend --owner=me "${locks[node - 1]}"
        dlock --force-release "${locks[node - 1]}"
        run dlock --wait-until-free -n "${locks[node - 1]}"
        equals "$status" 0
    done
    equals "$(dlock --list --all --json --retry-for=60s | grep '"locked":false' | grep -c '"outcome":"lost"')" 3
}

@test "the permissions in the manual are enough on every node" {
    local lock node
    redis() { for node in 1 2 3 5 6; do cli $node "$@" || true; done; }
    manual_user
    redis acl setuser locker $(manual_adds Cluster) $(manual_adds list)
    export DLOCK_REDIS=redis+cluster://locker:secret@127.0.0.1:${PORT[1]}
    lock=$(name 3)
    hold_lock "$lock" -t 60s
    fails_with 75 '' dlock -w 300ms "$lock" true
    dlock --list --retry-for=60s >/dev/null
    end_hold
    wait "$HOLDER"
    for node in 1 2 3; do equals "$(cli $node acl log | grep -cx locker)" 0; done
    fails_with 77 'node 127.0.0.1:[0-9]*: the server refuses the user locker .*WRONGPASS' \
        dlock -r "redis+cluster://locker:wrong@127.0.0.1:${PORT[1]}" "$lock" true
}

@test "--doctor tests the node that owns its test key, whichever node is asked first, and leaves nothing" {
    local lock node seed
    for node in 1 3; do
        lock=$(name $node)
        for seed in 1 2; do
            run dlock -r "redis+cluster://127.0.0.1:${PORT[seed]}" --prefix="$lock:" --retry-for=30s --doctor
            equals "$status $(grep -c '^ *fail ' <<<"$output")" '0 0'
            grep -qE "topology .*127.0.0.1, port ${PORT[node]}\$" <<<"$output"
        done
        equals "$(cli $node --scan --pattern "*$lock:doctor:*")" ''
    done
    for node in 1 2 3; do cli $node acl setuser lister on '>pw' '~*' '&*' +@all '-cluster|slots'; done
    fails_with 0 "note +--list .*CLUSTER SLOTS: NOPERM" \
        dlock -r "redis+cluster://lister:pw@127.0.0.1:${PORT[1]}" --prefix="$lock:" --retry-for=30s --doctor
    fails_with 77 'fail +login .*WRONGPASS' dlock -r "redis+cluster://lister:wrong@127.0.0.1:${PORT[1]}" --prefix="$lock:" --doctor
}

# --- a slot that moves -------------------------------------------------------

@test "a slot moves while its lock is held: the lock is watched and extended throughout, and released on the new node" {
    local lock slot key
    lock=$(name 1) slot=$(slot "$lock")
    cat >"$T/beat.sh" <<'B'
touch "$T/held"
until [ -e "$T/held.end" ]; do systemd-notify WATCHDOG=1 2>/dev/null || python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
s.send(b"WATCHDOG=1")'; sleep 0.1; done
B
    dlock -t 2s --grace=300ms --heartbeat "$lock" -- sh "$T/beat.sh" 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    wait_until 10 test -e "$T/held"
    begin_move "$slot" 1 2
    sleep 0.5 # both keys are still there
    for key in $(keys_of "$slot" 1); do
        move_key "$key" 1 2
        sleep 0.3
    done
    # The slot still belongs to the old node; the lock is on the new one, and its lease is extended there.
    wait_until 5 told 2 1
    sleep 2.5
    [ "$(cli 1 exists "dlock:$lock")" != 1 ]
    end_move "$slot" 1 2
    sleep 0.5
    kill -0 "$HOLDER"
    end_hold
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status$(cat "$T/held.err")" 0
    is_free 2 "$lock"
}

@test "a lock is released at once while its slot moves, and a waiter acquires it after the move" {
    local lock slot key start waiter
    lock=$(name 3) slot=$(slot "$lock")
    hold_lock "$lock"
    dlock "$lock" touch "$T/ran" 3>&- 4>&- &
    waiter=$!
    wait_until 10 waiting 3 "$lock" a
    begin_move "$slot" 3 2
    for key in $(keys_of "$slot" 3); do move_key "$key" 3 2; done
    start=$(now)
    end_hold
    wait "$HOLDER"
    within 0 "$start"
    equals "$(cat "$T/held.err")" ''
    equals "$(printf 'asking\nexists dlock:%s\n' "$lock" | cli 2 | tail -1)" 0
    [ ! -e "$T/ran" ]
    end_move "$slot" 3 2
    start=$(now)
    wait "$waiter"
    within 1000 "$start"
    [ -e "$T/ran" ]
}

@test "a lock released right after its slot has moved soon goes to all its waiters" {
    local lock slot key label start
    lock=$(name 2) slot=$(slot "$lock")
    hold_lock "$lock"
    for label in a b c; do
        # shellcheck disable=SC2016
        dlock "$lock" -- sh -c 'echo "$0" >>"$T/order"' $label 3>&- 4>&- &
        wait_until 10 waiting 2 "$lock" $label
    done
    begin_move "$slot" 2 1
    for key in $(keys_of "$slot" 2); do move_key "$key" 2 1; done
    end_move "$slot" 2 1
    end_hold && start=$(now)
    wait
    within 2000 "$start"
    equals "$(sort "$T/order" | tr '\n' ' ')" 'a b c '
}

@test "a lock removed on the node to which its slot has moved is lost, which is noticed at once" {
    local lock slot key start status=0
    lock=$(name 2) slot=$(slot "$lock")
    hold_lock "$lock"
    begin_move "$slot" 2 3
    for key in $(keys_of "$slot" 2); do move_key "$key" 2 3; done
    end_move "$slot" 2 3
    wait_until 5 told 3 1
    start=$(now)
    cli 3 del "dlock:$lock"
    wait "$HOLDER" || status=$?
    within 0 "$start"
    equals "$status" 124
}

@test "a slot moves while others wait: no waiter is lost, and they acquire the lock in order" {
    local lock slot key label
    lock=$(name 1) slot=$(slot "$lock")
    hold_lock "$lock"
    for label in a b c; do
        # shellcheck disable=SC2016
        dlock "$lock" -- sh -c 'echo "$0" >>"$T/order"' $label 3>&- 4>&- 2>"$T/$label.err" &
        wait_until 10 waiting 1 "$lock" $label
    done
    begin_move "$slot" 1 3
    for key in $(keys_of "$slot" 1); do
        move_key "$key" 1 3
        sleep 0.1
    done
    end_move "$slot" 1 3
    wait_until 15 all_there
    end_hold
    wait
    equals "$(tr '\n' ' ' <"$T/order")" 'a b c '
    is_free 3 "$lock"
}
all_there() { [ "$(cli 3 pubsub channels "*$lock:wake:*" | grep -c wake)" = 3 ]; }

@test "a lock whose slot is moving is acquired only after the move, otherwise exit 69" {
    local lock slot key
    lock=$(name 3) slot=$(slot "$lock")
    dlock "$lock" true # leaves the meta key
    begin_move "$slot" 3 1
    fails_with 69 'node 127.0.0.1:[0-9]+: the server answered: TRYAGAIN .*; the slot of the key is being moved' dlock --connect-timeout=300ms --retry-for=300ms "$lock" touch "$T/ran"
    for key in $(keys_of "$slot" 3); do move_key "$key" 3 1; done
    fails_with 69 'TRYAGAIN' dlock --connect-timeout=300ms --retry-for=300ms -s "$lock" touch "$T/ran"
    [ ! -e "$T/ran" ]
    dlock "$lock" touch "$T/ran" 3>&- 4>&- &
    sleep 0.5
    [ ! -e "$T/ran" ]
    end_move "$slot" 3 1
    wait "$!"
    [ -e "$T/ran" ]
    is_free 1 "$lock"
}

# mover: makes a user for this test, by which its clients are found on each node; $DLOCK_REDIS uses it from now on.
mover() {
    local node
    MOVER=mover$BATS_TEST_NUMBER
    for node in 1 2 3; do cli $node acl setuser "$MOVER" on '>pw' '~*' '&*' +@all; done
    export DLOCK_REDIS=redis+cluster://$MOVER:pw@127.0.0.1:${PORT[1]}
}
# movers NODE COUNT: at least COUNT of its clients are there. idle NODE LEAST MOST: there is one, which last asked
# between LEAST and MOST seconds ago.
movers() { [ "$(cli "$1" client list | grep -c " user=$MOVER ")" -ge "$2" ]; }
idle() {
    local seconds
    seconds=$(cli "$1" client list | sed -nE "s/.* idle=([0-9]+) .* user=$MOVER .*/\1/p")
    [ -n "$seconds" ] && [ "$seconds" -ge "$2" ] && [ "$seconds" -le "$3" ]
}

@test "a shared lock is released as soon as its slot has moved: waiters need not wait for its lease to end" {
    local lock slot key waiter start status=0
    lock=$(name 2 share) slot=$(slot "$lock")
    mover
    hold_lock "$lock" -s -t 60s
    DLOCK_REDIS=$URL dlock "$lock" touch "$T/ran" 3>&- 4>&- &
    waiter=$!
    wait_until 10 waiting 2 "$lock" a
    begin_move "$slot" 2 1
    wait_until 10 idle 2 2 60
    end_hold
    wait_until 10 idle 2 0 1 # it has asked for the release and got TRYAGAIN
    kill -0 "$HOLDER"
    for key in $(keys_of "$slot" 2); do move_key "$key" 2 1; done
    end_move "$slot" 2 1
    start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status$(cat "$T/held.err")" 0
    wait "$waiter"
    within 7000 "$start"
    [ -e "$T/ran" ]
    is_free 1 "$lock"
}

@test "a release while a slot's move does not end is tried for five seconds, then one warning says so" {
    local lock slot start status=0
    lock=$(name 3) slot=$(slot "$lock")
    hold_lock "$lock" -s -t 60s
    begin_move "$slot" 3 2
    start=$(now)
    end_hold
    wait "$HOLDER" || status=$?
    [ $(($(now) - start)) -ge 4000 ]
    within 6000 "$start"
    cli 2 cluster setslot "$slot" stable
    cli 3 cluster setslot "$slot" stable
    equals "$status" 0
    equals "$(wc -l <"$T/held.err")" 1
    grep -qE "the lock could not be released: .*: node 127.0.0.1:${PORT[3]}: the server answered: TRYAGAIN .*; the slot of the key is being moved; the lock stays held until its lease ends" "$T/held.err"
    fails_with 75 '' dlock -n "$lock" true
    dlock --force-release "$lock"
}

# ask_all OPTIONS[|COMMAND]... OUTAGE NAME: starts a dlock for each: ${ASKED[@]}; the output of the Nth, from 0, goes to
# $T/said.N, and its status to $T/status.N.
ask_all() {
    local number words=("${@:1:$#-2}") status
    ASKED=()
    for number in "${!words[@]}"; do
        : >"$T/status.$number"
        # shellcheck disable=SC2086
        (
            status=0
            dlock ${words[number]%|*} "${@: -2}" $(sed -n 's/.*|//p' <<<"${words[number]}") >"$T/said.$number" 2>&1 3>&- 4>&- || status=$?
            echo "$status" >"$T/status.$number"
        ) &
        ASKED+=("$!")
    done
}

@test "actions on a lock whose slot is moving are answered after the move" {
    local lock slot key
    lock=$(name 1) slot=$(slot "$lock")
    mover
    dlock --acquire -t 60s --owner=me "$lock" >/dev/null
    begin_move "$slot" 1 2
    # The one try of -n may last as long as the connection's timeout.
    ask_all '--extend --owner=me' --status '--pause=60s --message=move' '-n --connect-timeout=60s -s|true' --retry-for=60s "$lock"
    wait_until 10 movers 1 4
    for key in $(keys_of "$slot" 1); do move_key "$key" 1 2; done
    equals "$(cat "$T"/status.*)" ''
    end_move "$slot" 1 2
    wait
    cat "$T"/said.*
    equals "$(cat "$T"/status.*)" $'0\n0\n0\n75'
    [[ $(cat "$T/said.1") == *"$(id -un)@"* ]]
    dlock --release --owner=me "$lock"
    dlock --resume "$lock"
}

@test "endless TRYAGAIN: every action says so once --retry-for is over, and retries at most about ten times a second" {
    local number asked all=('-n|true' '-w 60|true' --wait-until-free --status '--extend --owner=me' '--release --owner=me' --force-release '--pause=60s --message=move' --resume)
    fake_nodes 'TRYAGAIN Multiple keys request during rehashing of slot'
    export DLOCK_REDIS=redis+cluster://127.0.0.1:${FAKE[0]}
    ask_all "${all[@]}" --retry-for=500ms job
    wait "${ASKED[@]}"
    for number in "${!all[@]}"; do
        echo "${all[number]}: $(cat "$T/status.$number" "$T/said.$number")"
        equals "$(cat "$T/status.$number")" 69
        grep -q 'the server answered: TRYAGAIN Multiple' "$T/said.$number"
    done
    asked=$(grep -c . "$T/scripts")
    echo "asked $asked times"
    [ "$asked" -ge $((2 * ${#all[@]})) ] && [ "$asked" -le $((30 * ${#all[@]})) ]
}

# --- nodes that fail ---------------------------------------------------------

@test "a replica replaces its master twice: the lock is still watched, and is released on the new master" {
    local lock other blind status=0
    lock=$(name 5) other=$(name 5 other)
    export DLOCK_REDIS=redis+cluster://127.0.0.1:${PORT[1]}
    hold_lock "$lock" -t 30s
    # For one dlock, each lookup of a name takes a minute once its command runs.
    hold blind
    LD_PRELOAD=$HELPERS/fault_resolver.so dlock -t 30s --connect-timeout=500ms "$other" -- "$T/blind.sh" >/dev/null 2>"$T/blind.err" 3>&- 4>&- &
    blind=$!
    wait_until 10 test -e "$T/blind"
    wait_until 5 told 5 2
    wait_until 5 replicated
    # The node that was its master calls the other one "localhost", a name that nobody has looked up yet.
    wait_until 5 node_is 6 OK cluster failover
    wait_until 10 node_is 6 role:master info replication
    wait_until 15 told 6 1
    wait_until 10 node_is 5 master_link_status:up info replication
    kill -KILL "$(cat "$BATS_FILE_TMPDIR/node6/pid")"
    wait_until 5 node_is 5 OK cluster failover takeover
    wait_until 15 told 5 2
    kill -0 "$(cat "$T/held")"
    end_hold
    touch "$T/blind.end"
    wait "$HOLDER" && wait "$blind" || status=$?
    equals "$status$(cat "$T/held.err" "$T/blind.err")" 0
    is_free 5 "$lock" && is_free 5 "$other"
}
replicated() { [ "$(printf 'readonly\nexists dlock:%s\n' "$lock" "$other" | cli 6 | grep -c '^1')" = 2 ]; }

@test "a node without a replica is killed: the lease ends as usual, and nobody can acquire its locks: exit 69" {
    local lock slot status=0
    lock=$(name 1) slot=$(slot "$lock")
    begin_move "$slot" 1 4
    end_move "$slot" 1 4
    hold_lock "$lock" -t 3s --grace=1s
    kill -KILL "$(cat "$BATS_FILE_TMPDIR/node4/pid")"
    wait_until 5 not node_is 4 PONG ping
    fails_with 69 'the key is on this node, which cannot be used: Connection refused|node .*: Connection refused' \
        dlock --retry-for=0 "$lock" touch "$T/ran"
    # Another test may have killed its node as well, and that node may be found first.
    fails_with 69 "redis\+cluster://(127.0.0.1:${PORT[4]}|[a-z0-9.]*:${PORT[6]}): node .*: Connection refused" dlock --retry-for=0 --list
    wait "$HOLDER" || status=$?
    end_move "$slot" 4 1
    equals "$status" 124
    grep -q 'the lease of 3s ends in .*and could not be checked' "$T/held.err"
    [ ! -e "$T/ran" ]
}

@test "a connection that ends before it has subscribed is replaced: no outage for a waiter that polls" {
    local lock node
    lock=$(name 3)
    for node in 1 2 3; do cli $node acl setuser bob on '>pw' '~*' '&*' +@all -subscribe; done
    cli 3 set "dlock:$lock" somebody px 60000
    dlock -r "redis+cluster://bob:pw@127.0.0.1:${PORT[1]}" --retry-for=0 "$lock" echo ran >"$T/out" 2>&1 3>&- 4>&- &
    wait_until 10 waiting 3 "$lock" a
    cli 3 client kill user bob
    cli 3 del "dlock:$lock"
    wait $!
    equals "$(cat "$T/out")" ran
}

# --- redirections that are not trusted ---------------------------------------

fake_nodes() {
    rm -f "$T/fake_ports"
    python3 "$TESTS/fakes/fake_nodes.py" "$T/fake_ports" "$@" >"$T/scripts" 2>&1 3>&- 4>&- &
    echo $! >"$T/fake.pid"
    wait_until 10 test -e "$T/fake_ports"
    mapfile -t FAKE <"$T/fake_ports"
}
end_fakes() { kill "$(cat "$T/fake.pid")"; }

@test "nodes that redirect in circles are an outage after a number of redirections" {
    local slot kind
    slot=$(slot job)
    for kind in MOVED ASK; do
        fake_nodes "$kind $slot 127.0.0.1:@2" "$kind $slot :@1"
        fails_with 69 "redirected 16 times, the last time by: $kind $slot" \
            dlock -n -r "redis+cluster://127.0.0.1:${FAKE[0]}" --retry-for=0 job touch "$T/ran"
        equals "$(grep -c . "$T/scripts")" 17
        end_fakes
    done
    fake_nodes "MOVED $slot :@1"
    fails_with 69 'redirected 16 times' dlock -n -r "redis+cluster://127.0.0.1:${FAKE[0]}" --retry-for=0 job touch "$T/ran"
    end_fakes
    # Each redirection is in time, but not all of them together.
    fake_nodes "0.3 MOVED $slot :@2" "0.3 MOVED $slot :@1"
    fails_with 69 'redirected [12] times until time ran out' \
        dlock -n -r "redis+cluster://127.0.0.1:${FAKE[0]}" --connect-timeout=500ms --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "an invalid redirection is an outage" {
    local slot node
    slot=$(slot job)
    fake_nodes "MOVED $slot 127.0.0.1:0" "MOVED $slot 127.0.0.1:99999" "MOVED $slot 127.0.0.1:" "MOVED $slot 127.0.0.1" \
        "MOVED $slot" 'MOVED ' "MOVED $slot ?:@1" 'MOVED 99999 127.0.0.1:@1' "MOVED $((slot - 1)) 127.0.0.1:@1" 'MOVED -1 :@1' \
        'MOVED x :@1' "ASK 99999999999999999999 :@1" "ASK $slot $(printf 'h%.0s' {1..300}):@1" "MOVED $slot a b:@1" \
        "MOVED $slot $(printf '1%.0s' {1..90000})"
    for node in "${FAKE[@]}"; do
        fails_with 69 'unknown redirection: (MOVED|ASK) ' \
            dlock -n -r "redis+cluster://127.0.0.1:$node" --retry-for=0 job touch "$T/ran"
    done
    [ ! -e "$T/ran" ]
}

@test "if a node is down or cut off from the others, another one is used" {
    local lock slot error
    lock=$(name 2) slot=$(slot "$lock")
    for error in 'CLUSTERDOWN The cluster is down' 'LOADING Redis is loading' 'MASTERDOWN Link with MASTER is down'; do
        fake_nodes "$error" "MOVED $slot 127.0.0.1:@1" # the redirection is not believed while that node is down
        run dlock -r "redis+cluster://127.0.0.1:${FAKE[0]},127.0.0.1:${PORT[1]}" "$lock" echo ran
        equals "$status $output" '0 ran'
        fails_with 69 "node 127.0.0.1:${FAKE[0]}: (the key is on this node, which cannot be used: )?the server answered: $error; tried [2-9]" \
            dlock -r "redis+cluster://127.0.0.1:${FAKE[0]},127.0.0.1:${FAKE[1]}" --retry-for=500ms "$lock" touch "$T/ran"
        end_fakes
    done
    [ ! -e "$T/ran" ]
}

@test "redirections by host name, with brackets and without a host are followed" {
    local lock slot host
    lock=$(name 1) slot=$(slot "$lock")
    for host in localhost 127.0.0.1 '[127.0.0.1]' ''; do
        fake_nodes "MOVED $slot $host:${PORT[1]}"
        run dlock -r "redis+cluster://127.0.0.1:${FAKE[0]}" --retry-for=0 "$lock" echo ran
        equals "$host $status $output" "$host 0 ran"
        end_fakes
    done
    fake_nodes "MOVED $slot ::1:1"
    fails_with 69 'node \[::1\]:1: ' dlock -r "redis+cluster://127.0.0.1:${FAKE[0]}" --retry-for=0 "$lock" true
}

@test "a Cluster node given as redis:// is refused with advice on the URL to use" {
    fails_with 78 'the server answered: MOVED .*; the server is a node of a Cluster; use redis\+cluster://' \
        dlock -r "redis://127.0.0.1:${PORT[1]}" "$(name 2)" touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C while a slot moves ends dlock at once" {
    fake_nodes 'TRYAGAIN Multiple keys request during rehashing of slot'
    local status=0 start
    dlock -r "redis+cluster://127.0.0.1:${FAKE[0]}" --connect-timeout=60s job touch "$T/ran" 3>&- 4>&- &
    wait_until 10 test -s "$T/scripts"
    start=$(now)
    kill -TERM $!
    wait $! || status=$?
    equals "$status" 143
    within 0 "$start"
}
