#!/usr/bin/env bats
# What is shown during a wait: on a terminal, with -v, and to a service manager.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks LOGNAME=ann PYTHONPATH=$TESTS/helpers TESTS
}

# terminal TEXT: runs Python with Terminal and re; `held` is the pattern of the message
# for a wait for hold_lock's lock, and end_hold() ends that holder.
terminal() {
    cat >"$T/terminal_test.py" <<'P'
import os, re, subprocess, sys, time
from terminal import Terminal, columns_of
T = os.environ["T"]
host = os.uname().nodename
held = rf"held by ann@{re.escape(host)} [(]pid {os.environ['HOLDER']}, \S*held\.sh[)]"
def end_hold():
    open(T + "/held.end", "w").close()
P
    printf '%s\n' "$1" >>"$T/terminal_test.py"
    HOLDER=${HOLDER:-} timeout 60 python3 "$T/terminal_test.py" 3>&- 4>&-
}

# bats test_tags=slow
@test "the line is redrawn once a second if nothing happens, and at most four times a second otherwise" {
    needs_start_time
    hold_lock job --owner=tok -t 100s
    terminal '
begin = time.monotonic()
t = Terminal(["dlock", "job", "true"], 200)
t.until_draws(5)
assert time.monotonic() - begin >= 3, t.draws
count, begin, n = len(t.draws), time.monotonic(), 0
while len(t.draws) - count < 12:
    subprocess.run(["dlock", "--extend", "--owner=tok", "-t", ("2000s", "100s")[n % 2], "job"], check=True)
    t.look(0.05)
    n += 1
took = time.monotonic() - begin
assert 12 / 4 - 0.5 <= took, t.draws
assert len(t.draws) - count > took + 2 or n < took, (took, t.draws)
end_hold()
assert t.end() == 0 and t.screen() == []'
}

# bats test_tags=slow
@test "a terminal resized while the line is drawn still shows one line" {
    needs_start_time
    hold_lock job
    terminal '
for reflow in (True, False): # side by side
    if os.fork() != 0:
        continue
    t = Terminal(["sh", "-c", "echo above; exec dlock -w 60 job true"], 200, reflow)
    t.until_draws(1)
    for columns in (40, 30, 120, 90, 21, 200):
        t.resize(columns)
        t.until_draws(len(t.draws) + 1)
        t.until(lambda t: t.column == 0)
        assert len(t.screen()) == 2 and t.screen() == ["above", t.last()], (columns, t.screen(), t.last())
    t.resize(25)
    t.type(b"\x03")
    assert t.end() == -2
    assert t.screen() == ["above"], t.screen()
    sys.exit()
assert os.wait()[1] == 0 and os.wait()[1] == 0'
}

@test "the line shows the holder, since when, until when and how long the caller has waited" {
    needs_start_time
    hold_lock job
    terminal '
t = Terminal(["dlock", "job", "echo", "ran"], 200)
t.until_draws(3)
time_of_day = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \+0000"
for when, text in t.draws:
    assert re.fullmatch(rf"waiting( \ds)? for job: {held} since {time_of_day}, until {time_of_day} at the latest; you are next", text), text
assert re.match("waiting for", t.draws[0][1]) and re.match(r"waiting \ds for", t.draws[2][1]), t.draws
assert t.column == 0 and len(t.screen()) == 1
end_hold()
assert t.end() == 0 and t.screen() == ["ran"], t.screen()'
}

@test "the line shows why a free lock is paused, by whom and until when" {
    dlock --pause=60s --message='disk swap' job
    terminal '
t = Terminal(["dlock", "job", "echo", "ran"], 200)
t.until_draws(2)
for when, text in t.draws:
    assert re.fullmatch(rf"waiting( \ds)? for job: paused by ann@{re.escape(host)} until (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \+0000; you are next; message: disk swap", text), text
subprocess.run(["dlock", "--resume", "job"], check=True)
assert t.end() == 0 and t.screen() == ["ran"], t.screen()'
}

@test "a very short wait shows nothing" {
    hold_lock job
    terminal '
t = Terminal(["dlock", "-w", "200ms", "-E", "9", "job", "true"])
assert t.end() == 9 and t.draws == [] and len(t.screen()) > 0
t = Terminal(["dlock", "other", "true"])
assert t.end() == 0 and t.text == "", t.text'
}

