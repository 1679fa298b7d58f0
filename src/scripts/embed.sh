#!/bin/sh
# Turns Lua scripts into a C header: the text without its comments, and its
# SHA-1, by which EVALSHA calls it.
#
# Usage: embed.sh SHA1SUM FILE.lua...
set -eu
sha1sum=$1
shift
echo '/* Made by src/scripts/embed.sh out of the Lua scripts beside it. */'
for file in "$@"; do
    name=$(basename "$file" .lua)
    text=$(sed -e '/^[[:space:]]*--/d' -e '/^[[:space:]]*$/d' -e 's/^[[:space:]]*//' "$file")
    sum=$(printf '%s\n' "$text" | "$sha1sum" | cut -d' ' -f1)
    printf '\nstatic const struct redis_script script_%s = {\n    "%s",\n' "$name" "$sum"
    printf '%s\n' "$text" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'
    printf '};\n'
done
