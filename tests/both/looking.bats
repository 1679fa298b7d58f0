#!/usr/bin/env bats
# Reading the state of locks: --status, --list, --wait-until-free, --current.
load backend

# query EXPRESSION: evaluates it for the JSON object `s` on stdin.
query() { python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

@test "--status of a free lock exits with 1" {
    run dlock --status job
    equals "$status $output" '1 job: free'
    run dlock --status --json job
    equals "$status" 1
    equals "$(query '(s["key"], s["full_key"], s["locked"], s["owner"], s["holders"], s["waiters"], s["fence"])' <<<"$output")" \
        "('job', 'dlock:job', False, None, [], 0, None)"
    run dlock --status -q job
    equals "$status $output" '1 '
    dlock job true
    run dlock --status job
    [[ $status = 1 && $output == 'job: free, last released '* ]]
}

@test "--status shows the holder, since when, until when, and whether its process lives" {
    unset LOGNAME USER
    hold_lock job -t 60s --owner=me
    run dlock --status job
    equals "$status" 0
    [[ ${lines[0]} == 'job: held, exclusive' ]]
    [[ ${lines[1]} == "  by $(awk -F: -v uid="$(id -u)" '$3 == uid { print $1; exit }' /etc/passwd)@$(hostname) (pid $HOLDER, $T/held.sh; running) since "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]" +0000, lease ends in "* ]]
    [[ ${lines[2]} == '  fence '* && $output != *'owner me'* ]]
    run dlock --status -v job
    [[ ${lines[2]} == '  owner me, fence '* ]]
    run dlock --status --json job
    equals "$(query '(s["locked"], s["owner"], s["mode"], s["slots"], s["host"], s["pid"], s["command"], s["alive"], s["detached"])' <<<"$output")" \
        "(True, 'me', 'exclusive', None, '$(hostname)', $HOLDER, '$T/held.sh', True, False)"
    equals "$(query '50 < s["ttl_remaining"] <= 60 and s["fence"] > 0 and len(s["holders"]) == 1 and s["holders"][0]["pid"] == s["pid"]' <<<"$output")" True
    [ "$BACKEND" = redis ] || return 0 # the kernel frees a file lock at once
    kill -KILL "$HOLDER"
    wait_until 10 gone "$HOLDER"
    run dlock --status job
    [[ ${lines[1]} == *"(pid $HOLDER, "*"; has ended)"* ]]
    equals "$(dlock --status --json job | query 's["alive"]')" False
}

@test "--status of several names answers for each in order; 0 only if all are held" {
    hold_lock held -t 60s
    run dlock --status held free
    equals "$status" 1
    equals "$(grep -v '^ ' <<<"$output")" $'held: held, exclusive\nfree: free'
    run dlock --status free --json held -- -x
    equals "$status" 1
    equals "$(while read -r line; do query '(s["key"], s["locked"])' <<<"$line"; done <<<"$output")" \
        $'(\'free\', False)\n(\'held\', True)\n(\'-x\', False)'
    run dlock held --status held -q
    equals "$status $output" '0 '
    fails_with 64 'the lock name is empty' dlock --status held ''
    fails_with 64 'unknown option' dlock --status held free --nosuch
    fails_with 64 '--lock-file takes no NAME' dlock --status held free --lock-file=x a b --
}

@test "reading a lock's state never acquires it, is not counted, and blocks nobody" {
    local before
    hold_lock job -t 60s
    before=$(dlock --status --json job | query '(s["counts"]["takes"], s["counts"]["conflicts"], s["counts"]["timeouts"], s["fence"])')
    equals "$before" "(1, 0, 0, $(dlock --status --json job | query 's["fence"]'))"
    dlock --list >/dev/null
    run dlock --wait-until-free -n job
    equals "$status" 75
    equals "$(dlock --status --json job | query '(s["counts"]["takes"], s["counts"]["conflicts"], s["counts"]["timeouts"], s["fence"])')" "$before"
    end_hold
    wait "$HOLDER"
    # While one process checks all the time, a dlock -n never finds the lock held.
    (until [ -e "$T/enough" ]; do dlock --status free >/dev/null || true; done) 3>&- 4>&- &
    local i
    for i in {1..150}; do dlock -n free true; done
    touch "$T/enough"
    wait $!
}

