#!/usr/bin/env bats
# The fence of a lock rises with every acquisition, whatever happens in between.
load backend
load ../lib/fence

@test "the fence keeps rising after releases, after a killed holder, and after leases that end" {
    local i
    for i in {1..20}; do rises; done
    holder -t 2s
    killed
    rises
    holder -t 500ms
    is_stopped
    rises
}

@test "the fence keeps rising after a lock was removed or overwritten" {
    local what
    for what in steal overwrite; do
        holder
        $what job
        is_stopped
        is_clean job || steal job
        rises
    done
}

@test "the fence keeps rising after the store was emptied" {
    rises
    local i
    for i in {1..5}; do
        case $BACKEND in
            file) rm -r "$DLOCK_LOCK_DIR" ;;
            redis) redis flushall ;;
        esac
        rises
    done
}

@test "the fence keeps rising if the lock moves to another store" {
    rises
    case $BACKEND in
        file) DLOCK_LOCK_DIR=$T/other rises ;;
        redis)
            start_redis other
            rises -r "unix://$T/other.sock"
            ;;
    esac
    rises
}

@test "the fences of many processes rise in the order in which they acquired the lock" {
    local i takers=()
    for i in {1..6}; do
        sh -c 'for i in 1 2 3; do dlock -w 60 job -- sh -c "echo \$DLOCK_FENCE" >>"$T/fences" || exit; done' 3>&- 4>&- &
        takers+=($!)
    done
    for i in "${takers[@]}"; do wait "$i"; done
    equals "$(wc -l <"$T/fences")" 18
    sort -n -u -c "$T/fences"
}

@test "the fence keeps rising if the clock steps back, by little or much, and from there on" {
    use_own_wall
    local by
    rises
    off_by 0 "$LAST"
    for by in -1 -3600 -31536000 -3600 0 86400; do
        set_wall "$by"
        rises
        rises
    done
    off_by 86400 "$LAST"
    set_wall 0
    rises
    # The fence counts up from the highest one until the clock has caught up.
    off_by 86400 "$LAST"
    set_wall 172800
    rises
    off_by 172800 "$LAST"
}

@test "the fence keeps rising if the clock steps back while the lock is held" {
    use_own_wall
    rises
    holder -t 60s
    set_wall -3600
    killed
    steal job
    rises
}