@test "on a terminal a conflict is reported and names the holder" {
    python3 -c 'import os; os.openpty()' 2>/dev/null || skip 'no pseudo-terminals here'
    hold_lock job
    # A terminal on stderr is enough, as in a shell whose stdout is a pipe.
    run python3 - <<'P'
import os, pty, subprocess
master, slave = pty.openpty()
code = subprocess.call(["dlock", "-n", "job", "true"], stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
print(code, os.read(master, 4096).decode())
P
    [[ $output == '75 dlock: job: held by '*' (pid '* ]]
}

@test "Ctrl-C ends programs on the tests' terminal, even if SIGINT was ignored where the tests started" {
    terminal '
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
t = Terminal(["sh", "-c", "echo begun; exec sleep 600"])
t.until(lambda t: "begun" in t.text)
t.type(b"\x03")
assert t.end() == -2'
}

@test "the line fits any width" {
    needs_start_time
    LOGNAME='日本語ユーザー' hold_lock jóbe$'\u0301'
    terminal '
who = "held by 日本語ユーザー@" + host
for t in [Terminal(["dlock", "jóbe\u0301", "true"], columns) for columns in (200, 80, 40, 20, 11, 2, 1)]:
    columns = t.columns
    if columns == 1:
        t.look(1)
        assert t.draws == []
    else:
        t.until_draws(3)
        for _, text in t.draws:
            assert columns_of(text) < columns, (columns, text)
        told = t.last()
        whole = re.match("waiting [0-9]+s for jóbe\u0301: ", told)
        assert whole or columns < 40, told
        assert columns < 80 or who in told, told
        assert columns == 200 or told.endswith("~"), told
    t.type(b"\x03")
    assert t.end() == -2, columns
    assert t.screen() == [] or columns == 1, t.screen()'
}

@test "the line is removed before any other output: a timeout, a signal, an error" {
    needs_start_time
    hold_lock job
    terminal '
t = Terminal(["dlock", "-w", "700ms", "job", "true"], 200)
assert t.end() == 75 and len(t.draws) > 0
assert len(t.screen()) == 1 and t.screen()[0].startswith("dlock: job: gave up after "), t.screen()
t = Terminal(["dlock", "job", "true"])
t.until_draws(1)
os.kill(t.pid, 15)
assert t.end() == -15 and t.screen() == [], t.screen()'
}

@test "Ctrl-Z and fg: the line is drawn again, and the shell's output stays" {
    command -v bash >/dev/null
    hold_lock job
    terminal '
t = Terminal(["bash", "--norc", "--noprofile", "-i"], 120, PS1="PROMPT> ", INPUTRC="/dev/null", TERM="vt100")
t.until(lambda t: "PROMPT> " in t.text)
t.type(b"bind \"set enable-bracketed-paste off\"; dlock job echo ran\r")
t.until_draws(2)
t.type(b"\x1a")
t.until(lambda t: "Stopped" in t.text and t.text.rstrip().endswith("PROMPT>"))
count = len(t.draws)
t.type(b"fg\r")
t.until_draws(count + 1)
end_hold()
t.until(lambda t: t.text.rstrip().endswith("PROMPT>") and t.screen()[-2:] == ["ran", "PROMPT>"])'
}

@test "a background job draws nothing, and stty tostop does not stop it" {
    hold_lock job
    terminal '
for name in "xterm", "dumb":
    t = Terminal(["bash", "-c", "set -m; stty tostop; dlock job touch $T/ran & echo begun; wait; stty -tostop; cat $T/ran; echo ended"], 120, TERM=name)
    children = lambda: subprocess.run(["pgrep", "-P", str(t.pid), "dlock"], capture_output=True, text=True).stdout
    t.until(lambda t: "begun" in t.text and children()) # the shell may print this before its child has become dlock
    pid = children().strip()
    t.look(1.5)
    t.until(lambda t: open(f"/proc/{pid}/stat").read().split(")")[1].split()[0] == "S") # T if it was stopped
    assert t.screen() == ["begun"] and t.draws == [], t.screen()
    if name == "xterm":
        os.kill(int(pid), 15)
    else:
        end_hold()
    t.end()
assert os.path.exists(T + "/ran")'
}

@test "a terminal stopped by Ctrl-S does not keep dlock from the lock" {
    hold_lock job
    terminal '
t = Terminal(["dlock", "job", "touch", T + "/ran"])
t.until_draws(1)
t.type(b"\x13")
t.look(1.5)
end_hold()
end = time.monotonic() + 5
while not os.path.exists(T + "/ran"):
    assert time.monotonic() < end
    time.sleep(0.01)
t.type(b"\x11")
assert t.end() == 0'
}

@test "nothing is drawn with -q, with --json, or if stderr is no terminal" {
    hold_lock job
    terminal '
for command in ("dlock -q -w 1s job true", "dlock --json -w 1s job true >/dev/null", "dlock -E 0 -w 1s job true 2>$T/err", "dlock -E 0 -w 1s job true 2>&1 | cat"):
    t = Terminal(["sh", "-c", command])
    t.end()
    assert t.text == "", (command, t.text)
assert open(T + "/err").read() == ""'
}

@test "TERM=dumb or no TERM: plain lines without escape sequences" {
    needs_start_time
    hold_lock job
    terminal '
for name in "dumb", "":
    t = Terminal(["dlock", "-w", "1500ms", "job", "true"], 200, TERM=name)
    assert t.end() == 75
    assert "\x1b" not in t.text
    assert len(t.screen()) == 2 and re.match(f"dlock: job: waiting: {held} since", t.screen()[0]), t.screen()'
}

@test "NO_COLOR changes nothing, because there are no colours" {
    needs_start_time
    hold_lock job
    NO_COLOR=1 terminal '
t = Terminal(["dlock", "-w", "700ms", "job", "true"], 200)
assert t.end() == 75 and len(t.draws) == 1 and "\x1b[0" not in t.text and "m" not in re.findall(r"\x1b\[[0-9;?]*(.)", t.text)'
}

@test "in the C locale everything that is not ASCII is escaped" {
    LOGNAME='日本' hold_lock jób
    terminal '
t = Terminal(["dlock", "jób", "true"], 200, LC_ALL="C")
t.until_draws(1)
assert t.last().startswith(r"waiting for j\xC3\xB3b: held by \xE6\x97\xA5\xE6\x9C\xAC@"), t.last()
end_hold()
assert t.end() == 0 and t.screen() == []'
}

@test "text about the holder, from a client or a record, cannot disturb the terminal" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock DLOCK_BACKEND=redis
    redis set dlock:job token px 60000 >/dev/null
    redis hset '{dlock:job}:meta' owner token fence 1 record "$(python3 -c '
print("take t1\nhost evil%1B[2J%0A%0D\x9b31m\nuser \u202egnp\u2066\npid 12\nstart 1\nboot b\ncommand " + "x" * 127 +
    "\nsince 99999999999999999\n")')"$'\n' >/dev/null
    terminal '
for columns in (40, 120, 1000):
    t = Terminal(["dlock", "job", "true"], columns)
    t.until_draws(2)
    t.type(b"\x03")
    assert t.end() == -2
    assert r"\xE2\x80\xAEgnp\xE2\x81\xA6@evil\x1B[2J" in t.draws[-1][1] or columns == 40, t.draws
    assert t.screen() == [], t.screen()'
}

