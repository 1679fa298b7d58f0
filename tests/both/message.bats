#!/usr/bin/env bats
# --message: why the lock is held, for waiters and readers of its state.
load backend

member() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

@test "-m is short for --message" {
    dlock --acquire -t 60s -m 'ticket 42' job >/dev/null
    equals "$(dlock --status --json job | member message)" 'ticket 42'
    dlock --pause=60s -mmaintenance other >/dev/null
    fails_with 75 'paused by .*; message: maintenance$' dlock -n other true
}

@test "--message is shown to waiters, by --status, --list and JSON, and removed by the release" {
    hold_lock job -t 60s --message='ticket 42: new index'
    fails_with 75 'lease ends in [0-9a-z]+; message: ticket 42: new index$' dlock -v -n job true
    fails_with 75 'gave up after [0-9a-z.]+: held by .*[)] since .*, lease ends in [0-9a-z]+; message: ticket 42: new index$' \
        dlock -w 100ms job true
    fails_with 75 'waiting: held by .*[)] since .*, until .* at the latest; you are next; message: ticket 42: new index$' \
        dlock -v -w 100ms job true
    fails_with 75 'ticket 42: new index' dlock --wait-until-free -v -n job
    [[ $(dlock --status job) == *': ticket 42: new index'* ]]
    [[ $(dlock --list) == *': ticket 42: new index' ]]
    equals "$(dlock --status --json job | member message)" 'ticket 42: new index'
    dlock -v -w 20 job true 2>"$T/waiter" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 grep -q ': ticket 42: new index' "$T/waiter"
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    not grep -q ticket <<<"$(dlock --status job)"
    equals "$(dlock --status --json job | member message)" None
    [ "$BACKEND" = file ] || not grep -q ticket <<<"$(redis hgetall '{dlock:job}:meta')"
}

@test "--message of a shared holder, and of one that keeps the lock after its release, is shown" {
    hold_lock shared -t 60s -s --message=reading
    fails_with 75 ': reading$' dlock -v -n shared true
    end_hold
    wait "$HOLDER"
    dlock --hold-at-least=50s -t 60s --message='over soon' kept true
    run dlock --status kept
    [[ $status = 0 && $output == *'released, but kept'* && $output != *'over soon'* ]]
    dlock -s --hold-at-least=50s -t 60s --message='over soon' both true
    run dlock --status both
    [[ $status = 0 && $output == *'released, but kept'* && $output != *'over soon'* ]]
}

@test "DLOCK_MESSAGE sets the message, and --no-message removes it" {
    DLOCK_MESSAGE=from-ci dlock --acquire job >/dev/null
    equals "$(dlock --status --json job | member message)" from-ci
    DLOCK_MESSAGE=from-ci dlock --acquire --no-message other >/dev/null
    equals "$(dlock --status --json other | member message)" None
}

@test "--message has at most 256 bytes of UTF-8; control characters are escaped when it is shown" {
    local most
    most=$(printf '%0256d' 0)
    fails_with 64 '--message: too long: 257 bytes; at most 256 are allowed' dlock --message="${most}1" job true
    fails_with 64 "--message: .* is not valid UTF-8 at byte 3" dlock --message=$'ab\377' job true
    fails_with 64 '--message has no effect with --status' dlock --status --message=why job
    dlock --acquire -t 60s --message="$most" long >/dev/null
    equals "$(dlock --status --json long | member message)" "$most"
    fails_with 75 "$most" dlock -v -n long true
    dlock --acquire -t 60s --message=$'red \e[31m\nroot@host: free' ugly >/dev/null
    [[ $(dlock --status ugly) == *': red \x1B[31m\x0Aroot@host: free'* ]]
    fails_with 75 ': red \\x1B\[31m\\x0Aroot' dlock -v -n ugly true
    [[ $(dlock --list 'ugly') == *'red \x1B[31m\x0Aroot'* ]]
}

waiting() { [ "$(dlock --status --json "$2" | member waiters)" = "$1" ]; }

@test "--status -v and JSON list the waiters in order, with what the store knows about them" {
    local i pids=() hosts
    hold_lock job -t 60s
    for i in 1 2; do
        LOGNAME=ann$i dlock -w 60 --message="deploy $i" job true 3>&- 4>&- &
        pids+=($!)
        wait_until 10 waiting "$i" job
    done
    dlock -w 60 -s job true 3>&- 4>&- &
    pids+=($!)
    wait_until 10 waiting 3 job
    run dlock --status -v job
    not grep -q 'deploy' <<<"$(dlock --status job)"
    hosts=$(dlock --status --json job | python3 -c 'import json, sys; print([(w["host"], w["mode"]) for w in json.load(sys.stdin)["queue"]])')
    equals "$hosts" "[('$(hostname)', 'exclusive'), ('$(hostname)', 'exclusive'), ('$(hostname)', 'shared')]"
    case $BACKEND in
        redis)
            grep -qE "^  1\. ann1@$(hostname) [(]pid ${pids[0]}[)] since [0-9:]+ [+0-9]+, exclusive; message: deploy 1\$" <<<"$output"
            grep -qE "^  2\. ann2@$(hostname) [(]pid ${pids[1]}[)] since [0-9:]+ [+0-9]+, exclusive; message: deploy 2\$" <<<"$output"
            ;;
        file) grep -qE "^  1\. $(hostname), exclusive\$" <<<"$output" ;;
    esac
    grep -qE "^  3\. .*shared" <<<"$output"
    end_hold
    wait "$HOLDER"
    wait "${pids[@]}"
    equals "$(dlock --status --json job | member queue)" '[]'
}
