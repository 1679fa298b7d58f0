#!/usr/bin/env bats
# Signals between dlock, its command and other processes. The store plays no part in this.
load ../both/backend

# All signals that end a process by default, except those of a fault; two of the real-time signals.
ENDING=(TERM INT HUP QUIT USR1 USR2 ABRT ALRM VTALRM PROF XCPU IO PWR RTMIN RTMAX)

@test "signals sent to dlock reach the command" {
    local signal
    for signal in "${ENDING[@]}" WINCH CONT; do
        rm -f "$T/ready"
        python3 -c "
import signal, os, sys
signal.signal(signal.SIG$signal, signal.SIG_DFL) # a shell's background and parallel(1) ignore some
os.execvp('dlock', ['dlock', 'job', 'bash', '-c', 'trap \"echo got $signal; exit 33\" $signal; touch \$T/ready; while :; do sleep 0.01; done'])
" >"$T/out" 3>&- &
        local dlock=$! status=0
        wait_until 10 test -e "$T/ready"
        kill "-$signal" "$dlock"
        wait "$dlock" || status=$?
        equals "$status:$(cat "$T/out")" "33:got $signal"
    done
}

@test "dlock dies of a signal sent to it that ended its command, but not of one that the command sent itself" {
    SIGNALS="${ENDING[*]}" python3 - 3>&- 4>&- <<'P'
import os, resource, signal, subprocess, sys, time
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
os.chdir(os.environ["T"])

def start(*words):
    def set_up():
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        os.setsid()
    if os.path.exists("ready"):
        os.remove("ready")
    return subprocess.Popen(["dlock", "--report=report", *words], preexec_fn=set_up, stdout=subprocess.DEVNULL)

def ends(dlock):
    status = os.waitpid(dlock.pid, 0)[1]
    dlock.returncode = os.waitstatus_to_exitcode(status)
    assert not os.WCOREDUMP(status), status
    reported = eval(open("report").read().splitlines()[-1].replace("null", "None").replace("true", "True").replace("false", "False"))
    assert subprocess.call(["dlock", "-n", "job", "true"]) == 0 # it has released the lock
    return dlock.returncode, reported["status"]

def begun():
    while not os.path.exists("ready"):
        time.sleep(0.01)

signals = [getattr(signal, "SIG" + name) for name in os.environ["SIGNALS"].split()]
for number in signals:
    for words in (["job"], ["--tree", "job"], ["job", "dlock", "inner"]):
        dlock = start(*words, "sh", "-c", "touch ready; exec sleep 60")
        begun()
        dlock.send_signal(number)
        got = ends(dlock)
        assert got == (-number, 128 + number), (number, words, got)
# Its own signal; one to its group, which dlock is in; one after a signal that it survived; another; and none.
for script, sent, wanted in (("kill -TERM $$", None, 143), ("kill -TERM 0", None, 143),
                             ("trap 'kill -HUP $$' TERM; touch ready; while :; do sleep 0.01; done", signal.SIGTERM, 129),
                             ("trap 'exit 3' TERM; touch ready; while :; do sleep 0.01; done", signal.SIGTERM, 3)):
    for words in (["job"], ["--tree", "job"]):
        dlock = start(*words, "sh", "-c", script)
        if sent is not None:
            begun()
            dlock.send_signal(sent)
        got = ends(dlock)
        assert got == (wanted, wanted), (script, words, got)
P
}

@test "a command that sends TERM to its process group does not get the signal again from dlock" {
    cat >"$T/group.py" <<'E'
import os, signal, sys, time
got = 0
def on_term(number, frame):
    global got
    got += 1
    if got == 1:
        os.kill(0, signal.SIGTERM)
signal.signal(signal.SIGTERM, on_term)
open(os.environ["T"] + "/ready", "w").close()
end = time.monotonic() + 20
while got < 2 and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3) # time for a third one, which must not come
open(os.environ["T"] + "/got", "w").write(str(got))
E
    setsid dlock job -- python3 "$T/group.py" >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -e "$T/ready"
    kill -TERM "$dlock"
    wait "$dlock"
    equals "$(cat "$T/got")" 2
}

@test "signals from the command to dlock are not passed back to it" {
    run dlock job -- bash -c 'trap "echo came back" USR1; kill -USR1 $PPID; for i in {1..20}; do sleep 0.01; done; echo end'
    equals "$output" end
    # The sender may also be a child of the command.
    equals "$(timeout 20 dlock -v job -- bash -c 'trap "echo came back" USR1
        (kill -USR1 $PPID; until grep -q "USR1 was not passed on: the command itself" "$T/err"; do sleep 0.01; done); echo end' 2>"$T/err")" end
}

@test "TERM to the whole process group: the command's status is returned, and nothing is left" {
    setsid dlock job -- sh -c 'trap "echo x >>$T/terms; exit 5" TERM; touch $T/ready; while :; do sleep 0.01; done' 3>&- 4>&- &
    local session=$! status=0
    wait_until 10 test -e "$T/ready"
    kill -TERM -- "-$session"
    wait "$session" || status=$?
    equals "$status" 5
    is_clean job
}