@test "another client's lock is shown as such, with its end or without one" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock DLOCK_BACKEND=redis
    redis set dlock:job theirs >/dev/null
    redis set dlock:other theirs px 600000 >/dev/null
    terminal '
for name, rest in ("job", ", with no time limit; you are next"), ("other", r", until .*\d\d:\d\d:\d\d \+0000 at the latest; you are next"):
    t = Terminal(["dlock", name, "true"], 200)
    t.until_draws(1)
    assert re.fullmatch(f"waiting for {name}: held by another client{rest}", t.last()), t.last()
    t.type(b"\x03")
    t.end()'
}

@test "a store that goes away during a wait is reported, with how long it will be retried" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock DLOCK_BACKEND=redis
    redis set dlock:job theirs px 600000 >/dev/null
    redis_pid=$(cat "$T/redis.pid") terminal '
t = Terminal(["dlock", "--retry-for=2s", "-w", "60", "job", "true"], 400)
t.until_draws(1)
os.kill(int(os.environ["redis_pid"]), 9)
t.until(lambda t: re.search("redis.sock.*; retrying for up to another 1s", t.last()))
assert t.end() == 69 and len(t.screen()) >= 1 and t.screen()[0].startswith("dlock: job: "), t.screen()'
}

@test "a shared, an acquired and a kept lock are each shown as such" {
    dlock --acquire --slots=1 -t 60s slots >/dev/null
    dlock --acquire -t 60s taken >/dev/null
    dlock --hold-at-least=50s -t 60s kept true
    hold_lock shared --shared
    terminal '
for name, pattern in (
    ("slots", "1 of 1 slots are taken, one by ann@[^ ]* [(]pid .*; acquired with --acquire[)] since .*, until"),
    ("taken", "held by ann@[^ ]* [(]pid .*; acquired with --acquire[)] since .*, until .* at the latest"),
    ("kept", r"released by ann@[^ ]* [(]pid \d+, true[)], but kept until [0-9: +-]* [(]--hold-at-least[)]; you are next$"),
    ("shared", held.replace("held", "held in shared mode", 1) + " since .*, until"),
):
    t = Terminal(["dlock", "--slots=1", name, "true"] if name == "slots" else ["dlock", name, "true"], 400)
    t.until_draws(1)
    assert re.match(f"waiting for {name}: {pattern}", t.last()), t.last()
    t.type(b"\x03")
    t.end()'
}

