#!/usr/bin/env bats
# The command and dlock's caller notice as little of dlock as possible.
load ../both/backend

@test "arguments reach the command unchanged, whatever they look like, and options end before the command" {
    table <<'ROWS'
0 '^<-n><><--><a b><\$x><--><-x>$' dlock job printf '<%s>' -n '' '--' 'a b' '$x' -- -x
0 '10 -t 20'                        dlock -w 5 job -t 10 -v -- sh -c 'echo $DLOCK_HELD_TTL "$@"' sh -t 20
0 '^10$'                           dlock job --ttl=10 sh -c 'echo $DLOCK_HELD_TTL'
0 '^-t 20$'                        dlock -- job echo -t 20
0 '^x$'                            dlock -- -job- echo x
ROWS
}

@test "-c runs a shell command, with the shell of \$SHELL" {
    printf '#!/bin/sh\necho "own shell: $*"\n' >"$T/shell"
    chmod +x "$T/shell"
    table <<'ROWS'
3 '^2$'                 dlock job -c 'echo $((1 + 1)) | cat; exit 3'
0 '^before$'            dlock -c 'echo before' job
0 '^own shell: -c a b$' env SHELL="$T/shell" dlock job -c 'a b'
ROWS
}

@test "the command gets dlock's stdin, stdout, signal mask and dispositions; its status is returned despite an ignored SIGCHLD" {
    # The low 31: the C library uses signals 32 and 33.
    local trapped plain signals='while read -r name mask; do
        case $name in SigBlk: | SigIgn:) echo "$name" $((0x${mask#????????} & 0x7fffffff)) ;; esac
    done </proc/self/status'
    plain=$(sh -c "$signals")
    [[ $plain == SigBlk:*SigIgn:* ]]
    equals "$(dlock job -- sh -c "$signals")" "$plain"
    trapped=$(sh -c "trap '' INT PIPE CHLD; $signals")
    [ "$trapped" != "$plain" ]
    equals "$(sh -c "trap '' INT PIPE CHLD; exec dlock job -- sh -c '$signals'")" "$trapped"
    # busybox's cron and some supervisors ignore SIGCHLD, so the kernel would reap the command.
    table <<'ROWS'
7 '^$'     env --ignore-signal=CHLD dlock job -- sh -c 'exit 7'
0 '^hello$' bash -c 'echo hello | dlock job cat'
ROWS
    run env --ignore-signal=CHLD dlock job -- grep SigIgn /proc/self/status
    (((0x${output##*[[:space:]]} & 0x10000) != 0))
    is_clean job
}
