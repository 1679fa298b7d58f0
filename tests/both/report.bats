#!/usr/bin/env bats
# What programs can read about a run: --report and --json.
load backend

# report LINE EXPRESSION: evaluates it for the object `r` in this line of the report.
report() { sed -n "$1p" "$T/report" | python3 -c 'import json, sys; r = json.load(sys.stdin); print(eval(sys.argv[1]))' "$2"; }

@test "--report writes one line for each run, whatever its result" {
    run dlock --report="$T/report" -t 60s job -- sh -c 'sleep 0.2; exit 3'
    equals "$status" 3
    equals "$(report 1 '(r["key"], r["full_key"], r["backend"], r["acquired"], r["lost"], r["status"], r["error"], r["mode"], r["slot"])')" \
        "('job', 'dlock:job', '$BACKEND', True, False, 3, None, 'exclusive', None)"
    equals "$(report 1 '0.2 <= r["held"] < 10 and 0 <= r["waited"] < 10 and r["fence"] > 0 and r["command"] == "sh"')" True
    hold_lock job -t 60s
    fails_with 75 '' dlock --report="$T/report" -n job true
    fails_with 75 '' dlock --report="$T/report" -w 0.3 job true
    dlock --report="$T/report" -w 60 job true 3>&- 4>&- &
    local waiter=$!
    sees_waiter() { dlock --status job | grep -q '1 waiting'; }
    wait_until 10 sees_waiter
    kill -TERM "$waiter"
    status=0
    wait "$waiter" || status=$?
    equals "$status" 143
    end_hold
    wait "$HOLDER"
    equals "$(report 2 '(r["acquired"], r["status"], r["error"], r["fence"])')" "(False, 75, 'LOCK_ACQUISITION_FAILED', None)"
    equals "$(report 3 '(r["acquired"], r["status"], r["error"], r["waited"] >= 0.3)')" "(False, 75, 'LOCK_TIMEOUT', True)"
    equals "$(report 4 '(r["acquired"], r["status"])')" '(False, 143)'
    fails_with 124 '' dlock --report="$T/report" -t 1s --grace=0.5 job sleep 30
    equals "$(report 5 '(r["lost"], r["status"], r["error"])')" "(True, 124, 'LOCK_LOST')"
    fails_with 127 '' dlock --report="$T/report" job nosuchcommand
    equals "$(report 6 'r["status"]')" 127
    run timeout 20 dlock -t 60s job -- dlock --report="$T/report" job true
    equals "$(report 7 '(r["nested"], r["acquired"])')" '(True, False)'
    fails_with 127 '' timeout 20 dlock -t 60s job -- dlock --report="$T/report" job nosuchcommand
    equals "$(wc -l <"$T/report")" 8
}

@test "--report to a file that cannot be written is reported before anything is locked or run" {
    fails_with 73 'cannot open the report' dlock --report="$T/nosuch/report" job touch "$T/ran"
    fails_with 73 'cannot open the report' dlock --report="$T" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    fails_with 3 'cannot write the report' dlock --report=/dev/full job -- sh -c 'exit 3'
    is_clean job
}

@test "--report: many runs at once write whole lines" {
    local i
    for i in {1..20}; do dlock --report="$T/report" "job$i" true 3>&- 4>&- & done
    wait
    equals "$(wc -l <"$T/report")" 20
    python3 -c 'import json, sys; assert len({json.loads(line)["key"] for line in open(sys.argv[1])}) == 20' "$T/report"
}

# code STATUS CODE COMMAND...
code() {
    local want=$1 code=$2
    shift 2
    status=0
    output=$("$@" 2>"$T/err" 3>&- 4>&-) || status=$?
    equals "$status" "$want"
    equals "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["error"]["code"])' "$output")" "$code"
}

@test "--json: every failure of a run is one object on stdout, and nothing is reported twice" {
    hold_lock job -t 60s
    local start
    start=$(now)
    code 75 LOCK_ACQUISITION_FAILED dlock --json -n job true
    [ ! -s "$T/err" ]
    equals "$(python3 -c '
import json, sys
error = json.loads(sys.argv[1])["error"]
waited = error["details"]["waited"]
print(error["retryable"], error["details"]["key"], error["details"]["full_key"], 0 <= waited * 1000 <= float(sys.argv[2]) or waited)' \
        "$output" $(($(now) - start)))" 'True job dlock:job True'
    code 75 LOCK_TIMEOUT dlock --json -w 0.2 job true
    end_hold
    wait "$HOLDER"
    code 124 LOCK_LOST dlock --json -t 1s --grace=0.5 job sleep 30
    code 64 INVALID_ARGUMENT dlock --json --ttl=x job true
    code 64 INVALID_ARGUMENT dlock --json
    code 64 INVALID_ARGUMENT dlock --json "$(printf 'a\xff')" true
    code 64 INVALID_ARGUMENT dlock --nosuchoption --json job true
    DLOCK_TTL=x code 78 INVALID_CONFIG dlock --json job true
    code 69 SERVICE_UNAVAILABLE dlock --json --retry-for=0.2 --backend=redis -r "unix://$T/nosuch.sock" job true
    DLOCK_JSON=yes code 64 INVALID_ARGUMENT dlock --ttl=x --json job true
    # The command's own output stays as it is.
    run dlock --json job echo hello
    equals "$output" hello
}