# A frozen guard holds the lock for a script that was killed.
@test "a dead holder on this host is named, with what to do" {
    cat >"$T/script" <<'S'
#!/bin/sh
dlock --attach --prefix=nightly: -t 5m job || exit
touch "$T/attached"
while :; do sleep 0.1; done
S
    chmod +x "$T/script"
    "$T/script" >/dev/null 2>&1 3>&- 4>&- &
    local script=$! guard
    echo $script >"$T/script.pid"
    wait_until 10 test -e "$T/attached"
    guard=$(pgrep -f -- "--attach --prefix=nightly:" | head -1)
    echo "$guard" >"$T/guard.pid"
    kill -STOP "$guard"
    SCRIPT=$script terminal '
t = Terminal(["dlock", "--prefix=nightly:", "job", "true"], 300)
t.until_draws(1)
script = os.environ["SCRIPT"]
assert f" (pid {script}, " in t.last() and "ended" not in t.last(), t.last()
os.kill(int(script), 9)
text = rf"held by ann@\S* [(]pid {script}, \S*; has ended[)] since [^;]*; the lease ends at .*\d\d:\d\d:\d\d \+0000; you are next; to release the lock now: dlock --force-release --prefix=nightly: job"
t.until(lambda t: re.fullmatch(rf"waiting( \d+s)? for job: {text}", t.last()))
assert re.fullmatch(rf"dlock: job: waiting( \d+s)?: {text}", t.screen()[0]), t.screen()
t.type(b"\x03")
t.end()
assert len(t.screen()) == 1'
}

@test "a dead holder of a lock in Redis is named too" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock DLOCK_BACKEND=redis
    hold_lock job
    local pid=$HOLDER
    dlock -v job true >"$T/told" 2>&1 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 grep -q "waiting: held by .* [(]pid $pid, .*; you are next" "$T/told"
    kill -KILL "$pid"
    wait_until 10 grep -qE "[(]pid $pid, .*; has ended[)] since .*; the lease ends at .*; you are next; to release the lock now: dlock --force-release job" "$T/told"
    dlock --force-release job >/dev/null
    wait "$(cat "$T/waiter.pid")"
}

@test "with -v and no terminal: a line at the start of the wait, one a minute, and one at the end" {
    needs_start_time
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    with_suspends hold_lock job
    with_suspends dlock -v job true >"$T/told" 2>&1 3>&- 4>&- &
    local waiter=$!
    wait_until 10 grep -qE '^dlock: job: waiting: held by .* [(]pid [0-9]+, .*held.sh[)] since .*, until .* at the latest; you are next$' "$T/told"
    local seconds
    for seconds in 30 61 90 119 121; do
        suspended $seconds
        [ $seconds != 61 ] || wait_until 10 grep -qE '^dlock: job: waiting 1m[1-9]s: held by' "$T/told"
    done
    wait_until 10 grep -qE '^dlock: job: waiting 2m[1-9]s: held by' "$T/told"
    equals "$(grep -vc "requesting " "$T/told")" 3
    end_hold
    wait "$waiter"
    grep -qE '^dlock: job: acquired \(file, fence [0-9]+\) after 2m' "$T/told"
    equals "$(grep -c waiting "$T/told")" 3
}

