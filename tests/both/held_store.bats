#!/usr/bin/env bats
# A command finds the store of the lock that it runs under: DLOCK_HELD names it.
load backend

# STORE has the options for the test's store; the configuration names another store, without the lock.
set_store() {
    case $BACKEND in
        file) STORE=(--backend=file --lock-dir="$T/locks") ;;
        redis) STORE=(--backend=redis -r "unix://$T/redis.sock") ;;
    esac
    unset DLOCK_REDIS
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/configured
}

# Prints the DLOCK_HELD entry of an ended run in that store.
stale_line() {
    dlock "${STORE[@]}" "$@" job -- sh -c 'echo "$DLOCK_HELD"'
}

@test "the outer command line's store is used inside: for --current, --extend, --status, --wait-until-free, --pause, --release and the same lock" {
    set_store
    cat >"$T/inside.sh" <<'S'
set -x
dlock --current && dlock --extend --ttl=2h && dlock --status job && dlock -v job echo nested || exit
dlock --wait-until-free job; [ $? = 64 ] || exit
dlock --pause=1m --message=why job && dlock --resume job || exit
dlock --extend --owner="$DLOCK_HELD_OWNER" job && dlock --release && echo released
S
    run timeout 30 dlock "${STORE[@]}" -t 60s job -- sh "$T/inside.sh"
    equals "$status" 0
    [[ $output == *"job ($BACKEND), lease ends in "*'job: held, exclusive'*'already holds the lock'*nested*released ]]
    [ ! -e "$T/configured" ] # nothing is searched there
    # The prefix in DLOCK_HELD is part of the key.
    run timeout 20 dlock "${STORE[@]}" --prefix='p%& =:?' -t 60s job -- sh -c 'dlock --current && dlock -v job echo nested && dlock --force-release job; sleep 10'
    equals "$status" 124
    # The inner dlock's message may come too late, because the loss stops it.
    [[ $output == *"job ($BACKEND), lease ends in"*'already holds the lock'*nested* && $output == *'with --force-release; stopping'* ]]
    fails_with 64 'in another mode' timeout 20 dlock "${STORE[@]}" -s job -- dlock job echo wrong
    [ ! -e "$T/configured" ]
    # Hashed names work, too.
    (umask 077 && echo 'a secret of 16 bytes' >"$T/secret")
    cd "$T"
    fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" --secret-file=secret job -- sh -c 'cd / && dlock -v job true'
    mkdir -p "$HOME/.config/dlock" && echo "secret-file = $T/secret" >"$HOME/.config/dlock/dlock.conf"
    DLOCK_HASH=sha256 fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" job -- env -u DLOCK_HASH dlock -v job true
}

@test "--no-prefix and similar options of the inner command line override DLOCK_HELD" {
    set_store
    hold_lock job "${STORE[@]}"
    fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" --prefix=other: job -- dlock "${STORE[@]}" -v -n job true
    fails_with 75 '' timeout 20 dlock "${STORE[@]}" --prefix=other: job -- dlock "${STORE[@]}" --no-prefix -n job touch "$T/ran"
    fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" --hash=sha256 job -- dlock "${STORE[@]}" -v -n job true
    fails_with 75 '' timeout 20 dlock "${STORE[@]}" --hash=sha256 job -- dlock "${STORE[@]}" --no-hash -n job touch "$T/ran"
    [ ! -e "$T/ran" ]
    end_hold
    wait "$HOLDER"
}