@test "the counters count acquires, conflicts, timeouts, losses, and time waited and held" {
    dlock job sleep 0.2
    hold_lock job -t 60s
    fails_with 75 '' dlock -n job true
    fails_with 75 '' dlock -n job true
    fails_with 75 '' dlock -w 0.3 job true
    dlock -w 20 job true 3>&- 4>&- &
    local waiter=$!
    wait_until 10 sees_waiters 1 job
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    rm "$T/held" "$T/held.end"
    hold_lock lost -t 60s
    steal lost
    status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    fails_with 124 '' dlock -t 1s --grace=0.8 late sleep 30
    equals "$(dlock --status --json late | query 's["counts"]["losses"]')" 1
    run dlock --status --json job
    equals "$(query '[s["counts"][n] for n in ("takes", "conflicts", "timeouts", "losses")]' <<<"$output")" '[3, 2, 1, 0]'
    equals "$(query 's["counts"]["waited"] >= 0.3 and s["counts"]["held"] >= 0.2' <<<"$output")" True
    equals "$(dlock --status --json lost | query 's["counts"]["losses"]')" 1
    [[ $(dlock --status job) == *'acquired 3, conflicts 2, timeouts 1, lost 0; waited '*', held '* ]]
}

sees_waiters() { [ "$(dlock --status --json "$2" | query 's["waiters"]')" = "$1" ]; }

@test "--status shows how many wait, without those that have left" {
    hold_lock job -t 60s
    local pids=() i
    for i in 1 2 3; do
        dlock -w 60 job true 3>&- 4>&- &
        pids+=($!)
    done
    wait_until 10 sees_waiters 3 job
    kill -KILL "${pids[0]}"
    wait_until 25 sees_waiters 2 job
    end_hold
    wait "$HOLDER"
    wait "${pids[1]}" "${pids[2]}"
    sees_waiters 0 job
}

@test "--list shows held locks as a table, by pattern and prefix; if none is held, it prints nothing" {
    run dlock --list
    equals "$status $output" '0 '
    dlock free true
    dlock --acquire -t 60s cron:b >/dev/null
    dlock --acquire -t 60s cron:a >/dev/null
    dlock --acquire -s -t 60s deploy >/dev/null
    dlock --acquire -s -t 60s deploy >/dev/null
    dlock --acquire --slots=3 -t 60s gpu >/dev/null
    dlock --acquire --prefix=dlock:s: -t 60s deeper >/dev/null
    dlock --acquire --prefix=p: -t 60s elsewhere >/dev/null
    run dlock --list
    equals "$status" 0
    [[ ${lines[0]} =~ ^NAME\ +ENDS\ IN\ +MODE\ +HOLDER$ ]]
    equals "$(awk 'NR > 1 { printf "%s ", $1 }' <<<"$output")" 'cron:a cron:b deploy gpu s:deeper '
    [[ ${lines[3]} == *shared*'2 holders, one is '* ]]
    [[ ${lines[4]} == *'slots 1/3'* ]]
    equals "$(dlock --list 'cron:*' | awk 'NR > 1 { print $1 }')" $'cron:a\ncron:b'
    equals "$(dlock --list 'cron:[a]' | awk 'NR > 1 { print $1 }')" cron:a
    equals "$(dlock --list --prefix=dlock:s: | awk 'NR > 1 { print $1 }')" deeper
    equals "$(dlock --list --prefix=p: | awk 'NR > 1 { print $1 }')" elsewhere
    equals "$(dlock --list nothing)" ''
    equals "$(dlock --list --json | query 's["key"]' 2>&1 | tail -1 | cut -c-10)" 'json.decod' # more than one line
    equals "$(dlock --list --json | while read -r line; do query '(s["key"], s["locked"])' <<<"$line"; done | wc -l)" 5
}

@test "--list escapes names that would disturb the terminal, and its table fits the terminal" {
    dlock --acquire -t 60s "$(printf 'ünïcödé-%0150d' 0)" >/dev/null
    dlock --acquire -t 60s 'pre\x1b' >/dev/null
    run timeout 20 python3 - <<'PY'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.execvp("dlock", ["dlock", "--list"])
output = b""
while True:
    try:
        part = os.read(fd, 4096)
    except OSError:
        break
    if not part:
        break
    output += part
lines = output.decode().replace("\r", "").splitlines()
assert len(lines) == 3, lines
assert all(len(line) <= 60 for line in lines), lines
assert "~" in lines[2] or "~" in lines[1], lines
PY
    equals "$status $output" '0 '
}