@test "--acquire, --attach and --wait-until-free show the line too" {
    needs_start_time
    hold_lock job
    terminal '
t = Terminal(["dlock", "--wait-until-free", "job"], 200)
t.until_draws(2)
assert re.match(f"waiting( [0-9]s)? for job: {held}", t.last()), t.last()
t.type(b"\x03")
assert t.end() == -2 and t.screen() == [], t.screen()
for action, who in ("--acquire", held), ("--attach", "held by ann@[^ ]* [(]pid [0-9]+, dlock; acquired with --acquire[)]"):
    t = Terminal(["sh", "-c", f"dlock {action} -w 60 job >/dev/null; echo $?"], 200)
    t.until_draws(1)
    assert re.match(f"waiting for job: {who}", t.last()), t.last()
    end_hold() if who == held else subprocess.run(["dlock", "--force-release", "job"], check=True)
    t.end()
    assert t.screen() == ["0"], t.screen()'
}

# says COLUMNS SECONDS FIELD=VALUE... -- PATTERN
says() {
    local arguments=()
    while [ "$1" != -- ]; do arguments+=("$1") && shift; done
    run "$HELPERS/wait_text" "${arguments[@]}"
    [[ $output =~ ^$2$ ]] || { printf '%s\ndoes not match\n%s\n' "$output" "$2" && return 1; }
}

@test "the line shows the place in the queue, a lock kept for others, and the holder even beside a long name; it is cut at the margin" {
    local ahead place
    for place in 1:2nd 2:3rd 3:4th 10:11th 11:12th 12:13th 20:21st 111:112th 122:123rd; do
        says 0 75 until=60 "ahead=${place%:*}" -- "waiting 1m15s for job: held by ann@web3 [(]pid 4711, rollup.sh[)], until .* at the latest; ${place#*:} in line"
    done
    says 0 2 until=60 ahead=0 -- ".* at the latest; you are next"
    says 0 2 until=60 ahead=-1 -- '.* at the latest'
    says 0 2 known=0 reserved=1 until=60 ahead=4 -- 'waiting 2s for job: free, but others have waited longer; 5th in line'
    local fields=(since=60 until=60 ahead=2) who='held by ann@web3' time='[0-9: +-]*'
    says 200 12 "${fields[@]}" -- "waiting 12s for job: $who [(]pid 4711, rollup.sh[)] since $time, until $time at the latest; 3rd in line"
    says 41 12 "${fields[@]}" -- "waiting 12s for job: $who [(]p~"
    says 12 12 "${fields[@]}" -- 'waiting 12s~'
    says 1 12 "${fields[@]}" -- '~'
    says 80 2 "name=$(printf 'x%.0s' {1..90})" -- "waiting 2s for x{40}~: $who [(]p.*~"
}

@test "the line shows a clock that is ahead, another day and an outage clearly; its advice can be pasted into a shell" {
    says 0 2 since=-60 -- 'waiting 2s for job: held by ann@web3 [(]pid 4711, rollup.sh[)], with no time limit'
    says 0 2 since=172800 until=172800 -- '.*[)] since [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} \+0000, until [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} \+0000 at the latest'
    TZ=XXX-5 says 0 2 until=1 -- ".*, until ([0-9-]{10} )?($(TZ=XXX-5 date +%H)|$(TZ=XXX-5 date -d '2 seconds' +%H)):.*"
    says 0 2 why='cannot connect: no' -- 'waiting 2s for job: cannot connect: no; retrying for up to another 4s'
    says 0 2 died=1 until=60 -- 'waiting 2s for job: held by ann@web3 [(]pid 4711, rollup.sh; has ended[)]; the lease ends at .*; to release the lock now: dlock --force-release job'
    says 0 2 died=1 until=60 "name=it's a job" prefix='a b' -- ".*; to release the lock now: dlock --force-release --prefix='a b' 'it'.''s a job'"
    says 0 2 died=1 until=60 shares=1 -- '.*; the lease ends at [^;]*'
}
