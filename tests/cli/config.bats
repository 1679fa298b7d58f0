#!/usr/bin/env bats
load ../lib/common
setup() {
    common_setup
    export DLOCK_LOCK_DIR=$T/locks XDG_CONFIG_HOME=$T/config
    mkdir -p "$T/config/dlock"
    CONF=$T/config/dlock/dlock.conf
    echo 'backend = file' >"$CONF"
}

ttl() { dlock "$@" -- sh -c 'echo $DLOCK_HELD_TTL'; }

@test "the command line beats the environment, which beats the user's file, which beats the system's" {
    export SYSTEM_CONF=$T/system.conf LD_PRELOAD=$HELPERS/fault_system_conf.so
    printf 'ttl = 11\n[lock special]\nttl = 12\n' >"$SYSTEM_CONF"
    equals "$(ttl job)" 11
    equals "$(ttl special)" 12
    printf 'ttl = 21\n[lock special]\nttl = 22\n' >>"$CONF"
    equals "$(ttl job)" 21
    equals "$(ttl special)" 22
    export DLOCK_TTL=31
    equals "$(ttl job)" 31
    equals "$(ttl special)" 31
    equals "$(ttl --ttl=41 job)" 41
    equals "$(ttl job --ttl=41)" 41
}

@test "the files of dlock.conf.d are read after the system's, in the order of their names; all sections come after all keys" {
    export SYSTEM_CONF=$T/system.conf LD_PRELOAD=$HELPERS/fault_system_conf.so
    mkdir "$SYSTEM_CONF.d"
    local system=$(dlock --print-config | sed -n '1s/^; \(.*\): .*/\1/p') # by --sysconfdir
    printf 'ttl = 11\nwait = 1\n[lock app:*]\nttl = 12\n' >"$SYSTEM_CONF"
    printf 'ttl = 21\ngrace = 2\n[lock app:x]\nttl = 22\n' >"$SYSTEM_CONF.d/20-app.conf"
    printf 'ttl = 31\ngrace = 3\n[lock app:*]\nretry-for = 3\n' >"$SYSTEM_CONF.d/10-role.conf"
    echo 'ttl = 41' | tee "$SYSTEM_CONF.d/.hidden.conf" "$SYSTEM_CONF.d/30.conf.dpkg-new" >"$SYSTEM_CONF.d/40"
    shown() { dlock --print-config "$1" | sed -n "s|$SYSTEM_CONF.d/||; s/^\(ttl\|wait\|grace\|retry-for\) = \([0-9]*\) *; /\1=\2 /p"; }
    equals "$(shown job)" "wait=1 $system:2: wait"$'\nttl=21 20-app.conf:1: ttl\ngrace=2 20-app.conf:2: grace'
    equals "$(shown app:y)" "wait=1 $system:2: wait"$'\n'"ttl=12 $system:4: ttl"$'\ngrace=2 20-app.conf:2: grace\nretry-for=3 10-role.conf:4: retry-for'
    equals "$(ttl app:x)" 22
    equals "$(dlock --print-config job | sed -n 's/^; \(.*\): read$/\1/p')" \
        "$system"$'\n'"$SYSTEM_CONF.d/10-role.conf"$'\n'"$SYSTEM_CONF.d/20-app.conf"$'\n'"$CONF"
    run dlock --doctor app:x
    equals "$(sed -n 's/^ *ok *read *//p' <<<"$output")" \
        "$system"$'\n'"$SYSTEM_CONF.d/10-role.conf"$'\n'"$SYSTEM_CONF.d/20-app.conf"$'\n'"$CONF"
    echo 'ttl = 51' >>"$CONF" # the user's keys take precedence over the system's sections
    equals "$(ttl app:x)" 51
}

