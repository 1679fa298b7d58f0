#!/bin/sh
# Turns Lua scripts into a C header: the text without its comments and most blanks, and its SHA-1, by which
# EVALSHA calls it. A line "-- include FILE..." stands for the contents of these files beside it, once each,
# which are no scripts by themselves. Functions that a script does not call are left out, and others get short names:
# a release must fit into the 16 kB that a server reads at once (see redis_release() in store/redis/backend.c). FORMAT
# in a script becomes the number of the format (lock/format.h).
#
# Usage: store/redis/scripts/embed.sh SHA1SUM FORMAT FILE.lua...
set -eu
sha1sum=$1 format=$2
shift 2
echo '/* Made by src/store/redis/scripts/embed.sh out of the Lua scripts beside it. C99 asks no
 * more than 4095 bytes of a string; every compiler takes more. */
#pragma GCC diagnostic ignored "-Woverlength-strings"'
# called: standard input without the functions (from "local function" to "end") that nothing calls. The others, and
# the variables beside them, get short names, except those that a table has for its fields.
called() {
    awk -F"'" -v OFS="'" '
        { line[NR] = $0 }
        function name_of(text) { gsub(/^local (function )?|( =|\().*/, "", text); return text }
        function uses(pattern, from, to,    i) {
            for (i = 1; i <= NR; i++)
                if ((i < from || i > to) && line[i] ~ pattern) return 1
            return 0
        }
        function shortened(text,    done, word) {
            while (match(text, /[.:]?[A-Za-z_][A-Za-z0-9_]*/)) {
                word = substr(text, RSTART, RLENGTH)
                done = done substr(text, 1, RSTART - 1) (word in short ? short[word] : word)
                text = substr(text, RSTART + RLENGTH)
            }
            return done text
        }
        END {
            do {
                gone = 0
                for (i = 1; i <= NR; i++) {
                    if (line[i] !~ /^local function /) continue
                    for (last = i; last < NR && line[last] != "end"; last++) {}
                    if (uses("(^|[^A-Za-z0-9_])" name_of(line[i]) "([^A-Za-z0-9_]|$)", i, last)) continue
                    for (; i <= last; i++) line[i] = ""
                    gone = 1
                }
            } while (gone)
            for (i = 1; i <= NR; i++) {
                name = name_of(line[i])
                if (line[i] !~ /^local (function )?[A-Za-z_]+( = |\()/ || name in short || uses("[{,] ?" name " = ", 0, 0)) continue
                short[name] = sprintf("%c", 65 + count % 26) (count < 26 ? "" : int(count / 26))
                count++
            }
            for (i = 1; i <= NR; i++) {
                $0 = line[i]
                for (part = 1; part <= NF; part += 2) $part = shortened($part)
                print
            }
        }'
}

# tight: standard input without what Lua does not need: indentation, blank lines, comments behind code, and
# blanks around what stands between words. Text in single quotes stays as it is.
tight() {
    awk -F"'" -v OFS="'" '
        BEGIN { marks = split("( ) { } [ ] , = ~ < > + * /", sign, " ") }
        /^[ \t]*$/ { next }
        {
            sub(/^[ \t]+/, "")
            sub(/ -- [^\047]*$/, "")
            for (i = 1; i <= NF; i += 2) {
                for (mark = 1; mark <= marks; mark++) gsub(" *[" sign[mark] "] *", sign[mark], $i)
                if ($i !~ /[0-9] \.\./) gsub(/ \.\. /, "..", $i)
                if (i > 1) sub(/^ /, "", $i)
                if (i < NF) sub(/ $/, "", $i)
            }
            print
        }'
}

# whole FILE: its text, with all that it includes.
whole() {
    awk -v folder="$(dirname "$1")" '
        function copy(file,    got, line, names, n, i) {
            while ((got = getline line < file) > 0) {
                if (line !~ /^-- include /) { print line; continue }
                n = split(line, names, " ")
                for (i = 3; i <= n; i++) if (!copied[names[i]]++) copy(folder "/" names[i])
            }
            if (got < 0) { print file ": it cannot be read" >"/dev/stderr"; exit 1 }
        }
        BEGIN { copy(ARGV[1]) }' "$1"
}

for file in "$@"; do
    name=$(basename "$file" .lua)
    case $name in keys | meta | common | holders | queue | state) continue ;; esac
    text=$(whole "$file")
    text=$(printf '%s\n' "$text" | sed -e '/^[[:space:]]*--/d' | called | tight | sed -e "s/FORMAT/$format/g")
    if [ "$name" = release ] && [ ${#text} -gt 15360 ]; then
        echo "$file: it must fit into the 16 kB that a server reads at once" >&2
        exit 1
    fi
    sum=$(printf '%s\n' "$text" | "$sha1sum" | cut -d' ' -f1)
    printf '\nconst struct redis_script redis_%s_script = {\n    "%s",\n' "$name" "$sum"
    printf '%s\n' "$text" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'
    printf '};\n'
done
