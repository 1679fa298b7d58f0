#!/usr/bin/env bats
# bats file_tags=long
# Small versions of the campaign of `make torture` and the ends of leases of `make stress`, and tests that their checker finds
# what it looks for.
load ../lib/common
teardown() {
    not compgen -G "$T/case.*" # each case was judged
    common_teardown
}

torture() {
    # It ends its own children on TERM.
    timeout --kill-after=10 80 python3 "$TESTS/torture" --log "$T/log" --seed bats "$@" "$DLOCK" "$HELPERS"
}

# well STAGES: each stage has runs, and neither overlaps nor other errors.
well() {
    echo "$output"
    [ "$status" -eq 0 ]
    equals "$(grep -cE '^(file|redis): [1-9][0-9]* takes, [0-9]+ hand-overs .*, 0 overlaps, 0 wrong$' <<<"$output")" "$1"
}

@test "many short locks in all modes, while processes are killed and stores fail: no overlap, true exit statuses, nothing left" {
    run torture --takes 150 --seconds 3 --locks 10 --pace 20
    well 2
    grep -qE '^  faults drawn: .*' <<<"$output"
}

@test "floods of signals, killed groups of waiters, sandboxes and a refused MULTI are played, and all promises are kept" {
    run torture --only flood,kill-waiters,umask,hidepid,refuse-call,refuse-extras --takes 300 --seconds 6 --locks 11 --pace 20
    well 2
    equals "$(grep -cE ' of these waiting in a group: [1-9][0-9]*, .* a flood of them: [1-9]' <<<"$output")" 2
    equals "$(grep -cE '^  deeds done, of those drawn: flood [1-9].*, refuse-call [1-9].*, umask [1-9]' <<<"$output")" 2
    grep -qE '^  faults drawn: refuse-extras [1-9]' <<<"$output"
}

@test "two builds at once, one of the next format: no overlap, and older runs are refused only if a newer one was there" {
    run torture --two-formats --takes 200 --seconds 4 --locks 20 --pace 50
    well 2
    equals "$(grep -cE '^  of the next format: [1-9][0-9]* runs, and so many of the older one refused: [1-9]' <<<"$output")" 2
}

@test "the races at the end of a lease, for some seconds: no overlap, true exit statuses, nothing left" {
    run torture --plan ends --seconds 2 --locks 4 --ttl-least 500
    well 2
}

@test "runs that bypass the lock are found" {
    run torture --only none --seconds 1.5 --takes 100 --locks 4 --plant
    echo "$output"
    [ "$status" -eq 1 ]
    equals "$(grep -cE '^(file|redis): .* [1-9][0-9]* overlaps, [1-9][0-9]* wrong$' <<<"$output")" 2
}

@test "a seed plays the same faults in the same runs, and the line that replays it is printed" {
    schedule() {
        PYTHONPATH=$TESTS/torture:$TESTS/lib python3 -c 'import argparse, itertools, nemesis, sys
from stage import Fault
class Stage:
    name = "file"
    def faults(self): return [Fault(name, False, None, None) for name in "abc"]
options = argparse.Namespace(seed=sys.argv[1], only=[], pace=100)
for takes, fault, seconds, seed in itertools.islice(nemesis.schedule(Stage(), options), 20): print(takes, fault.name, seconds, seed)' "$1"
    }
    local first
    first=$(schedule 1)
    equals "$(schedule 1)" "$first"
    not equals "$(schedule 2)" "$first"
    run torture --only kill --seconds 0 --locks 1 --stage file
    grep -qxE "replay: --plan takes --stage file --seed bats --takes [0-9]+ --seconds 0 --locks 1 --pace 100 --only 'kill'" <<<"$output"
    fails_with 77 'skipped: there is no stage .paper.; there are file, redis' torture --stage paper
}

# A history in which all is well: one command ended by itself, and one was stopped.
history() {
    cat <<'H'
0.9 begin seed=1 tree=0
1.0 spawn run=1 lock=a backend=redis ttl=1000 grace=100 daemon=0
1.0 spawn run=2 lock=a backend=redis ttl=1000 grace=100 daemon=0
1.01 start fence=10 run=1 pid=1
1.5 end status=3 run=1 pid=1
1.51 exit run=1 status=3 said=
1.52 gone run=1 until=1.5
1.6 start fence=11 run=2 pid=2
2.495 term run=2 pid=2
2.496 end status=0 run=2 pid=2
2.5 exit run=2 status=124 said=the lease of 1s ends in 100ms; stopping
2.51 gone run=2 until=2.496
5.0 done
H
}

# wanted STATUS PATTERN: the history on stdin is a case for which the checker must say this.
wanted() {
    local number=1
    while [ -e "$T/case.$number" ]; do number=$((number + 1)); done
    cat >"$T/case.$number"
    printf '%s\n' "$@" >"$T/want.$number"
}

# judged STATUS PATTERN [SED COMMAND...]: a case made from that history by the commands.
judged() {
    local status_wanted=$1 pattern=$2 command text changed
    shift 2
    text=$(history)
    for command; do
        changed=$(sed "$command" <<<"$text")
        not equals "$changed" "$text" 2>/dev/null # a change that changes nothing would prove nothing
        text=$changed
    done
    wanted "$status_wanted" "$pattern" <<<"$text"
}

# One process judges all cases so far.
verdicts() {
    local said='' line number want
    run python3 "$TESTS/torture" --check "$T"/case.*
    while IFS= read -r line; do
        if [[ $line != "$T/case."*": "*" as promised" ]]; then
            said+=$line$'\n'
            continue
        fi
        number=${line#"$T/case."} number=${number%%:*}
        mapfile -t want <"$T/want.$number"
        if [ "${line##*: }" != "$( ((want[0])) && echo not || echo all) as promised" ] ||
            ! grep -qE -- "${want[1]}" <<<"$said"; then
            printf 'wanted %s, /%s/, of\n%s\ngot %s\n%s' "${want[@]}" "$(cat "$T/case.$number")" "$line" "$said" >&2
            return 1
        fi
        rm "$T/case.$number"
        said=''
    done <<<"$output"
}

@test "in a process whose clock was set back, a thread that waits until a time of that clock waits" {
    # Otherwise a thread of a Redis server waits in a busy loop, and the whole campaign is late.
    echo -3600 >"$T/wall_clock"
    LD_PRELOAD=$HELPERS/fault_wall_clock.so python3 - <<'P'
import ctypes, errno, time
libc, condition, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
until, begin = time.time() + 0.5, time.monotonic()
libc.pthread_mutex_lock(mutex)
error = libc.pthread_cond_timedwait(condition, mutex, (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9)))
passed = time.monotonic() - begin
assert (error, passed > 0.3) == (errno.ETIMEDOUT, True), (error, passed)
P
}

@test "the checker accepts a history in which all is well" {
    judged 0 '^redis: 2 takes, 0 hand-overs .*, 1 stops \(124\), 0 overlaps, 0 wrong$'
    verdicts
}

@test "the checker finds two commands that overlap" {
    local overlap='^redis: overlap: run 1 .*run 2 started'
    # As the later run has found it ...
    judged 1 "$overlap" '/^1.6 start/a 1.61 overlap with=1 run=2 pid=2'
    # ... and as only the history shows it.
    judged 1 "$overlap" 's/^1.6 start/1.4 start/'
    judged 1 "$overlap" 's/until=1.5$/until=1.7/'
    judged 1 "$overlap" '/daemon=0/s//daemon=1/' 's/until=1.5$/until=1.7/' 's/tree=0/tree=1/'
    verdicts
}

