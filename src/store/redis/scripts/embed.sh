#!/bin/sh
# Turns Lua scripts into a C header: the text without its comments, and its
# SHA-1, by which EVALSHA calls it. store/redis/scripts/common.lua precedes each of them but store/redis/scripts/share.lua,
# store/redis/scripts/queue.lua before those that hand the lock on, store/redis/scripts/state.lua before those that
# call state().
#
# Usage: store/redis/scripts/embed.sh SHA1SUM FILE.lua...
set -eu
sha1sum=$1
shift
echo '/* Made by src/store/redis/scripts/embed.sh out of the Lua scripts beside it. C99 asks no
 * more than 4095 bytes of a string; every compiler takes more. */
#pragma GCC diagnostic ignored "-Woverlength-strings"'
for file in "$@"; do
    name=$(basename "$file" .lua)
    folder=$(dirname "$file")
    case $name in common | queue | state) continue ;; esac
    parts=$folder/common.lua
    [ "$name" != share ] || parts=
    ! grep -Eq '^[^-]*(open_queue|leave|hand_on|state)\(' "$file" || parts="$parts $folder/queue.lua"
    ! grep -q '^[^-]*state()' "$file" || parts="$parts $folder/state.lua"
    # shellcheck disable=SC2086
    text=$(cat $parts "$file" | sed -e '/^[[:space:]]*--/d' -e '/^[[:space:]]*$/d' -e 's/^[[:space:]]*//')
    sum=$(printf '%s\n' "$text" | "$sha1sum" | cut -d' ' -f1)
    printf '\nconst struct redis_script redis_%s_script = {\n    "%s",\n' "$name" "$sum"
    printf '%s\n' "$text" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'
    printf '};\n'
done