@test "options of the inner command line take precedence over DLOCK_HELD, and DLOCK_HELD over the configuration" {
    set_store
    start_redis other
    export DLOCK_REDIS=unix://$T/other.sock DLOCK_BACKEND=auto
    case $BACKEND in
        redis) fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" job -- dlock -v job true ;;
        # A lock of this host alone does not replace the one that is configured for all hosts.
        file) fails_with 0 ': acquired \(redis' timeout 20 dlock "${STORE[@]}" job -- dlock -v job true ;;
    esac
    unset DLOCK_REDIS
    export DLOCK_BACKEND=file
    fails_with 0 'already holds the lock' timeout 20 dlock "${STORE[@]}" job -- dlock -v job true
    local option
    for option in "--redis=unix://$T/other.sock --backend=redis" '--backend=file'; do
        [[ $option == --backend=$BACKEND ]] && continue
        # shellcheck disable=SC2086
        fails_with 0 ': acquired \(' timeout 20 dlock "${STORE[@]}" job -- dlock -v $option job true
    done
    fails_with 0 ': acquired \(file' timeout 20 dlock "${STORE[@]}" job -- dlock -v --backend=file --lock-dir="$T/another" job true
    fails_with 0 ': acquired \(file' timeout 20 dlock "${STORE[@]}" job -- dlock -v --prefix=p: job true
}

@test "a lock of another name is in the configured store, whatever the lock around it" {
    set_store
    hold_lock other
    fails_with 75 'held by' timeout 20 dlock "${STORE[@]}" job -- dlock -v -n other true
    end_hold
    wait "$HOLDER"
}

@test "a stale DLOCK_HELD changes nothing: the lock is acquired in the configured store, without a message" {
    set_store
    local line
    line=$(stale_line)
    [[ $line == "$BACKEND"\?* ]]
    DLOCK_HELD=$line run dlock job -- sh -c 'ls "$T/configured"'
    equals "$status $output" '0 dlock:job.lock'
    # The lock is held there by another run, or under another name.
    hold_lock job "${STORE[@]}"
    DLOCK_HELD=$line run dlock job -- sh -c 'ls "$T/configured"'
    equals "$status $output" '0 dlock:job.lock'
    DLOCK_HELD=$line run dlock --status job
    equals "$status" 1
    end_hold
    wait "$HOLDER"
    # The store is gone for good.
    mv "$T/locks" "$T/gone" 2>/dev/null || kill -KILL "$(cat "$T/redis.pid")"
    DLOCK_HELD=$line run timeout 20 dlock job -- sh -c 'ls "$T/configured"'
    equals "$status $output" '0 dlock:job.lock'
    [ ! -e "$T/locks" ]
}

@test "an attached script finds the store of its lock; one in a lock directory needs --lock-dir" {
    set_store
    local inside=()
    [ "$BACKEND" = redis ] || inside=(--lock-dir="$T/locks") # the lock's record is in that directory
    INSIDE=${inside[*]} run timeout 30 sh -c 'dlock "$@" --attach job || exit
        dlock $INSIDE --current && dlock $INSIDE --extend && dlock $INSIDE --release && echo ok' sh "${STORE[@]}"
    equals "$status" 0
    [[ $output == "job ($BACKEND), lease ends in"*ok ]]
}

@test "a DLOCK_HELD that names no valid store is ignored, even if its token holds the lock" {
    hold_lock job -t 60s
    local rest word
    rest=$(tr '\0' '\n' <"/proc/$(cat "$T/held")/environ" | sed -n 's/^DLOCK_HELD=[^ ]* //p')
    for word in '=' 'x=y' 'lock-dir' 'lock-dir=' "lock-dir=$T/none" 'lock-dir=relative' 'lock-dir=%' 'lock-dir=%00' 'ttl=1s' 'redis=' 'redis=http://x' \
        'redis=unix:///nowhere&cacert=/nowhere' 'password-file=/nowhere' 'prefix=%0A' 'prefix=p:' '&&&'; do
        DLOCK_HELD="$BACKEND?$word $rest" run timeout 20 dlock -n job echo wrong
        equals "$status" 75
    done
    [ ! -e "$T/none" ]
    fails_with 0 'already holds the lock' env DLOCK_HELD="$BACKEND $rest" dlock -v -n job true # the store is the right one
    end_hold
    wait "$HOLDER"
}
