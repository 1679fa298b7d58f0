#!/usr/bin/env bats
# What a user who types sees, on a terminal of its own (expect).
load ../lib/common
setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    command -v expect >/dev/null || skip 'no expect'
    cd "$T" || return 1
    cat >count <<'E'
#!/usr/bin/env python3
# Counts signals until a line arrives.
import os, select, signal, sys
name, got = sys.argv[1], 0
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
def on_signal(number, frame):
    global got
    got += 1
    os.write(1, f"one {name}\n".encode()) # the signal may interrupt print()
signal.signal(getattr(signal, "SIG" + name), on_signal)
print("begun", flush=True)
while 0 not in select.select([0, reader], [], [])[0]:
    os.read(reader, 64)
print(f"{name}={got} line={os.read(0, 64).decode().strip()}")
sys.exit(7)
E
    chmod +x count
    script stop_itself 'kill -TSTP 0; echo back again'
    script stopped_alone 'p=$$; (sleep 0.2; kill -STOP $p; sleep 0.3; kill -CONT $p) & i=0
while [ $i -lt 10 ]; do sleep 0.1; i=$((i + 1)); done; echo went on'
    script script '"$@" -t 60 job ./count CONT; echo script done $?'
    script deaf 'trap "" TSTP; echo begun; read line; echo got=$line'
    script reader 'read line; echo got=$line'
    # timeout(1) ends without its command on a signal that comes before its fork(2) has returned. So the command
    # begins once its parent sleeps.
    script sleeper 'until grep -q "^State:.S" /proc/$PPID/status; do sleep 0.01; done; echo begun; exec sleep 60'
}
# script NAME TEXT: puts commands into files, because three shells quote in three ways.
script() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }

job_control() { timeout 120 expect "$TESTS/helpers/job_control.exp" "dlock${OPTIONS:+ $OPTIONS}" "$@" </dev/null 3>&- 4>&-; }

@test "Ctrl-Z, jobs, fg and Ctrl-C in bash work as without dlock" {
    job_control bash --norc --noprofile -i
}

@test "Ctrl-Z, jobs, fg and Ctrl-C in dash work as without dlock" {
    command -v dash >/dev/null || skip 'no dash'
    job_control dash -i
}

@test "Ctrl-Z, jobs, fg and Ctrl-C in zsh work as without dlock" {
    command -v zsh >/dev/null || skip 'no zsh'
    job_control zsh -f -i
}

@test "Ctrl-Z, jobs, fg and Ctrl-C work with --tree too" {
    OPTIONS=--tree job_control bash --norc --noprofile -i
}

# on_terminal KEY WORDS...: a dlock with these arguments leads a terminal's session. Once the command has said "begun", KEY
# is typed, or the terminal goes away; prints how dlock ends.
on_terminal() {
    PYTHONPATH=$TESTS/helpers timeout 60 python3 - "$@" 3>&- 4>&- <<'P'
import os, sys
from terminal import Terminal
key, words = sys.argv[1], sys.argv[2:]
t = Terminal(["dlock"] + words)
t.until(lambda t: "begun" in t.text)
if key == "gone":
    os.dup2(os.open(os.devnull, os.O_RDONLY), t.fd)
else:
    t.type(key.encode())
print("ended", t.end())
P
}

@test "the terminal of a session that dlock leads goes away: the command gets SIGHUP, and the lock is free" {
    script on_hangup 'trap "exit 5" HUP; echo begun; while :; do sleep 0.01; done'
    local tree
    for tree in '' --tree; do
        run on_terminal gone $tree -t 600s job ./on_hangup
        equals "$output" 'ended 5'
        run on_terminal gone $tree -t 600s job ./sleeper
        equals "$output" 'ended -1'
        [ ! -e "$T/locks/dlock:job.lock" ]
    done
}

@test "--attach refuses an interactive shell unless its pid is given; a script on the terminal may attach" {
    script attaches 'dlock --attach -t 60s scripted && echo it is "$(dlock --status -q scripted && echo held)"'
    local shell
    for shell in 'bash --norc --noprofile -i' 'dash -i' 'zsh -f -i'; do
        command -v "${shell%% *}" >/dev/null || continue
        echo "$shell"
        timeout 60 python3 - "$shell" 3>&- 4>&- <<'P'
import os, sys, pty, select, time
pid, fd = pty.fork()
if pid == 0:
    words = sys.argv[1].split()
    os.environ["PS1"] = "$ "
    os.execvp(words[0], words)
seen = ""
def until(text):
    global seen
    end = time.monotonic() + 20
    while text not in seen:
        assert time.monotonic() < end, seen
        if select.select([fd], [], [], 1)[0]:
            seen += os.read(fd, 4096).decode(errors="replace")
def type_line(line, text):
    global seen
    seen = ""
    os.write(fd, line.encode() + b"\n")
    until(text)
    return seen
said = type_line("dlock --attach -t 60s typed; echo status=$?.", "status=64.")
assert "the caller is an interactive shell, which would be killed" in said and "--attach=$$" in said, said
type_line("dlock --status -q typed; echo status=$?.", "status=1.")
type_line("./attaches", "it is held")
type_line("dlock --attach=$$ -t 60s typed; echo status=$?.", "status=0.")
os.write(fd, b"exit\n")
os.waitpid(pid, 0)
P
    done
}

@test "Ctrl-C ends a shell loop around dlock" {
    local words
    for words in 'job ./sleeper' '--tree job ./sleeper' 'job setsid ./sleeper' 'a dlock b ./sleeper'; do
        echo "$words"
        PYTHONPATH=$TESTS/helpers timeout 60 python3 - "$words" 3>&- 4>&- <<'P'
import sys
from terminal import Terminal
t = Terminal(["bash", "-c", f"for i in 1 2; do echo round $i; dlock -t 600s {sys.argv[1]}; done; echo went on"])
t.until(lambda t: "begun" in t.text)
t.type(b"\x03")
assert t.end() == -2 and "round 2" not in t.text and "went on" not in t.text, (t.status, t.text)
P
    done
}

@test "Ctrl-C and the quit key reach a command in its own process group" {
    ulimit -c 0
    local tree
    for tree in '' --tree; do
        run on_terminal $'\x03' $tree -t 600s job timeout 600 ./sleeper
        [[ $output == ended* ]]
        run on_terminal $'\x03' $tree -t 600s job setsid ./sleeper
        equals "$output" 'ended -2'
        run on_terminal $'\x1c' $tree -t 600s job setsid ./sleeper
        equals "$output" 'ended -3'
    done
}