@test "the checker finds a false exit status" {
    judged 1 'told to stop, but this is not 124' 's/run=2 status=124/run=2 status=0/'
    judged 1 'stopped, but this is not 124' '/^1.5 end/d'
    judged 1 'stopped, but this is not 124' '/^2.49/d' 's/run=2 status=124/run=2 status=137/'
    judged 1 'ended 0.200 s after its lease, but this is not 124' '/^2.495/d' 's/^2.496 end/2.79 end/' \
        's/until=2.496/until=2.79/' 's/^2.5 exit run=2 status=124/2.8 exit run=2 status=0/'
    judged 1 '124, but the lease had 0.3[0-9]* s to go' 's/run=1 status=3/run=1 status=124/'
    local unanswered='/^1.01/a 1.2 removed_all backend=redis lock=LOCK before=1.19 unanswered=1'
    judged 0 '0 wrong' 's/run=1 status=3/run=1 status=124/' "${unanswered/LOCK/a}"
    judged 1 '124, but the lease had 0.3[0-9]* s to go' 's/run=1 status=3/run=1 status=124/' "${unanswered/LOCK/b}"
    judged 1 '124, but the lease had 0.3[0-9]* s to go' 's/run=1 status=3/run=1 status=124/' "${unanswered/LOCK*/a before=1.19}"
    # A request is sent when the one before has ended, unless a server may have delayed it.
    local early='s/^2.495 term/1.95 term/;s/^2.496 end/1.96 end/;s/^2.5 exit/2.0 exit/;s/until=2.496/until=1.96/'
    judged 1 '124, but the lease had 0.090 s to go' "$early"
    judged 0 '0 wrong' "$early" '/^1.01/a 1.2 fault_begin backend=redis fault=pause may_lose=0\n1.3 fault_end backend=redis fault=pause'
    early=${early//1.95/1.85} early=${early//1.96/1.86} early=${early/2.0/1.87}
    judged 0 '0 wrong' "$early" '/^1.01/a 1.2 fault_begin backend=redis fault=pause may_lose=0\n1.3 fault_end backend=redis fault=pause'
    early=${early//1.85/1.75} early=${early//1.86/1.76} early=${early/1.87/1.77}
    judged 1 '124, but the lease had 0.120 s to go' "$early" '/^1.01/a 1.2 fault_begin backend=redis fault=pause may_lose=0\n1.3 fault_end backend=redis fault=pause'
    judged 1 "the command's own status was 3" 's/run=1 status=3/run=1 status=0/'
    judged 1 'the lock was lost before the command ended' '/^1.01/a 1.2 removed run=1 before=1.19'
    judged 0 '0 wrong' '/^1.01/a 1.2 removed run=1 before=1.19 sure=0'
    judged 0 '0 wrong' '/^1.01/a 1.2 removed run=1 before=1.19' '/^1.51 exit/d' '/^1.6 start/a 2.0 exit run=1 status=3 said='
    local failover='/^1.01/a 1.FROM fault_begin backend=redis fault=failover may_lose=1\n1.TO fault_end backend=redis fault=failover'
    judged 0 '0 wrong' "${failover//FROM/21}" '/^1.01/a 1.2 removed run=1 before=1.19' 's/1.TO/1.3/'
    judged 1 'the lock was lost before the command ended' "${failover//FROM/02}" 's/1.TO/1.03/' '/^1.03/a 1.2 removed run=1 before=1.19'
    judged 1 'ended without having run anything' '/run=1 pid=1/d' '/gone run=1/d' 's/run=1 status=3/run=1 status=0/'
    verdicts
}

@test "the checker finds a script that ends in the wrong way, a dlock that hangs, and a stage that does not heal" {
    # dlock kills a script that has attached itself when its lease has ended, not before.
    local script='/spawn run=2/s/$/ how=attach/' killed='s/^2.5 exit run=2 status=124/2.5 exit run=2 status=-9/'
    judged 0 '0 wrong' "$script" "$killed"
    judged 1 'ended by signal 9, which nobody should have sent' "$script" "$killed" '/^2.49/d' 's/^2.5 exit/1.9 exit/;s/^2.51/1.91/;s/until=2.496/until=1.8/'
    judged 0 '0 wrong' "$script" "$killed" '/^2.49/d' 's/^2.5 exit/1.8 signal run=2 number=9 to=script\n1.9 exit/;s/^2.51/1.91/;s/until=2.496/until=1.8/'
    judged 1 'ended by signal 9, which nobody should have sent' 's/^\(1.0 spawn run=2.*\)/\1 how=acquire/' "$killed"
    # A script that ends by itself has the status that it reports.
    local ends='s/^2.5 exit run=2 status=124/2.5 exit run=2 status=0/;/^2.495/d'
    judged 0 '0 wrong' "$script" "$ends"
    judged 1 "the command's own status was 0" "$script" "$ends" 's/run=2 status=0 said/run=2 status=1 said/'
    judged 0 '0 wrong' "$script" "$ends" 's/run=2 status=0 said/run=2 status=69 said/' \
        '/^1.6 start/i 1.55 fault_begin backend=redis fault=kill may_lose=0\n1.56 fault_end backend=redis fault=kill'
    # A lock left by --acquire is released before its end.
    local acquired='/spawn run=1/s/$/ how=acquire/;s/^1.51 exit run=1 status=3 said=/&release=124/'
    judged 1 'the release of a lock that was not lost gives 124' "$acquired"
    judged 0 '0 wrong' "$acquired" 's/release=124/release=0/'
    judged 0 '0 wrong' "$acquired" '/^1.01/a 1.2 removed run=1 before=1.19'

    local without='/^1.6 start/,/^2.51/d;s/^5.0/1.7 exit run=2 status=124 said=\n5.0/'
    judged 1 '124 without a command, and the lease had not ended' "$without"
    judged 0 '0 wrong' "$without" 's/^1.7 exit/2.1 exit/'
    local unstarted='/^1.6 start/,/^2.51/d;s/^5.0/1.7 exit run=2 status=71 said=the guard did not start in time\n5.0/'
    judged 1 'ended without having run anything' "$unstarted"
    judged 0 '0 wrong' "$unstarted" 's/^1.7 exit/2.6 exit/'
    judged 0 '0 wrong' "$unstarted" '/spawn run=2/s/$/ deed=limit/'

    judged 1 'dlock did not end, and was killed 3.000 s after it began' 's/^2.5 exit run=2 status=124/4.0 hung run=2/'
    judged 1 'the stage does not heal: the server is away' '/^5.0/i 4.9 stuck backend=redis said=the server is away'
    verdicts
}

@test "the checker excuses the end of a very short lease, and a dlock frozen before its start, only as far as they explain" {
    # With a TTL of less than half a second, two runs may meet at its end, and only there.
    local short='s/ttl=1000/ttl=300/' stopped='/^1.5 end/,/^1.51/d;/^1.01/a 1.35 exit run=1 status=124 said=ended' meets='s/until=1.5$/until=1.34/;s/^1.6 start/1.3 start/;/^2.495/d;s/^2.496 end/1.45 end/;s/^2.5 exit run=2 status=124/1.46 exit run=2 status=0/;s/until=2.496/until=1.45/'
    judged 0 '0 overlaps, 0 wrong' "$short" "$stopped" "$meets"
    judged 1 'overlap: run 1' "$short" "$stopped" "$meets" 's/^1.3 start/1.1 start/'
    judged 1 'overlap: run 1' "$short" "$stopped" "$meets" 's/ttl=300/ttl=600/'
    # The later run acquired the lock, was frozen beyond its lease, and starts on waking.
    local late='s/daemon=0/& wait=9000/;/^2.495/d;s/^2.496 end/2.1 end/;s/until=2.496/until=2.1/;s/^2.5 exit/2.15 exit/;s/^1.0 spawn run=1/1.45 spawn run=1/;s/^1.01 start/1.55 start/;s/^1.5 end status=3/2.05 end status=0/;s/^1.51 exit run=1 status=3/2.06 exit run=1 status=0/;s/until=1.5$/until=2.05/;s/^1.6 start/2.02 start/'
    judged 1 'overlap: run 1' "$late"
    judged 0 'at once by design: 1 .frozen dlock, between its take and its start' "$late" '/^2.02 start/i 1.1 freeze run=2\n2.01 thaw run=2'
    judged 1 'overlap: run 1' "$late" '/^2.02 start/i 1.1 freeze run=2\n1.2 thaw run=2'
    verdicts
}

@test "the checker finds what is left behind, an incomplete log, and a fence that does not rise" {
    judged 1 'left behind: process_7' '/^5.0/i 4.9 left backend=redis what=process_7'
    judged 1 'dlock did not end' '/^2.5 exit/d'
    judged 1 'the command ran on for 1.510 s after its lease' 's/until=2.496/until=4.1/'
    judged 1 'the fence 9 does not rise above 10' 's/fence=11/fence=9/'
    judged 1 'the log is not complete' '/done/d'
    judged 1 'line 4 of the log makes no sense' '4s/fence=10//'
    judged 1 'the worker of run 1 failed' '/^1.01/a 1.02 broken what=fork errno=11 run=1'
    judged 1 'nothing was ever taken' '2,12d'
    verdicts
}

@test "the figures of a campaign have a row for each stage, with what was excused and what was wrong" {
    local taken_away='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 removed run=1 before=1.19\n2.2 exit run=1 status=124 said=lost'
    history | sed -e "$taken_away" -e 's/until=1.5$/until=2.1/' >"$T/log"
    PYTHONPATH=$TESTS/torture:$TESTS/lib python3 - "$T/log" "$T/figures" <<'P'
import json, sys
from checker import check
assert check(sys.argv[1], 0.5, sys.argv[2])
(table,) = json.load(open(sys.argv[2]))["tables"]
(row,) = table["rows"]
said = dict(zip(table["header"], row, strict=True))
assert [said[what] for what in ("stage", "takes", "runs of dlock", "at once, excused", "overlaps", "wrong")] == [
    "`redis`", "2", "2", "taken away 1", "0", "0"], said
P
}

@test "the checker excuses an overlap only if it is by design, and only for as long" {
    local taken_away='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 removed run=1 before=1.19\n2.2 exit run=1 status=124 said=lost'
    judged 0 'at once by design: 1 \(lock taken away\)' "$taken_away" 's/until=1.5$/until=2.1/'
    judged 1 'overlap: run 1' "$taken_away" 's/until=1.5$/until=2.1/' 's/2.2 exit/4.2 exit/;s/until=2.1$/until=4.0/' \
        's/until=2.496/until=4.1/'
    # A file lock is watched all the time, but not before the watch thread has started.
    local watches_alone='s/said=lost/said=dlock: a: cannot start the thread that watches the lease: Operation not permitted; retrying/'
    judged 1 'overlap: run 1' "$taken_away" 's/until=1.5$/until=2.1/' 's/backend=redis/backend=file/'
    judged 0 'at once by design: 1 \(lock taken away\)' "$taken_away" 's/until=1.5$/until=2.1/' 's/backend=redis/backend=file/' "$watches_alone"
    judged 0 'at once by design: 1 \(lock taken away\)' "$taken_away" 's/until=1.5$/until=2.1/' 's/backend=redis/backend=file/' \
        "${watches_alone/thread that watches the lease/guard process, which stops the command if dlock is killed}"
    judged 1 'overlap: run 1' "$taken_away" 's/until=1.5$/until=2.1/' 's/2.2 exit/4.2 exit/;s/until=2.1$/until=4.0/' \
        's/until=2.496/until=4.1/' 's/backend=redis/backend=file/' "$watches_alone"
    # The lock was removed while both were running.
    judged 1 'overlap: run 1' "$taken_away" 's/until=1.5$/until=2.1/' 's/1.2 removed run=1 before=1.19/1.7 removed run=1 before=1.69/'

    # Redis does not wait for a frozen dlock, which still holds a file lock.
    local frozen='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 freeze run=1\n2.4 thaw run=1\n2.41 exit run=1 status=124 said=ended'
    local beyond='s/until=1.5$/until=2.405/;s/^1.6 start/2.05 start/'
    judged 0 'at once by design: 1 \(frozen dlock\)' "$frozen" "$beyond"
    judged 1 'overlap: run 1' "$frozen" "$beyond" 's/backend=redis/backend=file/'
    judged 1 'overlap: run 1' "$frozen" "$beyond" 's/^2.4 thaw/1.4 thaw/'
    # Its lease had 0.4 s left when the next run started.
    judged 1 'overlap: run 1' "$frozen" 's/until=1.5$/until=2.405/'
    # The later run was frozen before its start, but not for as long as its lease.
    judged 1 'overlap: run 1' 's/until=1.5$/until=1.7/' '/^1.6 start/i 1.55 freeze run=2\n1.59 thaw run=2'

    # A killed dlock's command dies with it, its daemons do not.
    local killed='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 kill run=1\n1.21 exit run=1 status=-9 said='
    judged 0 '0 overlaps' "$killed"
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/'
    judged 0 'at once by design: 1 \(a daemon' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/tree=0/tree=1/'
    # Both were running before it was killed.
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/^1.6 start/1.1 start/'
    judged 0 'at once by design: 1 \(killed' "$killed" 's/until=1.5$/until=1.3/' 's/backend=redis/backend=file/' 's/^1.6 start/1.25 start/'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=1.3/' 's/backend=redis/backend=file/' 's/^1.6 start/1.1 start/'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=1.3/' 's/^1.6 start/1.25 start/'
    local whole='s/^1.0 spawn run=1 .*/& deed=kill-tree/'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=1.3/' 's/^1.6 start/1.25 start/' "$whole" # that was not the deed
    judged 0 'at once by design: 1 \(killed' "$killed" 's/until=1.5$/until=1.3/' 's/^1.6 start/1.25 start/' "$whole" '/^1.2 kill/i 1.19 deed run=1'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/' "$whole" '/^1.2 kill/i 1.19 deed run=1'
    # Its command was killed, and left a daemon.
    local shot='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 signal run=1 number=9 to=command\n1.21 exit run=1 status=137 said='
    judged 0 'at once by design: 1 \(a daemon' "$shot" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/'
    local told='/^1.5 end/i 1.3 signal run=1 number=15 to=dlock\n1.4 term run=1 pid=1'
    judged 0 'at once by design: 1 \(a daemon' "$told" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/'
    judged 1 'overlap: run 1' "$told" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/to=dlock/to=x/;s/number=15/number=2/'
    judged 1 'overlap: run 1' "$shot" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/tree=0/tree=1/'

    # A busy machine is an excuse only if others were woken late too, at that time.
    local late='/^1.5 end/,/^1.51/d;s/^2.\([45]\)/3.\1/;s/until=2.4/until=3.4/;/^1.6 start/i 2.03 exit run=1 status=124 said='
    judged 1 'overlap: run 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/'
    # The command of run 1 is late: its fence is lower by more than its lease, so that its lease was over when run 2 took the lock.
    local stalled='s/fence=10/fence=10000000/;s/fence=11/fence=11000000/;/^1.5 end/,/^1.51/d;s/^1.01 \(start.*\)/2.01 \1/;s/until=1.5$/until=2.02/;/^2.5 exit/a 2.6 exit run=1 status=124 said=' order='s/^1.6 start/2.0 start/'
    judged 0 'while the machine was late: 1' "$stalled" "$order"
    judged 1 'overlap: run 2' "$stalled" "$order" 's/fence=11000000/fence=10500000/'
    judged 0 'while the machine was late: 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/' \
        '/^2.01/i 2.0 late by=0.02 run=2'
    judged 1 'overlap: run 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.2/' 's/2.03 exit/2.21 exit/' \
        '/^2.01/i 2.0 late by=0.02 run=2'
    judged 1 'overlap: run 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/' '/^3.51/i 3.5 late by=0.02 run=2'
    verdicts
}

# modes MODE [MODE]: the two runs of the history have these modes and overlap.
modes() {
    history | sed "s/^\\(1.0 spawn run=1 .*\\)/\\1 mode=$1/; s/^\\(1.0 spawn run=2 .*\\)/\\1 mode=${2:-$1}/; s/^1.6 start/1.4 start/"
}

# slots FIRST SECOND: each of the two has this one of two slots.
slots() { modes slots:2 | sed "s/fence=10/& slot=$1/; s/fence=11/& slot=$2/"; }

@test "the checker knows who may overlap: sharers, and N slot holders, each with its own slot" {
    modes shared | wanted 0 '0 overlaps, 0 wrong'
    modes shared exclusive | wanted 1 '^redis: overlap: run 1'
    modes shared slots:2 | wanted 1 '^redis: overlap: run 1'
    slots 0 1 | wanted 0 '0 overlaps, 0 wrong'
    slots 0 0 | wanted 1 'overlap: the slot 0 was that of run 1'
    slots 0 2 | wanted 1 'the slot 2 of 2'
    modes slots:1 | wanted 1 'overlap: 2 holders of 1 slots'
    verdicts
}

@test "the checker finds a refusal without a reason" {
    local refused='s/^1.0 spawn run=2.*/2.0 spawn run=2 lock=a backend=redis ttl=1000 grace=100 daemon=0 wait=0/;/^1.6 start/,/^2.51/d'
    judged 1 '75, but nobody held the lock or waited for it' "$refused" '/^5.0/i 2.6 exit run=2 status=75 said='
    judged 0 '0 wrong' "$refused" 's/^2.0 spawn/1.2 spawn/' '/^1.5 end/i 1.3 exit run=2 status=75 said='
    # A lock that was moved may be back when its holder has gone, and stands until its lease ends.
    local moved='/^1.01/a 1.2 removed run=1 before=1.19 sure=0'
    judged 0 '0 wrong' "$refused" "$moved" '/^5.0/i 2.6 exit run=2 status=75 said='
    judged 1 '75, but nobody held the lock or waited for it' "$refused" "$moved" 's/ sure=0//' '/^5.0/i 2.6 exit run=2 status=75 said='
    local newer='run=2 status=78 said=stored in format 3 by a newer dlock, but dlock 1 supports formats up to 2 only'
    judged 1 '78, but no newer dlock was there' "$refused" "/^5.0/i 2.6 exit $newer"
    judged 0 '0 wrong' "$refused" "/^5.0/i 2.6 exit $newer" '/^1.0 spawn run=1/s/$/ newer=1/'
    judged 1 '78, but it is of the newest format' "$refused" "/^5.0/i 2.6 exit $newer" '/ spawn run=[12]/s/$/ newer=1/'
    # Of a quorum one server refuses commands, and the others have been used by a newer dlock.
    local minority='/^0.9/a 1.0 fault_begin backend=redis fault=refuse-commands-minority may_lose=0 may_give=69'
    judged 0 '0 wrong' "$refused" "/^5.0/i 2.6 exit ${newer/78/77}" '/^1.0 spawn run=1/s/$/ newer=1/' "$minority"
    judged 1 '77, but no newer dlock was there' "$refused" "/^5.0/i 2.6 exit ${newer/78/77}" "$minority"
    judged 1 'dlock ended without having run anything' "$refused" "/^5.0/i 2.6 exit ${newer/78/77}" '/^1.0 spawn run=1/s/$/ newer=1/'
    judged 1 '75, but it was to wait for ever' "$refused" 's/ wait=0//;s/^2.0 spawn/1.2 spawn/' '/^1.5 end/i 1.3 exit run=2 status=75 said='
    judged 1 '75 after 0.100 s, but it was to wait for 0.500 s' "$refused" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^1.5 end/i 1.3 exit run=2 status=75 said='
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 4.3 exit run=2 status=75 said='
    # A quorum may wait for a slow server.
    local quorum='s/backend=redis/backend=quorum3/'
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 2.2 exit run=2 status=75 said='
    judged 0 '0 wrong' "$refused" "$quorum" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' '/^5.0/i 2.2 exit run=2 status=75 said='
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" "$quorum" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 2.6 exit run=2 status=75 said='
    # A dlock that is frozen beside it may have begun to change the lock file.
    local file='s/backend=redis/backend=file/' other='/^1.51/s/^/1.3 freeze run=1\n2.4 thaw run=1\n/;s/^1.51 exit/2.45 exit/;s/^1.52 gone/2.46 gone/'
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" "$file" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 2.9 exit run=2 status=75 said='
    judged 0 '0 wrong' "$refused" "$file" "$other" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' '/^5.0/i 2.9 exit run=2 status=75 said='
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" "$file" "$other" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 3.9 exit run=2 status=75 said='
    # That the machine was late a second later explains nothing.
    judged 1 '75 came [0-9.]* s after the wait was over' "$refused" 's/wait=0/wait=500/;s/^2.0 spawn/1.2 spawn/' \
        '/^5.0/i 2.5 exit run=2 status=75 said=\n4.5 machine_late by=0.9'
    judged 1 'the service was said to be away, but no fault was on' "$refused" '/^5.0/i 2.6 exit run=2 status=69 said='
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.6 exit run=2 status=69 said=' \
        '/^0.9/a 1.0 fault_begin backend=redis fault=kill may_lose=0' '/^5.0/i 2.1 fault_end backend=redis fault=kill'
    judged 1 'the service was said to be away, but no fault was on' "$refused" '/^5.0/i 2.6 exit run=2 status=69 said=no answer in time'
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.1 freeze run=2\n2.5 thaw run=2\n2.6 exit run=2 status=69 said=no answer in time'
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.1 freeze run=2\n2.5 thaw run=2\n2.6 exit run=2 status=69 said=the connection timed out'
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.1 freeze run=2\n2.5 thaw run=2\n2.6 exit run=2 status=69 said=redirected 0 times until time ran out'
    judged 1 'the service was said to be away, but no fault was on' "$refused" '/^5.0/i 2.6 exit run=2 status=69 said=the TLS handshake was not answered in time'
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.1 freeze run=2\n2.5 thaw run=2\n2.6 exit run=2 status=69 said=the TLS handshake was not answered in time'
    judged 1 'the service was said to be away, but no fault was on' "$refused" '/^5.0/i 2.6 exit run=2 status=69 said=slower than the other servers'
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.1 freeze run=2\n2.5 thaw run=2\n2.6 exit run=2 status=69 said=slower than the other servers'
    judged 0 '0 wrong' "$refused" '/^5.0/i 3.1 exit run=2 status=71 said=the process that guards the lock did not start in time'
    judged 1 'ended without having run anything' "$refused" '/^5.0/i 2.8 exit run=2 status=71 said=the process that guards the lock did not start in time'
    judged 0 '0 wrong' "$refused" '/^5.0/i 3.1 exit run=2 status=71 said=the lease ended before the lock could be attached'
    judged 1 'ended without having run anything' "$refused" '/^5.0/i 2.8 exit run=2 status=71 said=the lease ended before the lock could be attached'
    judged 1 'ended by signal 15, which nobody sent' "$refused" '/^5.0/i 2.6 exit run=2 status=-15 said='
    judged 0 '0 wrong' "$refused" '/^5.0/i 2.5 signal run=2 number=15 to=dlock\n2.6 exit run=2 status=-15 said='
    verdicts
}

@test "the checker finds a waiter that is passed over or overtaken, and a lock that is not kept" {
    judged 1 'it waited for 3.* s for a lock that nobody held' '/^1.6 start/,/^2.51/d' 's/^5.0/4.9 start fence=11 run=2 pid=2\n4.95 end status=0 run=2 pid=2\n4.96 exit run=2 status=0 said=\n4.97 gone run=2 until=4.95\n5.0/'
    # Run 3 came long after run 2, and is served first.
    local third='/^1.6 start/s/fence=11/fence=12/;/^1.6 start/i 1.4 spawn run=3 lock=a backend=redis ttl=1000 grace=100 daemon=0\n1.52 start fence=11 run=3 pid=3\n1.53 end status=0 run=3 pid=3\n1.54 exit run=3 status=0 said=\n1.55 gone run=3 until=1.53'
    judged 1 'it came 0.400 s after run 2, and was served before it' "$third"
    judged 0 '0 wrong' "$third" 's/^1.4 spawn run=3/1.1 spawn run=3/'
    # A dlock with -n was refused late at that time, and so run 2 may have come to the store after run 3.
    local late_refusal='/^1.4 spawn/i 1.05 spawn run=4 lock=a backend=redis ttl=1000 grace=100 daemon=0 wait=0\n1.25 exit run=4 status=75 said='
    judged 0 '0 wrong' "$third" "$late_refusal"
    judged 1 'it came 0.400 s after run 2, and was served before it' "$third" "$late_refusal" '/run=4/s/^1.25/1.15/'
    judged 1 'it came 0.400 s after run 2, and was served before it' "$third" "$late_refusal" '/spawn run=4/s/lock=a/lock=b/;/exit run=4/i 1.1 freeze run=4\n1.2 thaw run=4'
    judged 1 'it came 0.400 s after run 2, and was served before it' "$third" "$late_refusal" '/spawn run=4/s/wait=0/wait=200/'
    judged 1 'it came 0.400 s after run 2, and was served before it' "$third" "$late_refusal" '/spawn run=4/s/lock=a/lock=b/;s/run=4 status=75/run=4 status=0/' \
        '/exit run=4/i 1.1 start fence=1 run=4 pid=4\n1.2 end status=0 run=4 pid=4\n1.25 gone run=4 until=1.2'
    # A waiter that could not be called polls, and a later one is called.
    local deaf='s/^\(1.0 spawn run=1.*\) ttl=1000/\1 ttl=20000/;s/^1.5\([ 12]\)/6.5\1/;s/until=1.5$/until=6.5/;/^1.01/a 1.03 fault_begin backend=redis fault=x may_lose=0 deafens=1\n1.04 fault_end backend=redis fault=x' late='/^1.6 start/,/^2.51/d;s/^5.0/9.5 start fence=11 run=2 pid=2\n9.55 end status=0 run=2 pid=2\n9.56 exit run=2 status=0 said=\n9.57 gone run=2 until=9.55\n9.9/'
    judged 0 '0 wrong' "$deaf" "$late"
    judged 1 'it waited for 2.9[0-9]* s for a lock that nobody held' "$deaf" "$late" 's/ deafens=1//'
    judged 1 'waited for [56].[0-9]* s for a free lock' "$deaf" "$late" 's/^9\.\([59]\)/12.\1/;s/until=9/until=12/'
    judged 1 'it was to be kept for 1.000 s, but run 2 started 0.4.* s too soon' '/spawn run=1/s/$/ hold=1000/'
    verdicts
}

@test "the checker finds a waiter that waits longer than 5 s for a free lock, whatever is frozen or killed" {
    local waits='waited for [56].[0-9]* s for a free lock, and nothing was wrong with the store'
    # Run 2 comes late, while run 3 waits and is frozen.
    local frozen='/^1.6 start/,/^2.51/d;/^5.0/i 1.1 spawn run=3 lock=a backend=redis ttl=1000 grace=100 daemon=0 wait=500\n1.2 freeze run=3\n8.2 thaw run=3\n8.3 exit run=3 status=75 said='
    local late='s/^5.0/8.0 start fence=11 run=2 pid=2\n8.1 end status=0 run=2 pid=2\n8.11 exit run=2 status=0 said=\n8.12 gone run=2 until=8.1\n9.0/'
    judged 1 "$waits" "$frozen" "$late"
    # It may have been early enough, or the frozen one may have held the lock for its TTL.
    judged 0 '0 wrong' "$frozen" "$late" 's/^8.0/6.0/;s/^8.1/6.1/;s/until=8.1/until=6.1/'
    judged 0 '0 wrong' "$frozen" "$late" 's/^8.0/7.6/;s/^8.1/7.7/;s/until=8.1/until=7.7/' 's/^1.2 freeze/1.6 freeze/'
    # A frozen or killed holder in Redis; a frozen one of a file lock holds it until it ends.
    local holder='/^1.5 end/,/^1.51/d;/^1.6 start/,/^2.51/d;/^1.01/a 1.2 freeze run=1\n8.2 thaw run=1\n8.3 exit run=1 status=124 said=ended'
    judged 1 "$waits" "$holder" "$late"
    judged 0 '0 wrong' "$holder" "$late" 's/^8\.\([01]\)/9.\1/;s/^9.0 done/9.9 done/;s/until=8.1/until=9.1/' 's/backend=redis/backend=file/'
    judged 1 "$waits" "$holder" "$late" 's/1.2 freeze run=1/1.2 kill run=1/;/^8.2 thaw/d;s/^8.3 exit run=1 status=124 said=ended/1.3 exit run=1 status=-9 said=/'
    # The store has a fault, or its clock was set back: earlier locks last longer.
    local fault='/^1.01/a 1.4 fault_begin backend=redis fault=clock-back may_lose=0 back=3\n1.5 fault_end backend=redis fault=clock-back'
    judged 0 '0 wrong' "$holder" "$late" "$fault"
    judged 0 '0 wrong' "$frozen" "$late" 's/^8.0 start/4.0 fault_begin backend=redis fault=pause may_lose=0\n4.1 fault_end backend=redis fault=pause\n&/'
    verdicts
}

@test "the checker distinguishes a file lock held by a frozen dlock from a free one" {
    # Run 3 has acquired the lock but not started its command; run 2 comes after it.
    local frozen='/^1.6 start/,/^2.51/d;s/^5.0/1.1 spawn run=3 lock=a backend=redis ttl=1000 grace=100 daemon=0\n1.6 freeze run=3 group=3\n8.2 thaw run=3 held=1\n8.21 start fence=11 run=3 pid=3\n8.22 end status=0 run=3 pid=3\n8.23 exit run=3 status=0 said=\n8.24 gone run=3 until=8.22\n8.3 start fence=12 run=2 pid=2\n8.4 end status=0 run=2 pid=2\n8.41 exit run=2 status=0 said=\n8.42 gone run=2 until=8.4\n9.0/'
    judged 0 'frozen: 1, of these waiting in a group: 1' "$frozen" 's/backend=redis/backend=file/'
    judged 1 'waited for 5.[0-9]* s for a free lock, and nothing was wrong with the store' "$frozen" 's/backend=redis/backend=file/' 's/ held=1/ held=0/'
    verdicts
}

@test "the checker accepts that a flood of signals ends a command, but not that it delays a lease's end" {
    local flood='/^1.6 start/a 1.7 signal run=2 number=34 to=dlock flood=1.5' dies='/^2.49/d;s/^2.5 exit run=2 status=124/1.8 exit run=2 status=-34/;s/^2.51/1.81/;s/until=2.496/until=1.75/'
    judged 0 'sent signals: 1, a flood of them: 1' "$flood"
    judged 0 '0 wrong' "$flood" "$dies"
    judged 1 'but this is not 124' "$flood" "$dies" 's/status=-34/status=163/'
    judged 1 'the command ran on for 1.[0-9]* s after its lease' "$flood" 's/^2.5 exit/3.9 exit/;s/^2.496 end/3.8 end/;s/^2.495 term/3.79 term/;s/^2.51/3.91/;s/until=2.496/until=3.8/'
    verdicts
}

@test "the checker finds what outlives a killed dlock, unless the command was just starting or had ended" {
    local killed='/^1.5 end/,/^1.51/d;/^1.01/a 1.55 kill run=1\n1.56 exit run=1 status=-9 said=' outlives='a process of the command was there 0.550 s after its dlock was killed'
    judged 1 "$outlives" "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/'
    judged 0 '0 wrong' "$killed" 's/until=1.5$/until=1.58/' 's/daemon=0/daemon=1/'
    judged 0 '0 wrong' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/1.55 kill/1.4 kill/'
    judged 0 '0 wrong' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' '/^1.55/i 1.5 end status=3 run=1 pid=1'
    verdicts
}

@test "the checker finds a second run within --once-per, and a skip without a success" {
    local once='/daemon=0$/s/$/ once=1000/' success='s/end status=3/end status=0/;s/run=1 status=3/run=1 status=0/'
    judged 1 'run 1, which was a success, began 0.600 s before, and it is to run once in 1.000 s' "$once" "$success"
    judged 0 '0 wrong' "$once"
    judged 0 '0 wrong' "$once" "$success" 's/once=1000/once=500/'
    judged 0 '0 wrong' "$once" "$success" '/^1.6 start/i 1.52 fault_begin backend=redis fault=flushall may_lose=1\n1.53 fault_end backend=redis fault=flushall'
    judged 0 '0 wrong' "$once" "$success" '/spawn run=2/s/$/ deed=clock/'
    local skipped='/spawn run=2/s/$/ once=600/;s/^1.0 \(spawn run=2\)/1.55 \1/;/^1.6 start/,/^2.51/d;/^5.0/i 1.58 exit run=2 status=75 said='
    judged 0 '0 wrong' "$skipped" "$success"
    judged 1 '75, but no run was a success in the 0.600 s before' "$skipped"
    judged 1 '75, but no run was a success in the 0.600 s before' "$skipped" "$success" 's/^1.55/2.55/;s/^1.58/2.58/'
    verdicts
}

@test "the checker finds a run that starts during a pause, and knows when a pause ends" {
    local pause='/^1.01/a 1.2 paused backend=redis lock=a before=1.19 ms=3000 ok=1'
    judged 1 'it started 0.400 s after the lock was paused, and 2.590 s before the end of the pause' "$pause"
    judged 0 '0 wrong' "$pause" 's/ok=1/ok=0/'
    judged 0 '0 wrong' "$pause" 's/ms=3000/ms=300/'
    judged 0 '0 wrong' "$pause" 's/lock=a before/lock=b before/'
    judged 0 '0 wrong' "$pause" '/^1.2 paused/a 1.4 paused backend=redis lock=a before=1.39 ms=0 ok=1'
    # It may have held the lock by then, or the store has lost the pause.
    judged 0 '0 wrong' "$pause" 's/^1.2 paused/1.45 paused/;s/before=1.19/before=1.44/'
    judged 0 '0 wrong' "$pause" '/^1.2 paused/a 1.4 fault_begin backend=redis fault=flushall may_lose=1\n1.41 fault_end backend=redis fault=flushall'
    # A paused lock is not a free one; nobody waits for longer than that, and -n is refused.
    local waits='/^1.6 start/,/^2.51/d;s/^5.0/8.0 start fence=11 run=2 pid=2\n8.1 end status=0 run=2 pid=2\n8.11 exit run=2 status=0 said=\n8.12 gone run=2 until=8.1\n9.0/'
    judged 0 '0 wrong' "$waits" '/^1.01/a 1.3 paused backend=redis lock=a before=1.29 ms=6500 ok=1'
    judged 1 'waited for [56].[0-9]* s for a free lock' "$waits" '/^1.01/a 1.3 paused backend=redis lock=a before=1.29 ms=900 ok=1'
    local refused='s/^1.0 spawn run=2.*/2.0 spawn run=2 lock=a backend=redis ttl=1000 grace=100 daemon=0 wait=0/;/^1.6 start/,/^2.51/d;/^5.0/i 2.1 exit run=2 status=75 said='
    judged 0 '0 wrong' "$refused" '/^1.01/a 1.9 paused backend=redis lock=a before=1.89 ms=1000 ok=1'
    judged 1 '75, but nobody held' "$refused" '/^1.01/a 1.3 paused backend=redis lock=a before=1.29 ms=200 ok=1'
    verdicts
}

@test "the checker finds a lock that remembers runs other than those that happened" {
    local pids='s/exit run=1 status=[03]/& dlock=11/;s/exit run=2 status=124/& dlock=12/'
    local told='/^5.0/i 4.9 memory backend=redis lock=a last=12 outcome=stopped status=-1 success=0 failures=2 history=1.6:0.896:stopped:-1;1.0:0.495:exited:3'
    local success='s/end status=3/end status=0/;s/run=1 status=3/run=1 status=0/;s/exited:3/exited:0 typical=0.495:0.495:0.495:1/'
    judged 0 'memories of locks judged: 1' "$pids" "$told"
    judged 1 'run 1 .*its lock does not have it in its history, of 1 runs' "$pids" "$told" 's/;1.0:0.495:exited:3//'
    judged 1 'run 2 .*its lock does not have it in its history, of 0 runs' "$pids" "$told" 's/history=.*/history=none/'
    judged 1 'run 1 .*not have it in its history' "$pids" "$told" 's/0.495:exited:3/0.495:exited:4/'
    judged 1 'run 1 .*not have it in its history' "$pids" "$told" 's/0.495:exited/0.4:exited/'
    judged 1 'run 1 .*not have it in its history' "$pids" "$told" 's/0.495:exited/0.6:exited/'
    judged 1 'run 1 .*not have it in its history' "$pids" "$told" 's/;1.0:/;1.1:/'
    judged 1 'its lock has the run of 1.000 before that of 1.600 in its history' "$pids" "$told" 's/history=.*/history=1.0:0.495:exited:3;1.6:0.896:stopped:-1/'
    judged 0 '0 wrong' "$pids" "$told" 's/;1.0:0.495:exited:3//' 's/=redis/=quorum3/' # the server that was asked was down
    judged 1 'run 2 .*it is the last run, but the lock remembers process 11' "$pids" "$told" 's/last=12/last=11/'
    local ahead='s/^1.0 spawn run=1 .*/& deed=clock/;s/^1.6 start/2.0 start/;s/^1.01 start/1.001 start/;s/^1.5 end/1.02 end/;s/^1.51/1.03/;s/^1.52/1.04/;s/until=1.5$/until=1.02/;s/^2.495 term/2.895 term/;s/^2.496 end/2.896 end/;s/^2.5 exit/2.9 exit/;s/^2.51/2.91/;s/until=2.496/until=2.896/'
    judged 1 'run 2 .*it is the last run, but the lock remembers process 11' "$pids" "$told" 's/last=12/last=11/' "$ahead"
    judged 0 '0 wrong' "$pids" "$told" 's/last=12/last=11/' "$ahead" 's/=redis/=quorum3/' # servers that have missed some are asked, too
    local behind='s/^1.0 spawn run=2 .*/& deed=clock:spawn:0.000:-5/'
    judged 1 'run 1 .*it is the last run, but the lock remembers process 10' "$pids" "$told" 's/last=12/last=10/' "$behind"
    judged 0 '0 wrong' "$pids" "$told" 's/last=12/last=10/' "$behind" 's/=redis/=quorum3/' # run 2 may have replaced run 1 on the others
    judged 1 'run 1 .*it is the last run, but the lock remembers process 10' "$pids" "$told" 's/last=12/last=10/' "${behind/-5/5}" 's/=redis/=quorum3/'
    judged 1 'remembers that it ended as exited 0' "$pids" "$told" 's/outcome=stopped status=-1/outcome=exited status=0/'
    judged 1 'remembers 1 failures in a row, and there were 2 to 2' "$pids" "$told" 's/failures=2/failures=1/'
    judged 1 'remembers 3 failures in a row, and there were 2 to 2' "$pids" "$told" 's/failures=2/failures=3/'
    judged 0 '0 wrong' "$pids" "$told" "$success" 's/success=0 failures=2/success=11 failures=1/'
    judged 1 'run 1 .*it is the last success, but the lock remembers process 0' "$pids" "$told" "$success" 's/failures=2/failures=1/'
    judged 1 'run 1 .*it is the last success, but the lock remembers process 0' "$pids" "$told" "$success" 's/last=12/last=11/' "$behind"
    judged 1 'run 1 .*it is the last success, but the lock remembers process 0' "$pids" "$told" "$success" 's/last=12/last=11/' "$behind" 's/=redis/=quorum3/'
    judged 0 '0 wrong' "$pids" "$told" "$success" 's/last=12/last=11/' "$behind" 's/=redis/=quorum3/' \
        '/term/d;s/status=124 dlock=12.*/status=0 dlock=12 said=/' # run 2 may have replaced run 1, because it was a success, too
    judged 1 'remembers 2 failures in a row, and there were 1 to 1' "$pids" "$told" "$success" 's/success=0/success=11/'
    # A killed run is lost, and a fault may take all of it away.
    local killed='/^2.495/d;/^2.496/d;s/^2.5 exit run=2 status=124/2.3 kill run=2\n2.5 exit run=2 status=-9/;s/until=2.496/until=2.4/'
    judged 1 'remembers that it ended as stopped -1' "$pids" "$told" "$killed"
    judged 0 '0 wrong' "$pids" "$told" "$killed" 's/outcome=stopped/outcome=lost/;s/0.896:stopped/-1.000:lost/'
    judged 1 'run 2 .*not have it in its history' "$pids" "$told" "$killed" 's/outcome=stopped/outcome=lost/'
    judged 0 '0 wrong' "$pids" "$told" 's/last=12 outcome=stopped status=-1 success=0 failures=2/last=0 outcome=none status=-1 success=0 failures=0/' \
        '/^5.0/i 4.0 fault_begin backend=redis fault=flushall may_lose=1\n4.1 fault_end backend=redis fault=flushall'
    judged 1 'it is the last run' "$pids" "$told" 's/last=12 outcome=stopped status=-1 success=0 failures=2/last=0 outcome=none status=-1 success=0 failures=0/' \
        '/^5.0/i 4.0 fault_begin backend=redis fault=pause may_lose=0\n4.1 fault_end backend=redis fault=pause'
    verdicts
}

@test "the checker finds run times that no run took, and an end or a turn that is beyond them" {
    local success='s/end status=3/end status=0/;s/exit run=1 status=3/exit run=1 status=0/'
    local told=$success';/^2.495/i 2.0 told run=2 before=1.9 typical=0.5:0.51:0.51:6 end=2.3 wait=0.8'
    judged 0 'estimates of run times: 1' "$told"
    judged 1 'its runs are said to take 0.5, 0.51, and 0.6 s at most' "$told" 's/:0.51:6/:0.6:6/'
    judged 1 'its runs are said to take 0.52, 0.51, and 0.51 s at most' "$told" 's/=0.5:/=0.52:/'
    judged 1 'it is said to end at 3.700, and no run took longer than 0.51 s' "$told" 's/end=2.3/end=3.7/'
    judged 1 'it is said to end at 0.500' "$told" 's/end=2.3/end=0.5/'
    judged 0 '0 wrong' "$told" 's/end=2.3/end=0.5/' '/spawn run=2/s/$/ deed=clock/' # it may be the holder's
    judged 1 'the next one is said to wait for 9 s behind 1 runs' "$told" 's/wait=0.8/wait=9/'
    # One that is killed before its turn has waited, too.
    judged 1 'the next one is said to wait for 1.5 s behind 1 runs' "$told" 's/wait=0.8/wait=1.5/'
    judged 0 '0 wrong' "$told" 's/wait=0.8/wait=1.5/' \
        '/spawn run=2/a 1.0 spawn run=3 lock=a backend=redis ttl=1000 grace=100 daemon=0' '/^2.495/i 2.4 kill run=3\n2.4 exit run=3 status=-9'
    judged 1 'an end is expected, and nothing is known of its runs' "$told" 's/typical=[^ ]* //'
    local memory=$success';s/exit run=1 status=0/& dlock=11/;s/exit run=2 status=124/& dlock=12/' row='/^5.0/i 4.9 memory backend=redis lock=a last=12 outcome=stopped status=-1 success=11 failures=1 history=1.6:0.896:stopped:-1;1.0:0.495:exited:0 typical=0.495:0.495:0.495:1'
    judged 0 '0 wrong' "$memory" "$row"
    judged 1 'what is typical of its history is said to be .*median=0.3' "$memory" "$row" 's/typical=0.495/typical=0.3/'
    judged 1 'what is typical of its history is said to be None' "$memory" "$row" 's/ typical=.*//'
    verdicts
}

@test "the checker excuses what a fault explains, for as long as it does" {
    local lost='/^1.5 end/,/^1.51/d;/^1.01/a 2.2 exit run=1 status=124 said=lost' until='s/until=1.5$/until=2.1/'
    local fault='/^1.01/i 1.005 fault_begin backend=redis fault=flushall may_lose=1\n1.006 fault_end backend=redis fault=flushall'
    judged 1 'overlap: run 1' "$lost" "$until"
    judged 0 'at once by design: 1 \(lost to flushall\)' "$lost" "$until" "$fault"
    judged 1 'overlap: run 1' "$lost" "$until" "$fault" 's/may_lose=1/may_lose=0/'
    # It was removed when both were running, or for other locks; and a failure is reported.
    judged 1 'overlap: run 1' "$lost" "$until" "$fault" 's/^1.00\([56]\) /1.70\1 /'
    judged 1 'overlap: run 1' "$lost" "$until" "$fault" '/^1.006/i 1.006 fault_only backend=redis fault=flushall locks=b,c'
    judged 0 'lost to flushall' "$lost" "$until" "$fault" '/^1.006/i 1.006 fault_only backend=redis fault=flushall locks=a,c'
    judged 0 'could not be played: flushall .why. 1' "$lost" "$until" "$fault" '/^1.006/i 1.006 fault_fails backend=redis fault=flushall said=why'
    # After a table of fences is lost, the wall clock counts, even if it is wrong; but not for ever.
    local fence='s/daemon=0/& deed=clock/;s/fence=11/fence=9/' gone='/^1.01/i 1.005 fault_begin backend=redis fault=x may_lose=0 forgets=1\n1.006 fault_end backend=redis fault=x'
    judged 0 '0 wrong' "$fence" "$gone"
    judged 1 'the fence 9 does not rise above 10' "$fence" "$gone" 's/deed=clock/deed=umask/'
    judged 1 'the fence 9 does not rise above 10' "$fence" '/^0.9/a 0.91 fault_begin backend=redis fault=x may_lose=0 forgets=1\n0.92 fault_end backend=redis fault=x' \
        '2,$s/^\([1-9]\)\.\([0-9]*\) /1\1.\2 /;s/until=/until=1/'
    judged 1 'overlap: run 1' "$lost" 's/until=1.5$/until=5.1/' "$fault" '/run=2 .*status=124/s/^2.5/5.3/;s/2.2 exit/5.4/' 's/until=2.496/until=5.2/'
    verdicts
}

@test "a fault that fails unexpectedly is reported, and the next one is played; scripts that acquire end before their leases" {
    PYTHONPATH=$TESTS/torture:$TESTS/lib python3 - <<'P'
import argparse, queue, random, types
import nemesis, plans

class Stage:
    name, asked, surely_removed, removal_resumes = "s", [], False, False
    def remove(self, lock):
        self.asked.append(lock)
        if lock == "gone":
            raise ConnectionResetError
        return next(iter(())) if lock == "first" else ["dlock:shared:1", "run-7"]

said = queue.SimpleQueue()
deeds = nemesis.Deeds(types.SimpleNamespace(log=lambda event, **fields: said.put((event, fields)), at=None, now=lambda: 1.0,
                                           ending=False))
for lock in ("first", "second", "gone"):
    deeds.removals.put(types.SimpleNamespace(contender=types.SimpleNamespace(stage=Stage(), lock=lock),
                                             plan=types.SimpleNamespace(deed=plans.Deed("remove", "start", 0, 0))))
assert said.get(timeout=10)[0] == "stuck"
assert said.get(timeout=10)[0] == "removed_all"
assert said.get(timeout=10)[1]["run"] == "7"
assert said.get(timeout=10)[1]["unanswered"] == 1

rng, options, stage = random.Random(1), argparse.Namespace(only=[]), types.SimpleNamespace(name="redis", namespaces=False)
drawn = [plan for plan in (plans.takes(rng, options, stage, "scripts") for _ in range(3000)) if plan.how == "acquire"]
assert len(drawn) > 500
assert all(float(plan.words[0][3:]) < plan.ttl / 2 for plan in drawn)
drawn = [plan for plan in (plans.takes(rng, options, stage, "scripts") for _ in range(100)) if plan.how == "attach"]
assert drawn and all("--attach=$$ " in plan.argv("dlock", [], "a", "b", ["true"])[2] for plan in drawn)
P
}

@test "a fault for a group of waiters hits the head of the queue or a random part of it, for the same time, and one group at once" {
    PYTHONPATH=$TESTS/torture:$TESTS/lib python3 - <<'P'
import random, types
import nemesis, plans

def live(number, lock="a", how="run"):
    contender = types.SimpleNamespace(stage="s", lock=lock, rng=random.Random(int(number)))
    plan = types.SimpleNamespace(how=how)
    return types.SimpleNamespace(number=number, plan=plan, contender=contender, frozen=False)

done = []
class Deeds(nemesis.Deeds):
    def kill(self, live, **more): done.append((int(live.number), None, more["group"]))
    def freeze(self, live, seconds=None, **more): done.append((int(live.number), seconds, more["group"]))

def play(what, number, seed, waiting):
    """The numbers of those it is done to, for how long, and of how large a group they are told to be."""
    done.clear()
    holder = live(str(seed))
    campaign = types.SimpleNamespace(log=None, at=None, now=lambda: 1.0, live={one.number: one for one in [holder] + waiting},
                                     told={one.number: one for one in waiting}, quiet={})
    holder.plan.deed = plans.Deed(what, "start", 0, number)
    Deeds(campaign).do_to_waiters(holder)
    quiet.update(campaign.quiet.values())
    return [one[0] for one in done], {one[1] for one in done}, {one[2] for one in done}

def queue(count): return [live(str(100 + i)) for i in range(count)]
others, heads, quiet = [live("90", "b"), live("91", how="attach")], 0, set()
for seed in range(50):
    numbers, times, sizes = play("freeze-waiters", 5, seed, others + queue(12))
    assert len(set(numbers)) == 5 and min(numbers) >= 100 and len(times) == 1 and sizes == {5}, (numbers, times, sizes)
    heads += numbers == [100, 101, 102, 103, 104]
assert 20 < heads < 50, heads
assert quiet == {1.0 + seconds for seconds in nemesis.GROUP_FROZEN}, quiet
assert play("kill-waiters", 10, 1, others + queue(4))[2] == {4}
assert play("kill-waiters", 3, 1, others + queue(2))[0] == []
waiting = queue(12)
waiting[7].frozen = True
assert play("freeze-waiters", 3, 1, waiting)[0] == []
P
}

@test "what a fault refuses or renames is there again when the fault is over, and when its stage is healed" {
    TORTURE_WALL_CLOCK=$HELPERS/fault_wall_clock.so PYTHONPATH=$TESTS/torture:$TESTS/lib python3 - "$T" <<'P'
import random, sys
import servers, stages_redis

class Only:
    """Draws that one, or the first."""
    def __init__(self, one): self.one = one
    def choice(self, _some): return self.one
    def sample(self, some, _count): return [some[0]]

def served(words):
    try:
        return stage.ask(*words) is not None
    except RuntimeError as error:
        return "NOSCRIPT" in str(error)

stage = stages_redis.RedisStage(sys.argv[1], random)
try:
    faults = {fault.name: fault for fault in stage.faults()}
    evalsha = ("EVALSHA", "0" * 40, 0)
    for name, one, words in (("refuse extras", 1, ("MULTI",)), ("refuse commands", 1, evalsha),
                             ("rename command", "EVALSHA", evalsha), ("replica", 1, ("SET", "a", "b"))):
        for over in (faults[name].end, stage.heal) if name != "rename command" else (stage.heal,):
            assert served(words), name
            faults[name].begin(Only(one))
            servers.wait_until(lambda: stage.ask("PING") == "PONG")
            assert not served(words), name
            over()
        assert served(words), name
    # What is moved comes back, over whatever has its name by then.
    stage.ask("SET", "dlock:a", "run-1")
    assert stage.move("a", 0) == ["run-1"] and stage.ask("GET", "dlock:a") == "run-1"
    assert stage.move("b", 0) is None
finally:
    stage.close()
P
}

@test "a fault lasts until its stage is healed" {
    PYTHONPATH=$TESTS/torture:$TESTS/lib python3 - <<'P'
import threading, types
import nemesis

class Stage:
    name, may_give, sets_back, fence_survives, heals = "s", {}, {}, True, iter((False, True))
    def heal(self):
        if not next(self.heals):
            raise RuntimeError("away")

said = []
faults = nemesis.Faults.__new__(nemesis.Faults)
faults.stage, faults.unhealed, faults.missing, faults.over = Stage(), [], {"a", "b", "c"}, threading.Event()
faults.campaign = types.SimpleNamespace(log=lambda event, **fields: said.append((event, fields.get("fault"))))
for name, missing in (("a", {"a", "b", "c"}), ("b", {"c"})):
    faults.play(0, types.SimpleNamespace(name=name, may_lose=False, begin=lambda rng: None, end=lambda: None), 0, 1)
    assert faults.missing == missing, faults.missing
assert said == [("fault_begin", "a"), ("stuck", None), ("fault_begin", "b"), ("fault_end", "a"), ("fault_end", "b")], said
P
}
