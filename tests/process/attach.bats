#!/usr/bin/env bats
# --attach: which process is the caller, and which process the lock is for. The store plays no part in this.
load ../both/backend
load ../lib/attach

# bats test_tags=slow
@test "--attach works in every shell: with set -e, in a substitution, a pipeline and a condition" {
    local shell line
    for shell in sh bash dash zsh; do
        shell=$(command -v "$shell") || continue
        for line in 'set -eu; dlock --attach job' 'dlock --attach job || exit' 'x=$(dlock --attach job) || exit; [ -z "$x" ]' \
            'if ! dlock --attach job; then exit 1; fi' 'dlock --attach job | cat' 'dlock --attach job 2>&1 | cat' \
            'x=$(dlock -v --attach=$$ job 2>&1) || exit' 'x=`dlock --attach=$$ job`' 'eval "dlock --attach job"'; do
            echo "$shell: $line"
            script job "$shell" <<<"$line; $stay"
            start job
            is_locked job
            end_script
            released
        done
    done
}

@test "a subshell or sh -c that attaches holds the lock for as long as it lives" {
    script job <<<"(dlock --attach job && $stay); touch \$T/next; while [ ! -e \$T/last ]; do sleep 0.01; done"
    start job
    is_locked job
    touch "$T/end"
    wait_until 10 test -e "$T/next"
    released
    touch "$T/last"
    wait "$SCRIPT"
    run timeout 20 sh -c 'dlock --attach job && dlock -n job echo inside; dlock -n job true'
    equals "$status $output" '0 inside'
    released
}

@test "--attach works without a terminal, as under cron, and in a CI job whose process group is killed" {
    script job <<<"dlock --attach job || exit; $stay"
    env -i PATH="$PATH" T="$T" DLOCK_LOCK_DIR="$T/locks" ${DLOCK_REDIS:+DLOCK_REDIS="$DLOCK_REDIS"} \
        ${DLOCK_BACKEND:+DLOCK_BACKEND="$DLOCK_BACKEND"} setsid --wait "$T/job" </dev/null >/dev/null 2>"$T/err" 3>&- 4>&- &
    wait_until 10 test -e "$T/here"
    is_locked job
    touch "$T/end"
    wait $!
    released
    equals "$(cat "$T/err")" ''
    rm "$T/here" "$T/end"
    script job /bin/bash <<<"set -eo pipefail; dlock --attach job | cat; ($stay) | cat"
    setsid "$T/job" >/dev/null 2>&1 3>&- 4>&- &
    wait_until 10 test -e "$T/here"
    is_locked job
    kill -KILL -- "-$!"
    wait $! || true
    released
}

@test "the whole process group or cgroup is ended: the guard stays until the script has ended" {
    local number
    script job <<<"trap '' TERM; dlock --attach job || exit; $stay"
    start job
    for number in TERM INT HUP QUIT USR1 TSTP; do
        kill "-$number" "$(guards)"
    done
    fails_with 75 '' dlock -n -w 300ms job true
    is_locked job
    end_script
    released
}

@test "an invalid target, or a kernel without pidfds, is reported before anything is locked" {
    sleep 0 3>&- 4>&- &
    local dead=$!
    wait "$dead"
    fails_with 64 "there is no process $dead; nothing is locked" dlock "--attach=$dead" job
    fails_with 64 'the process to attach to is dlock itself' sh -c 'exec dlock --attach=$$ job'
    python3 -c 'import os, time
pid = os.fork()
if pid == 0: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
open(os.environ["T"] + "/zombie", "w").write(str(pid))
time.sleep(60)' 3>&- 4>&- &
    echo $! >"$T/python.pid"
    wait_until 10 test -s "$T/zombie"
    fails_with 64 'has already ended .it is a zombie.' dlock "--attach=$(cat "$T/zombie")" job
    local thread
    thread=$(for task in /proc/[0-9]*/task/*; do [ "${task##*/}" = "$(cut -d/ -f3 <<<"$task")" ] || { echo "${task##*/}"; break; }; done)
    [ -z "$thread" ] || fails_with 64 "$thread is a thread, not a process" dlock "--attach=$thread" job
    run dlock --json "--attach=$dead" job
    [[ $output == '{"error":{"code":"INVALID_ARGUMENT",'* ]]
    is_clean job
    is_unguarded
    fails_with 71 'cannot watch process [0-9]+: pidfd_open\(2\) \(Linux 5.3\) is not available: .*; nothing is locked' \
        env LD_PRELOAD="$HELPERS/fault_pidfd_open.so" dlock --attach job
    released
}

@test "a sandbox that refuses pidfd_send_signal(2): the script is still stopped when the lease ends" {
    local status=0
    script job <<<"FAULT_ERRNO=1 LD_PRELOAD=$HELPERS/fault_pidfd_send_signal.so dlock --attach -t 2s job || exit; $stay"
    start job
    wait_until 10 not lives "$SCRIPT"
    wait "$SCRIPT" || status=$?
    equals "$status" 143
    released
}

@test "a process of another user, which dlock could not stop, is refused: exit 77" {
    [ "$(id -u)" -eq 0 ] || skip 'not root'
    as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent "$@"; }
    as_nobody "$DLOCK" --version >/dev/null 2>&1 || skip 'no one cannot run this dlock'
    fails_with 77 'belongs to another user' as_nobody "$DLOCK" "--attach=$$" job
    fails_with 77 'belongs to another user' as_nobody "$DLOCK" --attach=1 job
    is_clean job
}

@test "a caller that has already ended is not mistaken for pid 1" {
    setsid sh -c '(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; dlock --attach job; echo $? >"$T/status.tmp"; mv "$T/status.tmp" "$T/status") 2>"$T/err" & exit' 3>&- 4>&-
    wait_until 10 test -e "$T/status"
    # The subshell is the caller here; it has lost its parent.
    equals "$(cat "$T/status")" 0
    rm "$T/status"
    setsid sh -c '(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; exec dlock --attach job) 2>"$T/err" & exit' 3>&- 4>&-
    wait_until 10 test -s "$T/err"
    grep -q 'the process that called dlock has ended, or is pid 1 (use --attach=1 for pid 1); nothing is locked' "$T/err"
    released
}

@test "a caller that ends while dlock attaches: nothing is locked, and no other process is attached to" {
    local call
    for call in 1 2; do
        rm -f "$T/err" "$T/status"
        FAULT_CALL=$call sh -c 'LD_PRELOAD=$HELPERS/fault_caller_ends.so dlock --attach job 2>"$T/err"; exit' 3>&- 4>&- || true
        wait_until 10 test -s "$T/err"
        grep -qE '(there is no process [0-9]+|the process that called dlock has ended.*|\(it is a zombie\)); nothing is locked' "$T/err"
        is_clean job
        is_unguarded
    done
}

@test "a process that adopted dlock is not its caller: a process of another session is attached to only by its number" {
    # As if the shell that called had ended and dlock had been adopted by a service manager.
    fails_with 64 'the process that called dlock has ended, or belongs to another session \(use --attach=PID to name a process\); nothing is locked' \
        setsid -w dlock --attach job
    is_clean job
    sleep 600 3>&- 4>&- &
    local target=$!
    setsid -w dlock --attach="$target" job
    kill -KILL "$target"
    wait_until 10 is_clean job
}
