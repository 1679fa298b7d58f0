#!/usr/bin/env bats
# On a terminal of its own (expect): what a user sees who types.
load common
setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    command -v expect >/dev/null || skip 'no expect'
    cd "$T" || return 1
    script count 'trap "n=x\$n; echo one $1" $1; echo begun; until read line; do :; done; echo $1=$n line=$line; exit 7'
    script stop_itself 'kill -STOP $$; echo back again'
    script deaf 'trap "" TSTP; echo begun; read line; echo got=$line'
    script reader 'read line; echo got=$line'
    script sleeper 'echo begun; exec sleep 60'
}
# script NAME TEXT: commands in files, since three shells quote in three ways.
script() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
teardown() { common_teardown; }

job_control() { timeout 120 expect "$TESTS/helpers/job_control.exp" dlock "$@" </dev/null 3>&- 4>&-; }

@test "Ctrl-Z, jobs, fg and Ctrl-C in bash are as without dlock" {
    job_control bash --norc --noprofile -i
}

@test "Ctrl-Z, jobs, fg and Ctrl-C in dash are as without dlock" {
    command -v dash >/dev/null || skip 'no dash'
    job_control dash -i
}

@test "Ctrl-Z, jobs, fg and Ctrl-C in zsh are as without dlock" {
    command -v zsh >/dev/null || skip 'no zsh'
    job_control zsh -f -i
}
