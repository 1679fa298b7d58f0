#!/usr/bin/env bats
# The stress of `make stress`, in small, and whether it would find what it looks for.
load common
setup() { common_setup; }
teardown() { common_teardown; }

stress() {
    # Ends its own children on TERM.
    timeout --kill-after=10 80 python3 "$TESTS/stress.py" --log "$T/log" "$@"
}

@test "the races at the end of a lease, for some seconds: no overlap, each exit status true, nothing left" {
    run stress --seconds 5 --locks 4 --ttl-least 500 --seed bats "$DLOCK" "$HELPERS/stress_worker"
    echo "$output"
    [ "$status" -eq 0 ]
    equals "$(grep -cE '^(file|redis): [1-9][0-9]* takes, [1-9][0-9]* hand-overs .*, 0 overlaps, 0 wrong$' <<<"$output")" 2
}

@test "takes that go past the lock are found by the stress" {
    run stress --seconds 3 --locks 4 --ttl-least 500 --seed bats --plant "$DLOCK" "$HELPERS/stress_worker"
    echo "$output"
    [ "$status" -eq 1 ]
    equals "$(grep -cE '^(file|redis): .* [1-9][0-9]* overlaps, [1-9][0-9]* wrong$' <<<"$output")" 2
}

# A history in which all is well: a command that ended by itself, and one that was stopped.
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

# judged STATUS PATTERN [SED COMMAND...]: that history, changed by the commands.
judged() {
    local status_wanted=$1 pattern=$2 command
    shift 2
    history >"$T/log"
    for command; do
        cp "$T/log" "$T/before"
        sed -i "$command" "$T/log"
        not cmp -s "$T/before" "$T/log" # a change that changes nothing would show nothing
    done
    fails_with "$status_wanted" "$pattern" python3 "$TESTS/stress.py" --check "$T/log"
}

@test "the checker is content with a history in which all is well" {
    judged 0 '^redis: 2 takes, 0 hand-overs .*, 1 stops \(124\), 0 overlaps, 0 wrong$'
}

@test "the checker finds two that were there at once" {
    local overlap='^redis: overlap: run 1 .*run 2 started'
    # As the later one found it ...
    judged 1 "$overlap" '/^1.6 start/a 1.61 overlap with=1 run=2 pid=2'
    # ... and as the history alone shows.
    judged 1 "$overlap" 's/^1.6 start/1.4 start/'
    judged 1 "$overlap" 's/until=1.5$/until=1.7/'
    judged 1 "$overlap" '/daemon=0/s//daemon=1/' 's/until=1.5$/until=1.7/' 's/tree=0/tree=1/'
}

@test "the checker finds an exit status that is not true" {
    judged 1 'told to stop, but this is not 124' 's/run=2 status=124/run=2 status=0/'
    judged 1 'stopped, but this is not 124' '/^1.5 end/d'
    judged 1 'stopped, but this is not 124' '/^2.49/d' 's/run=2 status=124/run=2 status=137/'
    judged 1 'ended 0.200 s after its lease, but this is not 124' '/^2.495/d' 's/^2.496 end/2.79 end/' \
        's/until=2.496/until=2.79/' 's/^2.5 exit run=2 status=124/2.8 exit run=2 status=0/'
    judged 1 '124, but the lease had 0.3[0-9]* s to go' 's/run=1 status=3/run=1 status=124/'
    judged 1 "the command's own status was 3" 's/run=1 status=3/run=1 status=0/'
    judged 1 'the lock was lost before the command ended' '/^1.01/a 1.2 removed run=1 before=1.19'
    judged 1 'ended without having run anything' '/run=1 pid=1/d' '/gone run=1/d' 's/run=1 status=3/run=1 status=0/'
}

@test "the checker finds what is left, lost or out of order" {
    judged 1 'left behind: process_7' '/^5.0/i 4.9 left backend=redis what=process_7'
    judged 1 'dlock did not end' '/^2.5 exit/d'
    judged 1 'the command ran on for 1.510 s after its lease' 's/until=2.496/until=4.1/'
    judged 1 'the fence 9 does not rise above 10' 's/fence=11/fence=9/'
    judged 1 'the log is not complete' '/done/d'
    judged 1 'line 4 of the log makes no sense' '4s/fence=10//'
    judged 1 'the worker of run 1 failed' '/^1.01/a 1.02 broken what=fork errno=11 run=1'
    judged 1 'nothing was ever taken' '2,12d'
}

@test "the checker excuses two at once only where that is by design, and no longer than that" {
    local taken_away='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 removed run=1 before=1.19\n2.2 exit run=1 status=124 said=lost'
    judged 0 'at once by design: 1 \(lock taken away\)' "$taken_away" 's/until=1.5$/until=2.1/'
    judged 1 'overlap: run 1' "$taken_away" 's/until=1.5$/until=2.1/' 's/2.2 exit/4.2 exit/;s/until=2.1$/until=4.0/' \
        's/until=2.496/until=4.1/'

    # A Redis does not wait for a frozen dlock; a file lock is held by it all the same.
    local frozen='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 freeze run=1\n2.4 thaw run=1\n2.41 exit run=1 status=124 said=ended'
    judged 0 'at once by design: 1 \(frozen dlock\)' "$frozen" 's/until=1.5$/until=2.405/'
    judged 1 'overlap: run 1' "$frozen" 's/until=1.5$/until=2.405/' 's/backend=redis/backend=file/'
    judged 1 'overlap: run 1' "$frozen" 's/until=1.5$/until=2.405/' 's/^2.4 thaw/1.4 thaw/'

    # The command of a killed dlock dies with it, its daemons do not.
    local killed='/^1.5 end/,/^1.51/d;/^1.01/a 1.2 kill run=1\n1.21 exit run=1 status=-9 said='
    judged 0 '0 overlaps' "$killed"
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/'
    judged 0 'at once by design: 1 \(a daemon' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/'
    judged 1 'overlap: run 1' "$killed" 's/until=1.5$/until=2.1/' 's/daemon=0/daemon=1/' 's/tree=0/tree=1/'

    # A busy machine is no excuse unless others were woken late too, at that time.
    local late='/^1.5 end/,/^1.51/d;s/^2.\([45]\)/3.\1/;s/until=2.4/until=3.4/;/^1.6 start/i 2.03 exit run=1 status=124 said='
    judged 1 'overlap: run 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/'
    judged 0 'while the machine was late: 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/' \
        '/^2.01/i 2.0 late by=0.02 run=2'
    judged 1 'overlap: run 1' "$late" 's/^1.6 start/2.01 start/' 's/until=1.5$/until=2.02/' '/^3.51/i 3.5 late by=0.02 run=2'
}