@test "--list with no locks says so on a terminal, and prints nothing elsewhere" {
    command -v script >/dev/null || skip 'no script(1)'
    row_holds 0 '^no locks are held.?$' script -qec 'dlock --list' /dev/null
    row_holds 0 '^no locks are held.?$' script -qec 'dlock --list --all' /dev/null
    row_holds 0 '^$' script -qec 'dlock --list --json' /dev/null
    row_holds 0 '^$' script -qec 'dlock --list -q' /dev/null
    row_holds 0 '^$' dlock --list
    dlock --acquire -t 60s job >/dev/null
    row_holds 0 '^no matching locks are held.?$' script -qec "dlock --list 'x*'" /dev/null
    run script -qec 'dlock --list' /dev/null
    [[ $status = 0 && $output == NAME*$'\njob '* && $output != *'are held'* ]]
}

@test "--wait-until-free returns when the lock is free, without acquiring it" {
    run dlock --wait-until-free job
    equals "$status $output" '0 '
    dlock --acquire --owner=me -t 60s job >/dev/null
    fails_with 75 'held by' dlock --wait-until-free -v -n job
    fails_with 75 'held by' dlock --wait-until-free -v -w 0.3 job
    run dlock --wait-until-free -w 0.3 --json job
    equals "$(query 's["error"]["code"]' <<<"$output")" LOCK_TIMEOUT
    run dlock --wait-until-free -n -E 3 job
    equals "$status" 3
    dlock --wait-until-free -w 30 job 3>&- 4>&- &
    local waiter=$!
    dlock --release --owner=me job
    wait "$waiter"
    # It returns at the end of a lease as well.
    local start
    start=$(now)
    dlock --acquire -t 1s job >/dev/null
    dlock --wait-until-free -w 20 job
    [ $(($(now) - start)) -ge 900 ]
    within 2000 "$start"
}

@test "--wait-until-free never succeeds while the lock is held, whatever is configured, nor waits for the command it runs in" {
    hold_lock job
    table <<'ROWS'
75 '' env DLOCK_CONFLICT_EXIT_CODE=0 dlock --wait-until-free -n job
4  '' env DLOCK_CONFLICT_EXIT_CODE=4 dlock --wait-until-free -n job
64 '--conflict-exit-code: with --wait-until-free, status 0 means that the lock is free' dlock --wait-until-free -n -E 0 job
64 'waiting would deadlock' timeout 10 dlock around -- dlock --wait-until-free around
75 '' timeout 10 dlock around -- dlock --wait-until-free -n around
ROWS
}

@test "--current lists the locks that it runs under, the innermost first; exit 1 if there are none" {
    run dlock --current
    equals "$status $output" '1 '
    run timeout 20 dlock -t 60s outer -- dlock -t 60s inner -- dlock --current
    equals "$status" 0
    [[ ${lines[0]} == "inner ($BACKEND), lease ends in "* && ${lines[1]} == "outer ($BACKEND), lease ends in "* ]]
    run timeout 20 dlock -t 60s --owner=me outer -- dlock --current --json
    equals "$(query '(s["key"], s["owner"], s["backend"], s["mode"])' <<<"$output")" "('outer', 'me', '$BACKEND', 'exclusive')"
    # A lock that the command itself has released is not held any more.
    run timeout 20 dlock outer -- sh -c 'dlock --release; dlock --current'
    equals "$status $output" '1 '
    DLOCK_HELD="$BACKEND stale take dlock:job" run dlock --current
    equals "$status $output" '1 '
}

@test "a store that cannot be reached is not reported as a free lock" {
    case $BACKEND in
        redis)
            run dlock --retry-for=0.3 -r "unix://$T/nosuch.sock" --status job
            equals "$status" 69
            fails_with 69 'tried [0-9]+ times? in' dlock --retry-for=0.3 -r "unix://$T/nosuch.sock" --list
            fails_with 69 '' dlock --retry-for=0.3 -r "unix://$T/nosuch.sock" --wait-until-free job
            fails_with 69 '' dlock --retry-for=0.3 -r "unix://$T/nosuch.sock" --release --owner=x job
            fails_with 69 '' dlock --retry-for=0.3 -r "unix://$T/nosuch.sock" --force-release job
            ;;
        file)
            touch "$T/folder"
            fails_with 73 'lock directory' dlock --lock-dir="$T/folder/x" --status job
            fails_with 73 'lock directory' dlock --lock-dir="$T/folder/x" --list
            ;;
    esac
    fails_with 73 'standard output' sh -c 'dlock --acquire -t 60s job >/dev/null; dlock --status job >/dev/full'
}

@test "--status and --report show slots, and --hold-at-least" {
    hold_lock job --slots=3 --hold-at-least=10m -t 20m --report="$T/report"
    run dlock --status job
    equals "$status" 0
    [[ $output == *'1 of 3 slots'* && $output == *', held for at least '*' more'* ]]
    end_hold
    wait "$HOLDER"
    equals "$(query 's["slot"]' <"$T/report")" 0
}
