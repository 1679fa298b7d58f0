# The tests in this folder run once for each backend: BACKEND is "file" or "redis".
# tests/run names it by the folder in which it shows a test. What differs between the
# backends is here.
# shellcheck shell=bash
# shellcheck source=tests/lib/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.bash"
case $BATS_TEST_DIRNAME in
    */file/both) BACKEND='file' ;;
    */redis/both) BACKEND='redis' ;;
    *) : "${BACKEND:=file}" ;;
esac
export BACKEND # some commands under dlock read this file in a shell of their own

setup() {
    common_setup
    case $BACKEND in
        file)
            export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
            ;;
        redis)
            start_redis redis
            export DLOCK_REDIS=unix://$T/redis.sock
            ;;
    esac
}

# Whether the store holds this lock.
is_locked() {
    case $BACKEND in
        file) [ -e "$T/locks/dlock:$1.lock" ] && ! flock -n "$T/locks/dlock:$1.lock" true ;;
        redis) [ "$(redis exists "dlock:$1")" = 1 ] ;;
    esac
}

# Whether nothing of this lock is left that could be in somebody's way.
is_clean() {
    case $BACKEND in
        file) [ ! -e "$T/locks/dlock:$1.lock" ] ;;
        redis) [ "$(redis exists "dlock:$1")" = 0 ] ;;
    esac
}

# Takes the lock away from its holder.
steal() {
    case $BACKEND in
        file) rm "$T/locks/dlock:$1.lock" ;;
        redis) redis del "dlock:$1" ;;
    esac
}

# Puts another owner in; is_theirs: whether that is there as it was put.
overwrite() {
    case $BACKEND in
        file) echo other >"$T/new" && mv "$T/new" "$T/locks/dlock:$1.lock" ;;
        redis) redis set "dlock:$1" other ;;
    esac
}
is_theirs() {
    case $BACKEND in
        file) [ "$(cat "$T/locks/dlock:$1.lock")" = other ] ;;
        redis) [ "$(redis get "dlock:$1")" = other ] ;;
    esac
}
