#!/usr/bin/env bash
# What locks in Redis look like on the wire, sent with redis-cli, for scripts
# that do it so, and in the place of clients that cannot be had here.
#
# by_hand.sh KIND ACTION ...
#   acquire KEY MS | release KEY TOKEN | extend KEY TOKEN MS
# acquire prints the token. Exit status 1: it is not so.
#
# KIND is shell, a script with SET NX PX; parse, Parse::Lock; safe, ShedLock
# with its safeUpdate; default, ShedLock without, which does not look whose lock
# it is; redisson, the RLock of Redisson.
set -euo pipefail
kind=$1 action=$2 key=$3
shift 3

redis() { redis-cli -s "$T/redis.sock" "$@"; }
uuid() { cat /proc/sys/kernel/random/uuid; }
# is WANTED COMMAND...: whether it answers so.
is() { [ "$("${@:2}")" = "$1" ]; }

compare_and_delete="if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
compare_and_expire="if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"

case $kind:$action in
    shell:acquire)
        token=$(uuid)
        is OK redis SET "$key" "$token" NX PX "$1" && echo "$token"
        ;;
    parse:acquire)
        token=$(uuid)
        is OK redis SET "$key" "$token" EX $((($1 + 999) / 1000)) NX && echo "$token"
        ;;
    safe:acquire | default:acquire)
        token="ADDED:$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)@$(uname -n):$(uuid)"
        is OK redis SET "$key" "$token" NX PX "$1" && echo "$token"
        ;;
    default:release) is 1 redis DEL "$key" ;;
    default:extend) is OK redis SET "$key" "$1" XX PX "$2" ;;
    shell:release | parse:release | safe:release) is 1 redis EVAL "$compare_and_delete" 1 "$key" "$1" ;;
    shell:extend | safe:extend) is 1 redis EVAL "$compare_and_expire" 1 "$key" "$1" "$2" ;;
    redisson:acquire)
        token=$(uuid):1
        is '' redis EVAL "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return false end
            return redis.call('pttl', KEYS[1])" 1 "$key" "$1" "$token" && echo "$token"
        ;;
    redisson:release) is 1 redis EVAL "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
        if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end return redis.call('del', KEYS[1])" 1 "$key" "$1" ;;
    *)
        echo "unknown: $kind $action" >&2
        exit 2
        ;;
esac