@test "an invalid file in dlock.conf.d, or a directory that others can write to, is an error naming it" {
    export SYSTEM_CONF=$T/system.conf LD_PRELOAD=$HELPERS/fault_system_conf.so
    mkdir "$SYSTEM_CONF.d"
    printf '\ntll = 5\n' >"$SYSTEM_CONF.d/a.conf"
    fails_with 78 "$SYSTEM_CONF.d/a.conf:2: tll: unknown key" dlock job touch "$T/ran"
    ln -sf "$T/none" "$SYSTEM_CONF.d/a.conf" # like a file that was removed just now
    dlock job true
    mkdir "$SYSTEM_CONF.d/b.conf"
    fails_with 78 "$SYSTEM_CONF.d/b.conf: not a regular file" dlock job touch "$T/ran"
    rmdir "$SYSTEM_CONF.d/b.conf"
    echo 'ttl = 5' >"$SYSTEM_CONF.d/c.conf"
    chmod o+w "$SYSTEM_CONF.d"
    fails_with 78 "$SYSTEM_CONF.d: others can write to this path; use chmod o-w" dlock job touch "$T/ran"
    mv "$SYSTEM_CONF.d" "$T/away"
    ln -s system.conf.d "$SYSTEM_CONF.d" # a link to itself
    fails_with 78 'cannot list .*/dlock.conf.d/\*.conf: ' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "without XDG_CONFIG_HOME the user's file is in ~/.config" {
    unset XDG_CONFIG_HOME
    mkdir -p "$HOME/.config/dlock"
    printf 'backend = file\nttl = 51\n' >"$HOME/.config/dlock/dlock.conf"
    equals "$(ttl job)" 51
    XDG_CONFIG_HOME=relative/path
    export XDG_CONFIG_HOME
    equals "$(ttl job)" 51
}

# waits_as WANTED COMMAND...: the code of the failure shows whether the command has waited for a held lock.
waits_as() {
    local wanted=$1
    shift
    run "$@"
    equals "$status" 75
    [[ $output == *"\"code\":\"$wanted\""* ]] || { echo "$* : $output"; false; }
}

@test "-n and -w: the last one counts, even in a file; of the variables DLOCK_WAIT counts" {
    local no=LOCK_ACQUISITION_FAILED yes=LOCK_TIMEOUT
    hold_lock job
    waits_as $yes dlock --json -n -w 0.1 job true
    waits_as $no dlock --json -w 60 -n job true
    waits_as $no dlock --json -w 60 job -n true
    DLOCK_NONBLOCK=yes DLOCK_WAIT=0.1 waits_as $yes dlock --json job true
    DLOCK_WAIT=60 waits_as $no dlock --json -n job true
    DLOCK_NONBLOCK=yes waits_as $yes dlock --json -w 0.1 job true
    echo 'nonblock = yes' >>"$CONF"
    waits_as $no dlock --json job true
    waits_as $yes dlock --json -w 0.1 job true
    printf 'wait = 0.1\n' >>"$CONF"
    waits_as $yes dlock --json job true
    waits_as $no dlock --json -n job true
    printf '[lock job]\nnonblock = yes\n' >>"$CONF"
    waits_as $no dlock --json job true
    DLOCK_WAIT=0.1 waits_as $yes dlock --json job true
    end_hold
}

@test "--print-config shows which of -n and -w counts, and its output is a valid dlock.conf" {
    printf 'nonblock = yes\nwait = 5\n' >>"$CONF"
    shown() { dlock --print-config "$@" | grep -E '^(nonblock|wait) ' | tr -s ' '; }
    equals "$(shown job)" "nonblock = no ; $CONF:3: wait"$'\n'"wait = 5 ; $CONF:3: wait"
    equals "$(shown -w 7 job)" $'nonblock = no ; --wait\nwait = 7 ; --wait'
    equals "$(shown -n job)" $'nonblock = yes ; --nonblock\nwait = 0 ; --nonblock'
    dlock --print-config -n job >"$T/printed"
    cp "$T/printed" "$CONF"
    hold_lock job
    waits_as LOCK_ACQUISITION_FAILED dlock --json job true
    # A nonblock without a wait works too.
    echo 'backend = file' >"$CONF"
    echo 'nonblock = yes' >>"$CONF"
    dlock --print-config job >"$T/printed"
    equals "$(grep -E '^(nonblock|wait) ' "$T/printed" | tr -s ' ')" "nonblock = yes ; $CONF:2: nonblock"$'\nwait = 0 ; default'
    waits_as LOCK_ACQUISITION_FAILED dlock --config="$T/printed" --json job true
    end_hold
}

@test "--print-config shows which mode, and which of -v and -q, counts, and its output is a valid dlock.conf" {
    printf 'slots = 3\n[lock j2*]\nexclusive = yes\n' >>"$CONF"
    in_force() { # in_force WANTED OPTIONS...: checks twice, the second time with the printed file.
        local wanted=$1 names='^(exclusive|shared|slots|verbose|quiet) = '
        shift
        dlock --print-config "$@" >"$T/printed"
        equals "$(grep -E "$names" "$T/printed" | grep -v ' = no ' | cut -d' ' -f1-3 | tr '\n' ' ')" "$wanted "
        env -u DLOCK_SLOTS -u DLOCK_SHARED -u DLOCK_VERBOSE dlock --config="$T/printed" --print-config >"$T/again"
        equals "$(grep -E "$names" "$T/again" | cut -d' ' -f1-3)" "$(grep -E "$names" "$T/printed" | cut -d' ' -f1-3)"
    }
    in_force 'slots = 3' x
    in_force 'exclusive = yes' j2x
    grep -qxE "; slots +; $CONF:4: exclusive" "$T/printed"
    in_force 'slots = 3' -s --slots=3 x
    grep -qxE 'shared = no +; --slots' "$T/printed"
    in_force 'shared = yes' --slots=3 -s x
    DLOCK_SLOTS=3 in_force 'exclusive = yes' -x x
    DLOCK_SLOTS=3 in_force 'exclusive = yes' --no-slots x
    DLOCK_SHARED=yes DLOCK_VERBOSE=yes in_force 'exclusive = yes' --no-shared --no-verbose x
    in_force 'exclusive = yes verbose = yes' -x -q -v x
    in_force 'exclusive = yes quiet = yes' -x -v -q x
}

@test "--print-config shows a value that no file can set as a comment that says so" {
    local setting option name
    for setting in 'prefix=app ; v2:' 'prefix=; v2:' 'prefix= app:' 'message=app ' $'message=a\tb' 'message=; x' lock-dir=here lock-file=here; do
        option=${setting%%=*}
        [ $option = lock-file ] && name=--name=job || name=job
        dlock "--$setting" --print-config $name >"$T/printed"
        grep -qE "^; $option = .* ; --$option; cannot be set in a file$" "$T/printed" || { echo "$setting"; false; }
        env -u DLOCK_LOCK_DIR dlock --config="$T/printed" --print-config job >"$T/again"
        not grep -qE "^$option = .*; $T/printed" "$T/again"
    done
    dlock --message='a;b # c = "d"' --lock-dir="$T/with blank" --print-config job >"$T/printed"
    not grep -q 'cannot set' "$T/printed"
    dlock --config="$T/printed" --print-config job | grep -qE "^message = a;b # c = \"d\" +; $T/printed"
}

@test "a setting of no overrides a yes from a weaker source" {
    printf 'nonblock = yes\nquiet = yes\n[lock job]\nnonblock = no\nquiet = no\n' >>"$CONF"
    hold_lock job
    local start=$(now)
    dlock -w 0.3 job true || [ $? -eq 75 ]
    [ $(($(now) - start)) -ge 300 ]
    DLOCK_VERBOSE=yes run dlock -w 0 job true
    [[ $output == *'held by'* ]]
    end_hold
    wait "$HOLDER"
}

# Valid and invalid values in a file are tested in tests/unit/test_options.c.
@test "an invalid file: exit 78 naming the file, line and key, or the line or file that is too long; nothing is run" {
    printf 'backend = file\ntll = 5\n' >"$CONF"
    fails_with 78 "^dlock: job: $CONF:2: tll: unknown key; did you mean ttl\?$" dlock job touch "$T/ran"
    printf 'backend = file\n[lock zzz]\n\n[locks b]\n' >"$CONF"
    fails_with 78 "^dlock: job: $CONF:4: \[locks b\]: unknown section" dlock job touch "$T/ran"
    echo 'redis = http://x' >"$CONF"
    fails_with 78 "$CONF:1: redis: http:// is an unknown scheme; expected redis://" dlock job touch "$T/ran"
    local comment=$(printf '%65534s' '')
    printf 'backend = file\n#%s \n' "$comment" >"$CONF"
    dlock job true
    printf 'backend = file\n#%s ' "$comment" >"$CONF" # the last line needs no newline, even if it just fits
    dlock job true
    printf 'backend = file\n#%s  ' "$comment" >"$CONF"
    fails_with 78 "$CONF:2: the line is longer than 65536 bytes" dlock job touch "$T/ran"
    yes 'grace = 5' | head -n 10000 >"$CONF"
    dlock job true
    echo >>"$CONF"
    fails_with 78 "$CONF:10001: too many lines; a file can have at most 10000" dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a line with a NUL byte is an error, and is not read only as far as the NUL" {
    local line
    for line in 'ttl = 1\0000h\n' '\0ttl = 1\nwait = 1\n' '# \0\n' '[lock other\0]\n' 'ttl = 1\n\0'; do
        printf 'backend = file\n'"$line" >"$CONF"
        fails_with 78 "$CONF:[23]: the line contains a NUL byte" dlock job touch "$T/ran"
    done
    printf '\0' >"$CONF"
    fails_with 78 "$CONF:1: the line contains a NUL byte" dlock job touch "$T/ran"
    truncate -s 3G "$CONF"
    fails_with 78 "$CONF:1: the line contains a NUL byte" dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a file that cannot be read is an error, a missing one is not" {
    ln -sf dlock.conf "$CONF"
    fails_with 78 'cannot read .*dlock.conf: (Too many levels|Symbolic link loop)' dlock job touch "$T/ran"
    rm "$CONF"
    mkdir "$CONF"
    fails_with 78 "$CONF: not a regular file" dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    rmdir "$CONF" "$T/config/dlock"
    run dlock --backend=file job true
    [ "$status" -eq 0 ]
}

@test "a file with a password that others can read is refused" {
    echo 'redis = redis://user:secret@localhost/' >"$CONF"
    chmod 644 "$CONF"
    fails_with 78 "$CONF:1: redis: the value has a password, but other users can read this file" dlock job touch "$T/ran"
    [[ $output != *secret* ]]
    chmod 640 "$CONF"
    run dlock --backend=file job true
    [ "$status" -eq 0 ]
}

@test "an invalid variable: exit 78 naming it, without a password that it holds by mistake" {
    DLOCK_TTL=never fails_with 78 "DLOCK_TTL: 'never': not a number" dlock job touch "$T/ran"
    DLOCK_CONFLICT_EXIT_CODE=x fails_with 78 "DLOCK_CONFLICT_EXIT_CODE: 'x'" dlock job touch "$T/ran"
    DLOCK_GRACE=2h fails_with 78 'DLOCK_GRACE: must be shorter than the lease' dlock job touch "$T/ran"
    DLOCK_REDIS=foo://bar DLOCK_BACKEND=redis fails_with 78 'DLOCK_REDIS: foo:// is an unknown scheme; expected redis://' dlock job touch "$T/ran"
    DLOCK_BACKEND=redis://u:hunter2@h fails_with 78 'DLOCK_BACKEND: the value is a URL with a password; only --redis may contain one' dlock job touch "$T/ran"
    [[ $output != *hunter2* ]]
    fails_with 64 '"error".*the value is a URL with a password; only --redis may contain one' dlock --json --ttl=redis://u:hunter2@h job touch "$T/ran"
    [[ $output != *hunter2* ]]
    [ ! -e "$T/ran" ]
}

@test "--status of several names checks each in the store of its own section, and fails if one cannot be reached" {
    unset DLOCK_LOCK_DIR
    mkdir -m 700 "$T/a" "$T/b"
    printf 'on-degraded = proceed\n[lock a*]\nlock-dir = %s\n[lock b*]\nlock-dir = %s\n[lock c*]\nredis = unix://%s\n[lock d*]\nttl = x\n' \
        "$T/a" "$T/b" "$T/nosuch.sock" >"$CONF"
    dlock --lock-dir="$T/a" --acquire a1
    dlock --lock-dir="$T/b" --acquire b1
    dlock --lock-dir="$T/b" --acquire a2
    run dlock --status a1 b1
    equals "$status" 0
    run dlock --status a1 a2 b1
    equals "$status $(grep -o '^[a-z0-9]*: [a-z]*' <<<"$output" | tr '\n' ' ')" '1 a1: held a2: free b1: held '
    run dlock --retry-for=0 --status a2 c1 b1
    equals "$status" 69
    [[ $output == *'a2: free'*'dlock: c1: '*'nosuch.sock'*'b1: held'* ]]
    run dlock --retry-for=0 --json --status c1 a1 d1
    equals "$status" 69
    equals "$(grep -oE '"(code|full_key)":"[^"]*"' <<<"$output" | paste -sd ' ')" \
        '"code":"SERVICE_UNAVAILABLE" "full_key":"dlock:c1" "full_key":"dlock:a1" "code":"INVALID_CONFIG"'
    run dlock --status a1 d1 c1 --retry-for=0
    equals "$status" 78
    run dlock --json --scope=x --secret-file="$T/nosuch" --status a1 b1
    equals "$status $(grep -o '"key":"[ab]1","scope":"x"' <<<"$output" | tr '\n' ' ')" '78 "key":"a1","scope":"x" "key":"b1","scope":"x" '
}

@test "a relative lock directory or lock file in a file or a variable, which would differ in each directory: exit 78" {
    local name
    cd "$T"
    for name in lock-dir lock-file; do
        printf 'backend = file\n%s = here\n' "$name" >"$CONF"
        DLOCK_LOCK_DIR='' fails_with 78 "$CONF:2: $name: 'here': a relative path would be a different lock" dlock job touch "$T/ran"
    done
    echo 'backend = file' >"$CONF"
    DLOCK_LOCK_DIR=here fails_with 78 "DLOCK_LOCK_DIR: 'here'" dlock job touch "$T/ran"
    DLOCK_LOCK_FILE=here fails_with 78 "DLOCK_LOCK_FILE: 'here'" dlock job touch "$T/ran"
    not compgen -G "$T/ran"
    not compgen -G "$T/here*"
    dlock --lock-dir=here job true
    dlock --lock-file=here.lock true
}

@test "every option that may be in a file may be in the environment, and vice versa" {
    local name value variable
    while read -r name value; do
        printf '%s = %s\n' "$name" "$value" >"$CONF"
        run dlock --backend=file job true
        equals "$name:$status" "$name:0"
        : >"$CONF"
        variable=DLOCK_$(tr a-z- A-Z_ <<<"$name")
        run env "$variable=$value" dlock --backend=file job true
        equals "$variable:$status" "$variable:0"
    done <<C
exclusive yes
nonblock yes
wait 1
conflict-exit-code 3
ttl 5
owner me
prefix p
redis unix:///nowhere
backend file
lock-dir $T/other
on-degraded fail
fallback file
connect-timeout 1
retry-for 1
on-expire warn
stop-signal INT
grace 1
verbose no
quiet yes
C
}

@test "several redis lines in a section name one server each; lines in other sections or sources add none" {
    local letter
    for letter in a b c d e; do
        echo "redis = redis://$letter.with-a-name-as-long-as-they-are-in-production.example:6379/0"
    done >>"$CONF"
    printf '[lock one]\nredis = redis://f.example\n[lock *]\nttl = 5\n' >>"$CONF"
    servers() { dlock --print-config "$@" | sed -n 's/^redis = \(.*\) ;.*/\1/p' | grep -oE 'redis://[a-z]' | grep -o '.$' | tr -d '\n'; }
    equals "$(servers job)" abcde
    equals "$(servers one)" f
    equals "$(servers -r redis://g job)" g
    equals "$(DLOCK_REDIS=redis://h servers job)" h
}

@test "a HOME that belongs to another user is reported only if it cannot be searched" {
    local nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_CONFIG_HOME -u DLOCK_LOCK_DIR)
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    mkdir -m 700 "$T/roots" "$T/theirs"
    chown 65534 "$T/theirs"
    fails_with 78 "^dlock: job: cannot read $T/roots/.config/dlock/dlock.conf: Permission denied; the directory in HOME belongs to user root; set HOME or XDG_CONFIG_HOME$" \
        "${nobody[@]}" HOME="$T/roots" "$DLOCK" --backend=file job -- id
    fails_with 78 'Permission denied; the directory in XDG_CONFIG_HOME belongs to user root; set HOME or XDG_CONFIG_HOME$' \
        "${nobody[@]}" HOME="$T/theirs" XDG_CONFIG_HOME="$T/roots" "$DLOCK" --backend=file job -- id
    chown 4242424 "$T/roots"
    fails_with 78 'HOME belongs to user 4242424; set HOME' "${nobody[@]}" HOME="$T/roots" "$DLOCK" --backend=file job -- id
    # For the user's own HOME with a file of root's, the advice is about the file, not HOME.
    mkdir -p "$T/theirs/.config/dlock"
    install -m 600 /dev/null "$T/theirs/.config/dlock/dlock.conf"
    chown 65534 "$T/theirs/.config" "$T/theirs/.config/dlock"
    fails_with 78 'cannot read .*dlock.conf: Permission denied$' "${nobody[@]}" HOME="$T/theirs" "$DLOCK" --backend=file job -- id
    rm "$T/theirs/.config/dlock/dlock.conf"
    run "${nobody[@]}" HOME="$T/theirs" "$DLOCK" --backend=file --lock-dir="$T/theirs/locks" job -- id -u
    equals "$status $output" '0 65534'
}

@test "a variable with a misspelled name is warned about once, with the right name" {
    DLOCK_OUTAGE=5 fails_with 0 '^dlock: job: DLOCK_OUTAGE: unknown variable; did you mean DLOCK_RETRY_FOR\?$' dlock job true
    DLOCK_KEY=/f fails_with 0 'DLOCK_KEY: unknown variable; did you mean DLOCK_CLIENT_KEY\?$' dlock job true
    DLOCK_TLL=5 fails_with 0 '^dlock: job: DLOCK_TLL: unknown variable; did you mean DLOCK_TTL\?$' dlock job dlock other true
    equals "${#lines[@]}" 1
    DLOCK_REDIS_URL=redis://x fails_with 0 '^dlock: job: DLOCK_REDIS_URL: .* DLOCK_REDIS\?$' dlock job true
    DLOCK_TIMEOUT=5 fails_with 1 'DLOCK_TIMEOUT: .* DLOCK_WAIT\?$' dlock --status job # an alias has no variable
    DLOCK_TLL=5 fails_with 0 '^$' dlock -q job true
    DLOCK_HOST=x fails_with 0 '^$' dlock job true
}

@test "variables that Kubernetes sets for Services named dlock and dlock-redis are not taken for settings: no warning" {
    local service links=()
    for service in DLOCK DLOCK_REDIS DLOCK_REDIS_REPLICA; do
        links+=("${service}_SERVICE_HOST=10.0.0.1" "${service}_SERVICE_PORT=6379" "${service}_SERVICE_PORT_TCP_REDIS=6379"
            "${service}_PORT=tcp://10.0.0.1:6379" "${service}_PORT_6379_TCP=tcp://10.0.0.1:6379" "${service}_PORT_6379_TCP_PROTO=tcp"
            "${service}_PORT_6379_TCP_PORT=6379" "${service}_PORT_6379_TCP_ADDR=10.0.0.1" "${service}_PORT_53_UDP_ADDR=10.0.0.1")
    done
    run env "${links[@]}" dlock job echo ran
    equals "$status $output" '0 ran'
    run env "${links[@]}" dlock --doctor job
    [[ $output != *SERVICE* && $output != *PORT* ]]
    # A variable that only resembles one of them is reported as before.
    DLOCK_REDIS_PORTS=x fails_with 0 'DLOCK_REDIS_PORTS: unknown variable; did you mean DLOCK_REDIS\?$' dlock job true
}

@test "actions cannot be set in a configuration file or the environment" {
    DLOCK_RELEASE=yes DLOCK_STATUS=yes run dlock job echo ran
    equals "$status $output" '0 ran'
    echo 'acquire = yes' >"$CONF"
    fails_with 78 'acquire' dlock job echo ran
}

@test "the command line unsets what a file or a variable sets" {
    printf 'tree = yes\nreport = %s\nwait = 5s\nfallback = file\nttl = 21\nredis = redis://x\n' "$T/report" >>"$CONF"
    in_force() { dlock --print-config "$@" job | grep -oE '^#? ?(tree|report|wait|fallback|ttl|redis) = *[^ ]*' | tr -d '# ' | tr '\n' ' '; }
    equals "$(in_force)" "wait=5s ttl=21 tree=yes redis=redis://x:6379/0 report=$T/report fallback=file "
    equals "$(in_force --no-tree --report= --wait=infinity --fallback=off --no-ttl --no-redis)" 'wait=infinity ttl=1h tree=no report=; fallback=off '
    equals "$(in_force --tree=no --no-report --wait=forever --no-fallback | tr ' ' '\n' | grep -E 'tree|report|wait|fallback' | sort | tr '\n' ' ')" 'fallback=off tree=no wait=forever '
    equals "$(in_force --tree=off --no-report | grep -oE 'tree=[a-z]+') $(in_force --tree=on | grep -oE 'tree=[a-z]+')" 'tree=no tree=yes'
    fails_with 0 '^$' dlock --no-report --backend=file job true
    [ ! -e "$T/report" ]
    DLOCK_TTL=31 fails_with 0 '^3600$' dlock --no-ttl --backend=file job -- sh -c 'echo $DLOCK_HELD_TTL'
    DLOCK_TTL=31 fails_with 0 '^41$' dlock --ttl=51 --no-ttl --ttl=41 --backend=file job -- sh -c 'echo $DLOCK_HELD_TTL'
    echo 'wait = forever' >"$CONF"
    dlock --print-config job | grep -q '^wait = forever'
    # A wait of 0 is reported as -n, not as a wait without end.
    dlock --backend=file --acquire job >/dev/null
    fails_with 75 '' dlock --backend=file --no-wait job true
    fails_with 64 "--tree: 'maybe': must be yes or no" dlock --tree=maybe job touch "$T/ran"
    fails_with 64 '--no-nosuch: unknown option' dlock --no-nosuch job touch "$T/ran"
    fails_with 64 '--no-status: unknown option' dlock --no-status job touch "$T/ran"
}

@test "--config and DLOCK_CONFIG replace the user's and the system's file" {
    export SYSTEM_CONF=$T/system.conf LD_PRELOAD=$HELPERS/fault_system_conf.so
    printf 'ttl = 11\nwait = 3s\n' >"$SYSTEM_CONF"
    printf 'ttl = 21\n' >>"$CONF"
    printf 'backend = file\n[lock job]\nttl = 31\n' >"$T/own.conf"
    values() { dlock --print-config "$@" job | grep -oE '^(; /.*|(ttl|wait) = [^ ]*)' | sed 's/ = /=/' | tr '\n' ' '; }
    equals "$(values --config="$T/own.conf")" "; $T/own.conf: read wait=infinity ttl=31 "
    equals "$(DLOCK_CONFIG=$T/own.conf values)" "; $T/own.conf: read wait=infinity ttl=31 "
    equals "$(DLOCK_CONFIG=$T/none values --config="$T/own.conf")" "; $T/own.conf: read wait=infinity ttl=31 "
    [[ $(DLOCK_CONFIG='' values) == *"wait=3s ttl=21 " ]]
    fails_with 78 "cannot read $T/none: No such file" dlock --config="$T/none" job touch "$T/ran"
    fails_with 64 "--config: '': the path is empty" dlock --config= job touch "$T/ran"
    echo "config = $T/none" >"$T/own.conf"
    fails_with 78 'own.conf:1: config: unknown key' dlock --config="$T/own.conf" job touch "$T/ran"
    : >"$T/own.conf"
    fails_with 0 "no Redis is configured \(DLOCK_REDIS, $T/own.conf\);" dlock --config="$T/own.conf" job true
    [ ! -e "$T/ran" ]
}
