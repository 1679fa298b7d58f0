# Scripts that attach a lock to themselves, and the guards of these locks. Tests load ../both/backend first.
# shellcheck shell=bash disable=SC2016,SC2034

eval "backend_$(declare -f setup)"
setup() {
    backend_setup
    export DLOCK_LOCK_DIR=$T/locks
}

# script NAME [SHELL]: makes the script $T/NAME from the lines on stdin.
script() {
    { echo "#!${2:-/bin/sh}" && cat; } >"$T/$1"
    chmod +x "$T/$1"
}

# Lines for a script: it shows that it has come this far, and waits for $T/end.
stay='touch "$T/here"; while [ ! -e "$T/end" ]; do sleep 0.01; done'

# start NAME: starts the script in the background and waits for $T/here; SCRIPT is its pid.
start() {
    rm -f "$T/here" "$T/end"
    "$T/$1" >"$T/out" 2>"$T/err" 3>&- 4>&- &
    SCRIPT=$!
    echo "$SCRIPT" >"$T/script.pid"
    wait_until 10 test -e "$T/here"
}

end_script() {
    local status=0
    touch "$T/end"
    wait "$SCRIPT" || status=$?
    equals "$status" "${1:-0}"
}

# Prints the pids of the guards that this test has started. Zombies do not count: init may not
# reap them.
guards() {
    local pid
    for pid in $(pgrep -x dlock-attach); do
        if grep -qzx "T=$T" "/proc/$pid/environ" 2>/dev/null; then echo "$pid"; fi
    done
}
# True if the process lives. A zombie does not count: init may not reap it.
lives() { grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null; }

is_unguarded() { [ -z "$(guards)" ]; }

released() {
    wait_until 5 is_clean "${1:-job}"
    wait_until 5 is_unguarded
    equals "$(find "$T/locks" -name '.attached-*')" ''
}
